// SPDX-License-Identifier: Apache-2.0
// libFuzzer target: a whole connection manager. The input is a script: calls of a program, MADs of peers and strangers,
// and time. The target checks that no event comes for an unknown id, that tables stay within their bounds, that no
// deadline is in the past, and that no state is left when all ids are destroyed. Run by tests/fuzz/run.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <vector>

#include "cm/cm.h"

namespace {

using namespace rove;
using namespace rove::cm;

void require(bool holds) {
    if (!holds) std::abort();
}

class Input {
  public:
    Input(const uint8_t* data, size_t size) : at_(data), left_(size) {}
    bool empty() const { return left_ == 0; }
    uint8_t byte() {
        if (left_ == 0) return 0;
        --left_;
        return *at_++;
    }
    // Returns the next bytes of the input, up to `most`.
    std::span<const uint8_t> bytes(size_t most) {
        const std::span<const uint8_t> taken(at_, std::min(most, left_));
        at_ += taken.size();
        left_ -= taken.size();
        return taken;
    }

  private:
    const uint8_t* at_;
    size_t left_;
};

constexpr uint64_t kService = service_id_of(0x0106, 7174), kPlainService = 5;

class Play final : Sink {
  public:
    explicit Play(Input input) : input_(input) {
        Id id;
        cm_.listen({.service_id = kService, .backlog = 4}, nullptr, id);
        ids_.push_back(id);
        cm_.listen({.service_id = kPlainService, .cma_header = false}, nullptr, id);
        ids_.push_back(id);
    }

