// SPDX-License-Identifier: Apache-2.0
// See peers.h.
#include "tent/peers.h"

#include <unistd.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "tent/clock.h"
#include "tent/metadata/names.h"
#include "tent/transports/io_uring/file.h"

namespace rove::tent {

namespace {

constexpr uint64_t kOpenNs = 3'000'000'000;   // for a peer to answer when it is opened
constexpr uint64_t kAskNs = 1'000'000'000;    // ... and later
constexpr uint64_t kAgainNs = 200'000'000;    // a peer that has gone is not asked more often

bool same_devices(const SegmentDesc& a, const SegmentDesc& b) {
    return std::equal(a.devices.begin(), a.devices.end(), b.devices.begin(), b.devices.end(),
                      [](const DeviceDesc& x, const DeviceDesc& y) { return x.name == y.name; });
}

}  // namespace

void Peers::set_local(std::string name, std::string address, std::string machine) {
    machine_ = std::move(machine);
    const std::lock_guard lock(mutex_);
    handles_.assign(1, std::make_shared<Peer>(std::move(name), std::move(address)));
}

Status Peers::describe(Peer& peer, std::shared_ptr<const SegmentDesc>* out) {
    if (peer.is_file()) {
        SegmentDesc segment;
        segment.machine = machine_;
        segment.same_machine = true;
        Status status = describe_file(peer.name(), &segment);
        if (status.ok()) *out = std::make_shared<const SegmentDesc>(std::move(segment));
        return status;
    }
    const auto answer = peer.control().call(MessageType::kDescribe, Json::object(), kOpenNs);
    if (!answer)
        return {Code::kRpcServiceError, "segment '" + peer.name() + "': no answer from " + peer.control().address()};
    auto segment = parse_segment(*answer);
    if (!segment) {
        return {Code::kRpcServiceError, "segment '" + peer.name() + "': " + peer.control().address() +
                                            " describes itself in a way that is not understood"};
    }
    // An address that a store has from a process which is no more may be another's now.
    if (names_ != nullptr && segment->name != peer.name()) {
        return {Code::kRpcServiceError, "segment '" + peer.name() + "': " + peer.control().address() +
                                            " is now segment '" + segment->name + "'"};
    }
    segment->same_machine = segment->machine == machine_;
    *out = std::make_shared<const SegmentDesc>(std::move(*segment));
    return {};
}

Status Peers::address_of(const std::string& name, std::string* address) {
    if (names_ != nullptr && !name.starts_with(kFileScheme)) return names_->find(name, address);
    *address = name.starts_with(kFileScheme) ? "" : name;
    return {};
}

// With opening_ held.
Status Peers::connect(const std::shared_ptr<Peer>& peer) {
    std::shared_ptr<const SegmentDesc> segment;
    Status status = describe(*peer, &segment);
    if (!status.ok()) return status;
    peer->set_segment(std::move(segment));
    if (!peer->is_file()) lease(peer);
    core_.with_lock([&] {
        const uint64_t now_ns = monotonic_ns();
        for (size_t i = 0; i < kTransports; ++i)
            if (core_.backends()[i] != nullptr) peer->slot(i) = core_.backends()[i]->open(*peer, now_ns);
    });
    return {};
}

Status Peers::open(const std::string& name, uint64_t* handle) {
    const std::lock_guard opening(opening_);
    std::shared_ptr<Peer> peer;
    {
        const std::shared_lock lock(mutex_);
        for (const auto& one : handles_)
            if (one != nullptr && one->name() == name && !one->gone.load()) peer = one;
    }
    if (peer == nullptr || !peer->known()) {
        std::string address;
        Status status = peer == nullptr ? address_of(name, &address) : Status{};
        if (!status.ok()) return status;
        if (peer == nullptr) peer = std::make_shared<Peer>(name, std::move(address));
        status = connect(peer);
        if (!status.ok()) return status;
    }
    const std::lock_guard lock(mutex_);
    if (peer == handles_[kLocal]) {
        *handle = kLocal;
        return {};
    }
    peer->handles.fetch_add(1);
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

Status Peers::find(uint64_t handle, std::shared_ptr<Peer>* out, uint64_t* change) {
    {
        const std::shared_lock lock(mutex_);
        *out = handle < handles_.size() ? handles_[handle] : nullptr;
        if (change != nullptr) *change = change_.load(std::memory_order_relaxed);
    }
    if (*out == nullptr) return {Code::kInvalidEntry, "segment handle " + std::to_string(handle) + " is not open"};
    if ((*out)->is_there()) return {};
    const std::lock_guard opening(opening_);
    Peer& peer = **out;
    if (!peer.known()) return connect(*out);
    if (!peer.gone.load()) return {};
    const Status gone{Code::kRpcServiceError, "segment '" + peer.name() + "': its process has gone"};
    const uint64_t now_ns = monotonic_ns();
    if (now_ns - peer.asked_ns < kAgainNs) return gone;
    peer.asked_ns = now_ns;
    std::string address;
    if (!address_of(peer.name(), &address).ok()) return gone;
    peer.control().set_address(std::move(address));
    std::shared_ptr<const SegmentDesc> segment;
    if (!peer.control().call(MessageType::kProbe, Json::object(), kAskNs) || !describe(peer, &segment).ok())
        return gone;
    if (!same_devices(*segment, *peer.segment())) {
        return {Code::kNeedsRefreshCache,
                "segment '" + peer.name() + "': its process was started again with other devices; close and open it"};
    }
    peer.set_segment(std::move(segment));
    peer.gone.store(false);
    lease(*out);
    core_.with_lock([&] {
        for (size_t i = 0; i < kTransports; ++i)
            if (peer.slot(i) != nullptr) peer.slot(i)->revive(monotonic_ns());
    });
    return {};
}

Status Peers::refresh(const std::shared_ptr<Peer>& peer) {
    const std::lock_guard opening(opening_);
    std::shared_ptr<const SegmentDesc> segment;
    Status status = describe(*peer, &segment);
    if (status.ok() && same_devices(*segment, *peer->segment())) peer->set_segment(std::move(segment));
    return status;
}

// A connection whose end says that the process at the other end has ended.
void Peers::lease(const std::shared_ptr<Peer>& peer) {
    const uint64_t deadline_ns = monotonic_ns() + kAskNs;
    const int fd = connect_to(peer->control().address(), deadline_ns);
    if (fd < 0) return;
    const std::string frame = encode(MessageType::kLease, 0, {{"instance", core_.instance()}});
    if (!send_all(fd, frame.data(), frame.size(), deadline_ns)) {
        ::close(fd);
        return;
    }
    peer->set_lease(dup(fd));
    server_.watch(fd, [this, weak = std::weak_ptr(peer)] {
        core_.jobs().add([this, weak] {
            if (const auto peer = weak.lock()) lost(peer);
        });
    });
}

void Peers::lost(const std::shared_ptr<Peer>& peer) {
    if (!peer->has_lease()) return;  // we ended it
    const auto answer = peer->control().call(MessageType::kProbe, Json::object(), kAskNs);
    uint64_t instance = 0;
    if (answer && get(*answer, "instance", &instance) && instance == peer->segment()->instance) {
        if (peer->handles.load() != 0) lease(peer);  // only the connection was lost
        return;
    }
    peer->gone.store(true);
    core_.with_lock([&] {
        for (size_t i = 0; i < kTransports; ++i)
            if (peer->slot(i) != nullptr) peer->slot(i)->abandon(monotonic_ns());
    });
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
        core_.with_lock([&] {
            for (size_t i = 0; i < kTransports; ++i) {
                if (peer->slot(i) == nullptr) continue;
                peer->slot(i)->shut_down();
                idle &= peer->slot(i)->idle();
            }
            for (size_t i = 0; i < kTransports && idle; ++i) {
                if (peer->slot(i) == nullptr) continue;
                core_.backends()[i]->forget(*peer->slot(i));
                peer->slot(i).reset();
            }
        });
        if (!idle) continue;
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
            core_.backends()[i]->forget(*peer->slot(i));
            peer->slot(i).reset();
        }
    }
}

std::vector<std::shared_ptr<Peer>> Peers::all() const {
    const std::shared_lock lock(mutex_);
    std::vector<std::shared_ptr<Peer>> list = closing_;
    for (const auto& peer : handles_)
        if (peer != nullptr) list.push_back(peer);
    return list;
}

}  // namespace rove::tent
