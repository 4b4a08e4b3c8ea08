// SPDX-License-Identifier: Apache-2.0
#include "session.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <random>

#include "wire/frame.h"

namespace rove::testpmd {

namespace {

constexpr size_t kWord = 8;     // bytes
constexpr size_t kLine = 64;    // messages share no cache lines
constexpr uint8_t kReads = 16;  // READs and atomics in flight on a QP, a common limit of NICs
constexpr uint8_t kHopLimit = 64;

[[noreturn]] void fail(const std::string& what, int error) {
    throw Failure(what + ": " + std::strerror(error));
}

ibv_mtu to_enum(uint32_t mtu) {
    ibv_mtu value = IBV_MTU_256;
    while ((128u << value) < mtu) value = static_cast<ibv_mtu>(value + 1);
    return value;
}

void modify(ibv_qp* qp, ibv_qp_attr& attributes, int mask, const char* state) {
    if (const int error = ibv_modify_qp(qp, &attributes, mask | IBV_QP_STATE); error != 0)
        fail(std::string("QP to ") + state, error);
}

bool is_ipv4(const ibv_gid& gid) {
    wire::Gid bytes;
    std::memcpy(bytes.data(), gid.raw, sizeof gid.raw);
    return wire::is_ipv4_mapped(bytes);
}

// One step of splitmix64.
uint64_t mixed(uint64_t x) {
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9;
    x = (x ^ x >> 27) * 0x94D049BB133111EB;
    return x ^ x >> 31;
}

uint64_t word_at(uint64_t seed, size_t at) {
    return seed ^ (at + 1) * 0x9E3779B97F4A7C15;
}

uint64_t seed_of(uint32_t q, uint64_t message) {
    return mixed((uint64_t{q} << 48 ^ message) + 0x9E3779B97F4A7C15);
}

}  // namespace

// The loop over whole words is separate, so that the compiler vectorizes it.
void fill(uint8_t* data, size_t bytes, uint32_t q, uint64_t message) {
    const uint64_t seed = seed_of(q, message);
    const size_t whole = bytes / kWord * kWord;
    for (size_t at = 0; at < whole; at += kWord) {
        const uint64_t word = word_at(seed, at);
        std::memcpy(data + at, &word, kWord);
    }
    const uint64_t last = word_at(seed, whole);
    std::memcpy(data + whole, &last, bytes - whole);
}

bool is_filled(const uint8_t* data, size_t bytes, uint32_t q, uint64_t message) {
    const uint64_t seed = seed_of(q, message);
    const size_t whole = bytes / kWord * kWord;
    uint64_t wrong = 0;
    for (size_t at = 0; at < whole; at += kWord) {
        uint64_t word;
        std::memcpy(&word, data + at, kWord);
        wrong |= word ^ word_at(seed, at);
    }
    const uint64_t last = word_at(seed, whole);
    return wrong == 0 && std::memcmp(data + whole, &last, bytes - whole) == 0;
}

std::vector<Rail> open_rails(int gid_index) {
    std::vector<Rail> rails;
    int count = 0;
    const std::unique_ptr<ibv_device*, decltype(&ibv_free_device_list)> list(ibv_get_device_list(&count),
                                                                             ibv_free_device_list);
    for (int i = 0; i < count; ++i) {
        const std::string name = ibv_get_device_name(list.get()[i]);
        if (name.rfind("rove", 0) != 0) continue;  // the list also has the devices of libibverbs
        Rail& rail = rails.emplace_back();
        rail.context.reset(ibv_open_device(list.get()[i]));
        if (rail.context != nullptr) rail.pd.reset(ibv_alloc_pd(rail.context.get()));
        if (rail.pd == nullptr) fail(name, errno);
        ibv_port_attr port{};
        if (ibv_query_gid(rail.context.get(), 1, gid_index, &rail.gid) != 0)
            throw Failure("--gid-index: " + name + " has no GID " + std::to_string(gid_index));
        if (ibv_query_port(rail.context.get(), 1, &port) == 0) rail.max_mtu = 128u << port.active_mtu;
    }
    if (rails.empty()) throw Failure("the ports could not be opened");
    return rails;
}

Session::Session(const std::vector<Rail>& rails, const Options& options, const Plan& plan, bool initiates)
    : options_(options), plan_(plan), stride_((plan.size + kLine - 1) / kLine * kLine) {
    std::random_device random;
    memory_.resize(size_t{2} * plan.qps * plan.depth * stride_);
    for (const Rail& rail : rails) {
        plan_.mtu = std::min(plan_.mtu, rail.max_mtu);
        Side side{&rail, nullptr, nullptr};
        side.mr.reset(ibv_reg_mr(
            rail.pd.get(), memory_.data(), memory_.size(),
            IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC));
        if (side.mr == nullptr) fail("memory", errno);
        const auto entries = static_cast<int>(2 * plan.depth * ((plan.qps - 1) / rails.size() + 1));
        side.cq.reset(ibv_create_cq(rail.context.get(), entries, nullptr, nullptr, 0));
        if (side.cq == nullptr) fail("CQ", errno);
        mine_.rails.push_back({rail.gid, side.mr->rkey, reinterpret_cast<uint64_t>(memory_.data())});
        sides_.push_back(std::move(side));
    }
    mine_.plan = plan_;
    for (uint32_t q = 0; q < plan.qps; ++q) {
        const Side& side = sides_[q % sides_.size()];
        ibv_qp_init_attr init{};
        init.send_cq = init.recv_cq = side.cq.get();
        init.qp_type = IBV_QPT_RC;
        init.cap = {.max_send_wr = initiates ? 2 * plan.depth : 1,
                    .max_recv_wr = initiates ? 1 : 2 * plan.depth,
                    .max_send_sge = 1,
                    .max_recv_sge = 1,
                    .max_inline_data = 0};
        qps_.emplace_back(ibv_create_qp(side.rail->pd.get(), &init));
        if (qps_.back() == nullptr) fail("QP", errno);
        ibv_qp_attr attributes{};
        attributes.qp_state = IBV_QPS_INIT;
        attributes.port_num = 1;
        attributes.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
        modify(qps_.back().get(), attributes, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS, "INIT");
        mine_.qps.push_back({qps_.back()->qp_num, static_cast<uint32_t>(random()) & 0xFFFFFF});
    }
}

void Session::connect(const Introduction& theirs) {
    if (theirs.rails.size() != rails())
        throw Failure(std::to_string(rails()) + " ports here, " + std::to_string(theirs.rails.size()) + " at the peer");
    if (theirs.qps.size() != qps_.size()) throw Failure("the peer has another number of QPs");
    for (size_t i = 0; i < rails(); ++i)
        if (is_ipv4(theirs.rails[i].gid) != is_ipv4(mine_.rails[i].gid))
            throw Failure("--gid-index: IPv4 at one end, IPv6 at the other");
    theirs_ = theirs;
    plan_.mtu = std::min(plan_.mtu, theirs.plan.mtu);
    for (uint32_t q = 0; q < plan_.qps; ++q) connect(q);
}

void Session::connect(uint32_t q) {
    ibv_qp_attr attributes{};
    attributes.qp_state = IBV_QPS_RTR;
    attributes.path_mtu = to_enum(plan_.mtu);
    attributes.dest_qp_num = theirs_.qps[q].qpn;
    attributes.rq_psn = theirs_.qps[q].psn;
    attributes.max_dest_rd_atomic = kReads;
    attributes.min_rnr_timer = 1;  // IBTA table 45: 0.01 ms
    attributes.ah_attr.is_global = 1;
    attributes.ah_attr.grh.dgid = theirs_.rails[q % rails()].gid;
    attributes.ah_attr.grh.sgid_index = static_cast<uint8_t>(options_.gid_index);
    attributes.ah_attr.grh.hop_limit = kHopLimit;
    attributes.ah_attr.sl = plan_.service_level;
    attributes.ah_attr.port_num = 1;
    modify(qp(q), attributes,
           IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
               IBV_QP_MIN_RNR_TIMER,
           "RTR");
    attributes = {};
    attributes.qp_state = IBV_QPS_RTS;
    attributes.sq_psn = mine_.qps[q].psn;
    attributes.timeout = options_.timeout;
    attributes.retry_cnt = options_.retries;
    attributes.rnr_retry = 7;  // without a limit
    attributes.max_rd_atomic = kReads;
    modify(qp(q), attributes,
           IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC, "RTS");
}

void Session::post_receive(uint32_t q, uint32_t where) {
    ibv_sge sge{reinterpret_cast<uint64_t>(slot(q, where)), plan_.size, lkey(q)};
    ibv_recv_wr request{}, *bad = nullptr;
    request.wr_id = q;
    request.sg_list = &sge;
    request.num_sge = 1;
    if (const int error = ibv_post_recv(qp(q), &request, &bad); error != 0) fail("ibv_post_recv", error);
}

}  // namespace rove::testpmd