    void run() {
        while (!input_.empty()) {
            act();
            const Cm::Usage usage = cm_.usage();
            require(usage.connections <= kMost && usage.lingering <= kMost && usage.listeners <= kMost);
        }
        for (const Id id : ids_) cm_.destroy(now_, id);
        ids_.clear();
        for (int i = 0; i < 10'000 && cm_.next_deadline() != UINT64_MAX; ++i) pass(cm_.next_deadline());
        require(cm_.next_deadline() == UINT64_MAX);
        const Cm::Usage usage = cm_.usage();
        require(usage.connections == 0 && usage.lingering == 0 && usage.listeners == 0 && usage.names == 0);
    }

  private:
    static constexpr uint32_t kMost = 8;

    void send(const Path&, const Mad& mad) override {
        Message message;
        require(parse(mad, message) == ParseError::kNone);
        last_sent_ = message;
    }
    void deliver(const Event& event) override {
        if (event.kind == EventKind::kConnectRequest || event.kind == EventKind::kSidrRequest) {
            require(std::find(ids_.begin(), ids_.end(), event.id) == ids_.end());
            ids_.push_back(event.id);
        } else {
            require(std::find(ids_.begin(), ids_.end(), event.id) != ids_.end());
        }
        // All private data must be readable.
        volatile uint8_t sum = 0;
        for (const uint8_t byte : event.private_data) sum = static_cast<uint8_t>(sum + byte);
    }

    void pass(uint64_t now_ns) {
        now_ = std::max(now_, now_ns);
        cm_.expire(now_);
        require(cm_.next_deadline() > now_);
    }
    static wire::Gid gid(uint8_t which) { return {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF, 10, 0, 0, which}; }
    Path path(uint8_t which) {
        Path path;
        path.flow.src = gid(1);
        path.flow.dst = gid(static_cast<uint8_t>(1 + which % 3));
        return path;
    }
    Id any_id() { return ids_.empty() ? Id{input_.byte()} : ids_[input_.byte() % ids_.size()]; }

    // Receives a MAD whose ids and transaction id come from the last sent message or from the input. The rest comes
    // from the input.
    void receive() {
        const uint8_t kind = input_.byte(), how = input_.byte(), from = input_.byte();
        Mad mad{1, 7, 2, 3};
        mad[17] = static_cast<uint8_t>(0x10 + kind % 11);
        const auto rest = input_.bytes(kind % 11 == 0 ? 0 : 24);
        std::copy(rest.begin(), rest.end(), mad.begin() + 24);
        Message message;
        require(parse(mad, message) == ParseError::kNone);
        message.transaction_id = (how & 1) != 0 ? last_sent_.transaction_id : input_.byte();
        const uint32_t ours = ids_of_last().first, theirs = ids_of_last().second;
        std::visit(
            [&]<class M>(M& body) {
                if constexpr (requires { body.remote_comm_id; }) {
                    if ((how & 2) != 0) body.remote_comm_id = ours;
                    body.local_comm_id = (how & 4) != 0 && theirs != 0 ? theirs : input_.byte();
                }
                if constexpr (requires { body.request_id; }) {
                    if ((how & 2) != 0) body.request_id = ours;
                }
                if constexpr (std::is_same_v<M, SidrReq>) body.service_id = (how & 8) != 0 ? kPlainService : kService;
                if constexpr (std::is_same_v<M, Dreq>) body.remote_qpn = (how & 8) != 0 ? body.remote_qpn : kQpn;
                if constexpr (std::is_same_v<M, Req>) {
                    body.local_comm_id = input_.byte();
                    body.qpn = input_.byte();
                    body.service_id = (how & 8) != 0 ? kPlainService : kService;
                    body.path_mtu = 1 + (how >> 4) % 6;
                    body.primary.local_gid = gid(static_cast<uint8_t>(1 + from % 3));
                    body.primary.remote_gid = gid(1);
                    build_cma_header({.src_port = 1, .src = body.primary.local_gid, .dst = gid(1)}, body.private_data);
                }
            },
            message.body);
        const Mad built = build(message);
        cm_.receive(now_, path(from), 5, built);
    }
    std::pair<uint32_t, uint32_t> ids_of_last() const {
        return std::visit(
            []<class M>(const M& body) {
                if constexpr (requires { body.remote_comm_id; })
                    return std::pair(body.local_comm_id, body.remote_comm_id);
                else if constexpr (requires { body.request_id; })
                    return std::pair(body.request_id, 0u);
                else if constexpr (requires { body.local_comm_id; })
                    return std::pair(body.local_comm_id, 0u);
                else
                    return std::pair(0u, 0u);
            },
            last_sent_.body);
    }

    void act() {
        Id id = Id::kNone;
        switch (input_.byte() % 16) {
            case 0: {
                Connect connect;
                connect.path = path(input_.byte());
                connect.service_id = kService;
                connect.local.qpn = kQpn;
                connect.private_data = input_.bytes(input_.byte() % 100);
                if (cm_.connect(now_, connect, nullptr, id) == 0) ids_.push_back(id);
                break;
            }
            case 1: {
                SidrRequest request;
                request.path = path(input_.byte());
                request.service_id = kPlainService;
                if (cm_.sidr_request(now_, request, nullptr, id) == 0) ids_.push_back(id);
                break;
            }
            case 2:
                cm_.accept(now_, any_id(), {.local = {.qpn = kQpn}, .private_data = input_.bytes(input_.byte())});
                break;
            case 3:
                cm_.confirm(now_, any_id(), input_.bytes(input_.byte()));
                break;
            case 4:
                cm_.reject(now_, any_id(), {.ari = input_.bytes(input_.byte() % 80)});
                break;
            case 5:
                cm_.delay(now_, any_id(), input_.byte() % 33, {});
                break;
            case 6:
                cm_.establish(now_, any_id());
                break;
            case 7:
                cm_.disconnect(now_, any_id(), input_.bytes(input_.byte()));
                break;
            case 8:
                cm_.sidr_reply(now_, any_id(), {.qpn = kQpn});
                break;
            case 9:
                id = any_id();
                cm_.destroy(now_, id);
                std::erase(ids_, id);
                require(!cm_.state(id));
                break;
            case 10:
                pass(now_ + (uint64_t{1} << input_.byte() % 40));
                break;
            case 11:
                if (cm_.next_deadline() != UINT64_MAX) pass(cm_.next_deadline());
                break;
            case 12:
                cm_.receive(now_, path(input_.byte()), 5, input_.bytes(kMadBytes));
                break;
            default:
                receive();
                break;
        }
    }

    static constexpr uint32_t kQpn = 0x77;
    Input input_;
    uint64_t now_ = 1;
    std::vector<Id> ids_;
    Message last_sent_;
    Cm cm_{{.max_connections = kMost, .max_listeners = kMost, .max_lingering = kMost}, Secret::of(1), *this};
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    Play(Input(data, size)).run();
    return 0;
}
