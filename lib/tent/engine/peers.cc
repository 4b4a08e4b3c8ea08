// SPDX-License-Identifier: Apache-2.0
// See peers.h.
#include "tent/engine/peers.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>

#include "tent/control/address.h"
#include "tent/control/handshake.h"
#include "tent/engine/clock.h"
#include "tent/engine/merging.h"
#include "tent/engine/own_sockets.h"
#include "tent/engine/shard.h"
#include "tent/metadata/names.h"
#include "tent/observability/log.h"
#include "tent/transports/io_uring/file.h"
#include "tent/transports/shm/shm_server.h"

namespace rove::tent {

namespace {

// 128 random bits.
std::string made_up_owner() {
    std::array<uint8_t, 16> bytes;
    fill_random(bytes.data(), bytes.size());
    return to_hex(bytes);
}

constexpr uint64_t kOpenNs = 3'000'000'000;  // how long a peer may take to answer when it is opened
constexpr uint64_t kAskNs = 1'000'000'000;   // how long it may take later
constexpr uint64_t kAgainNs = 200'000'000;   // the shortest interval between questions to a peer that ended
constexpr uint64_t kBackNs = 20'000'000;     // how long a request waits for a peer that may have returned
constexpr unsigned kFirstNapUs = 1000;       // the first pause while memory may return; each one doubles

bool same_devices(const SegmentDesc& a, const SegmentDesc& b) {
    return std::equal(a.devices.begin(), a.devices.end(), b.devices.begin(), b.devices.end(),
                      [](const DeviceDesc& x, const DeviceDesc& y) { return x.name == y.name; });
}

}  // namespace

Peer::Peer(std::string name, std::string address, const Credentials& credentials)
    : name_(std::move(name)),
      is_file_(name_.starts_with(kFileScheme)),
      owner_(made_up_owner()),
      control_(std::move(address), credentials) {}

void Peers::set_local(std::string name, std::string address) {
    const std::lock_guard lock(mutex_);
    handles_.assign(1, std::make_shared<Peer>(std::move(name), std::move(address), core_.credentials()));
}

Status Peers::describe(Peer& peer, std::shared_ptr<const SegmentDesc>* out) {
    if (peer.is_file()) {
        SegmentDesc segment;
        segment.same_machine = true;
        Status status = describe_file(peer.name(), &segment);
        if (status.ok()) *out = std::make_shared<const SegmentDesc>(std::move(segment));
        return status;
    }
    std::string why;
    const auto answer = peer.control().call(MessageType::kDescribe, Json::object(), kOpenNs, &why);
    if (!answer)
        return {Code::kRpcServiceError, "segment '" + peer.name() + "', " + peer.control().address() + ": " + why};
    auto segment = parse_segment(*answer);
    if (!segment) {
        return {Code::kRpcServiceError, "segment '" + peer.name() + "': the description from " +
                                            peer.control().address() + " cannot be parsed"};
    }
    // An address that a store has from a process which is no more may be another's now.
    if (names_ != nullptr && segment->name != peer.name()) {
        return {Code::kRpcServiceError, "segment '" + peer.name() + "': " + peer.control().address() +
                                            " is now segment '" + segment->name + "'"};
    }
    segment->same_machine = is_on_this_machine(segment->shm_server, segment->instance);
    *out = std::make_shared<const SegmentDesc>(std::move(*segment));
    return {};
}

Status Peers::address_of(const std::string& name, std::string* address) {
    if (names_ != nullptr) return names_->find(name, address);
    *address = name;
    return {};
}

// With peer->asking held.
Status Peers::connect(const std::shared_ptr<Peer>& peer) {
    if (!peer->is_file() && peer->control().address().empty()) {
        std::string address;
        Status status = address_of(peer->name(), &address);
        if (!status.ok()) return status;
        peer->control().set_address(std::move(address));
    }
    std::shared_ptr<const SegmentDesc> segment;
    Status status = describe(*peer, &segment);
    if (!status.ok()) return status;
    if (!peer->is_file() && !lease(peer))
        return {Code::kRpcServiceError,
                "segment '" + peer->name() + "': " + peer->control().address() + " refuses the connection"};
    peer->set_segment(std::move(segment));
    Shard& shard = core_.shard(peer->shard());
    shard.with_lock([&] {
        const uint64_t now_ns = monotonic_ns();
        for (const auto& backend : shard.backends())
            peer->slot(static_cast<size_t>(backend->transport())) = backend->open(*peer, now_ns);
    });
    peer->set_known();
    return {};
}

Status Peers::open(const std::string& name, uint64_t* handle) {
    std::shared_ptr<Peer> peer;
    {
        const std::lock_guard lock(mutex_);
        for (const auto* list : {&handles_, &opening_})
            for (const auto& one : *list)
                if (one != nullptr && one->name() == name && !one->gone.load()) peer = one;
        if (peer == nullptr) {
            opening_.push_back(peer = std::make_shared<Peer>(name, "", core_.credentials()));
            if (!peer->is_file()) peer->set_shard(core_.next_shard());  // all files share one ring
        }
        peer->handles.fetch_add(1);  // counted now, so that nothing closes it meanwhile
    }
    const uint64_t begun_ns = monotonic_ns();
    Status status;
    if (!peer->known()) {
        const std::lock_guard asking(peer->asking);
        if (peer->failed_ns > begun_ns) {
            status = peer->failure;  // another thread tried to open it at the same time
        } else if (!peer->known()) {
            status = connect(peer);
            if (!status.ok()) {
                peer->failed_ns = monotonic_ns();
                peer->failure = status;
            }
        }
    }
    const std::lock_guard lock(mutex_);
    if (!status.ok() || peer == handles_[kLocal]) {
        if (peer->handles.fetch_sub(1) == 1) std::erase(opening_, peer);
        *handle = kLocal;
        return status;
    }
    std::erase(opening_, peer);
    *handle = static_cast<uint64_t>(std::find(handles_.begin() + 1, handles_.end(), nullptr) - handles_.begin());
    if (*handle == handles_.size()) handles_.push_back(nullptr);
    handles_[*handle] = std::move(peer);
    change_.fetch_add(1);
    return {};
}

Status Peers::close(uint64_t handle) {
    const std::lock_guard lock(mutex_);
    if (handle >= handles_.size() || handles_[handle] == nullptr)
        return {Code::kInvalidEntry, "segment handle " + std::to_string(handle) + " is not open"};
    if (handle == kLocal) return {};
    if (handles_[handle]->handles.fetch_sub(1) == 1) closing_.push_back(handles_[handle]);
    handles_[handle] = nullptr;
    change_.fetch_add(1);
    return {};
}

Status Peers::acquire(uint64_t handle, std::shared_ptr<Peer>* out, uint64_t* change) {
    {
        const std::shared_lock lock(mutex_);
        *out = handle < handles_.size() ? handles_[handle] : nullptr;
        *change = change_.load();
        if (*out != nullptr) (*out)->tasks.begin();
    }
    if (*out == nullptr) return {Code::kInvalidEntry, "segment handle " + std::to_string(handle) + " is not open"};
    if ((*out)->is_there()) return {};
    Status status = make_present(*out);
    if (status.ok()) return status;
    (*out)->tasks.undo_begin();
    out->reset();
    return status;
}

Status Peers::make_present(const std::shared_ptr<Peer>& owned) {
    Peer& peer = *owned;
    if (!peer.known()) {
        const std::lock_guard asking(peer.asking);
        return peer.known() ? Status{} : connect(owned);
    }
    const uint64_t now_ns = monotonic_ns();
    if (now_ns - peer.sought_ns.load() >= kAgainNs && !peer.is_sought.exchange(true)) {
        core_.jobs().add(peer.name(), [this, owned] { seek(owned); });
        while (peer.is_sought.load() && monotonic_ns() - now_ns < kBackNs) usleep(200);
    }
    if (peer.is_there()) return {};
    if (peer.is_other.load()) {
        return {Code::kNeedsRefreshCache,
                "segment '" + peer.name() +
                    "': its process was restarted with other devices; close the segment and open it again"};
    }
    return {Code::kRpcServiceError, "segment '" + peer.name() + "': its process has ended"};
}

// Looks for a process that ended, which may have returned at another address.
void Peers::seek(const std::shared_ptr<Peer>& peer) {
    std::string address;
    std::shared_ptr<const SegmentDesc> segment;
    if (address_of(peer->name(), &address).ok()) {
        const std::lock_guard asking(peer->asking);
        peer->control().set_address(std::move(address));
        if (peer->control().call(MessageType::kProbe, Json::object(), kAskNs) && describe(*peer, &segment).ok()) {
            peer->is_other.store(!same_devices(*segment, *peer->segment()));
            if (!peer->is_other.load() && lease(peer)) {
                peer->set_segment(std::move(segment));
                peer->gone.store(false);
                static LogLimit limit;
                log(limit, LogLevel::kInfo, "segment '%s': its process has returned, at %s", peer->name().c_str(),
                    peer->control().address().c_str());
                core_.shard(peer->shard()).with_lock([&] {
                    for (size_t i = 0; i < kTransports; ++i)
                        if (peer->slot(i) != nullptr) peer->slot(i)->revive(monotonic_ns());
                });
            }
        }
    }
    peer->sought_ns.store(monotonic_ns());
    peer->is_sought.store(false);
}

Status Peers::refresh(Peer& peer) {
    const uint64_t before = peer.asked.load();
    const std::lock_guard asking(peer.asking);
    if (peer.answered > before) return {};
    const uint64_t number = peer.asked.fetch_add(1) + 1;
    std::shared_ptr<const SegmentDesc> segment;
    Status status = describe(peer, &segment);
    if (!status.ok()) return status;
    peer.answered = number;
    const std::shared_ptr<const SegmentDesc> known = peer.segment();
    if (!same_devices(*segment, *known)) return {};
    if (segment->instance == known->instance) {
        peer.update_segment(std::move(segment), monotonic_ns());
    } else {
        peer.set_segment(std::move(segment));
    }
    return {};
}

Status Peers::refresh_for(Peer& peer, uint64_t address, uint64_t length, std::shared_ptr<const SegmentDesc>* segment) {
    for (unsigned nap_us = kFirstNapUs;; nap_us *= 2) {
        Status status = refresh(peer);
        if (!status.ok()) return status;
        *segment = peer.segment();
        if ((*segment)->find(address, length) != nullptr || !peer.may_return(address, length, monotonic_ns()))
            return {};
        usleep(nap_us);
    }
}

void Peers::refresh_refused(Task& task) {
    if (!task.peer->refused.add(task)) return;
    core_.jobs().add(task.peer->name(), [this, peer = task.peer] { refresh_all_refused(*peer); });
}

void Peers::refresh_all_refused(Peer& peer) {
    std::vector<Task*> waiting;
    for (unsigned nap_us = kFirstNapUs;; nap_us *= 2) {
        const std::vector<Task*> more = peer.refused.take(waiting.empty());
        if (!more.empty()) nap_us = kFirstNapUs;
        waiting.insert(waiting.end(), more.begin(), more.end());
        if (waiting.empty()) return;
        const std::shared_ptr<const SegmentDesc> now = refresh(peer).ok() ? peer.segment() : nullptr;
        std::erase_if(waiting, [&](Task* task) {
            const uint64_t address = task->target, length = carried_bytes(*task);
            if (now != nullptr && now->find(address, length) == nullptr &&
                peer.may_return(address, length, monotonic_ns()))
                return false;
            Shard& shard = core_.shard(peer.shard());
            shard.with_lock([&] { shard.refreshed(*task, now); });
            return true;
        });
        if (!waiting.empty()) usleep(nap_us);
    }
}

// Opens a connection whose end tells each process that the other has ended. It lasts as long as our connections to the
// peer.
bool Peers::lease(const std::shared_ptr<Peer>& peer) {
    const uint64_t deadline_ns = monotonic_ns() + kAskNs;
    std::string why;
    Stream stream =
        open_connection(peer->control().address(), Purpose::kControl, core_.credentials(), deadline_ns, &why);
    if (!stream.is_open()) return false;
    keep_alive(stream.fd());
    const auto answer = exchange(stream, 0, MessageType::kLease, {{"owner", peer->owner()}}, deadline_ns);
    bool is_ok = false;
    if (!answer || !get(*answer, "ok", &is_ok) || !is_ok) return false;
    peer->set_lease(note_socket(fcntl(stream.fd(), F_DUPFD_CLOEXEC, 0)));
    // The connection carries no further messages.
    server_.watch(stream.release(), [this, weak = std::weak_ptr(peer)] {
        const auto peer = weak.lock();
        if (peer != nullptr) core_.jobs().add(peer->name(), [this, peer] { lost(peer); });
    });
    return true;
}

void Peers::lost(const std::shared_ptr<Peer>& peer) {
    if (!peer->has_lease()) return;  // we closed it
    // The process may be alive although the connection was lost.
    if (is_same_process(*peer) && (peer->handles.load() == 0 || lease(peer))) return;
    set_gone(*peer);
}

bool Peers::is_same_process(Peer& peer) {
    const auto answer = peer.control().call(MessageType::kProbe, Json::object(), kAskNs);
    uint64_t instance = 0;
    return answer && get(*answer, "instance", &instance) && instance == peer.segment()->instance;
}

void Peers::set_gone(Peer& peer) {
    if (peer.gone.exchange(true)) return;
    static LogLimit limit;
    log(limit, LogLevel::kInfo, "segment '%s': its process has ended", peer.name().c_str());
    core_.shard(peer.shard()).with_lock([&] {
        for (size_t i = 0; i < kTransports; ++i)
            if (peer.slot(i) != nullptr) peer.slot(i)->abandon(monotonic_ns());
    });
}

void Peers::changed(const std::string& name) {
    std::vector<std::shared_ptr<Peer>> peers = all();
    std::erase_if(peers, [&](const auto& peer) {
        return peer->is_file() || !peer->known() || peer->handles.load() == 0 ||
               (!name.empty() && peer->name() != name);
    });
    for (const auto& peer : peers) core_.jobs().add(peer->name(), [this, peer] { look_again(peer); });
}

void Peers::look_again(const std::shared_ptr<Peer>& peer) {
    if (!peer->gone.load()) {
        if (is_same_process(*peer)) return;
        set_gone(*peer);
    }
    if (!peer->is_sought.exchange(true)) seek(peer);
}

void Peers::tidy() {
    std::vector<std::shared_ptr<Peer>> closing;
    {
        const std::shared_lock lock(mutex_);
        closing = closing_;
    }
    for (const auto& peer : closing) {
        if (peer->tasks.unfinished() != 0) continue;
        bool idle = true;
        std::vector<std::unique_ptr<Channel>> channels;  // which end without the lock: that takes long
        Shard& shard = core_.shard(peer->shard());
        shard.with_lock([&] {
            for (size_t i = 0; i < kTransports; ++i) {
                if (peer->slot(i) == nullptr) continue;
                peer->slot(i)->shut_down();
                idle &= peer->slot(i)->idle();
            }
            for (size_t i = 0; i < kTransports && idle; ++i) {
                if (peer->slot(i) == nullptr) continue;
                shard.backend(static_cast<Transport>(i))->forget(*peer->slot(i));
                channels.push_back(std::move(peer->slot(i)));
            }
        });
        if (!idle) continue;
        channels.clear();
        peer->set_lease(-1);
        const std::lock_guard lock(mutex_);
        std::erase(closing_, peer);
    }
}

void Peers::clear() {
    for (const auto& peer : all()) {
        peer->set_lease(-1);
        for (size_t i = 0; i < kTransports; ++i) {
            if (peer->slot(i) == nullptr) continue;
            core_.shard(peer->shard()).backend(static_cast<Transport>(i))->forget(*peer->slot(i));
            peer->slot(i).reset();
        }
    }
}

std::vector<std::shared_ptr<Peer>> Peers::all() const {
    const std::shared_lock lock(mutex_);
    std::vector<std::shared_ptr<Peer>> list = closing_;
    std::copy_if(handles_.begin(), handles_.end(), std::back_inserter(list), [](const auto& peer) { return !!peer; });
    std::sort(list.begin(), list.end());  // a peer may have several handles
    list.erase(std::unique(list.begin(), list.end()), list.end());
    return list;
}

}  // namespace rove::tent
