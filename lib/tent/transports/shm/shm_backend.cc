// SPDX-License-Identifier: Apache-2.0
// See shm_backend.h.
#include "tent/transports/shm/shm_backend.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "tent/clock.h"

namespace rove::tent {

namespace {

constexpr uint64_t kRoundBytes = 1 << 20;     // copied before others have their turn: some 100 us
constexpr uint64_t kDownNs = 1'000'000'000;   // after memory could not be mapped
constexpr uint64_t kLookNs = 100'000'000;     // between two looks for memory that has gone

}  // namespace

ShmChannel::ShmChannel(Core& core, Peer& peer)
    : Channel(core.config().rdma.queues),
      core_(core),
      peer_(peer) {}

ShmChannel::~ShmChannel() {
    unmap(std::move(mappings_));
}

bool ShmChannel::available(const BufferDesc& remote) const {
    const uint64_t down_until_ns = down_until_ns_.load(std::memory_order_relaxed);
    return remote.shared.has_value() && !peer_.gone.load(std::memory_order_relaxed) &&
           (down_until_ns == 0 || monotonic_ns() >= down_until_ns);
}

Channel::Dispatched ShmChannel::dispatch(uint8_t level, uint8_t allowed, uint64_t now_ns) {
    uint64_t copied = 0;
    while (copied < kRoundBytes) {
        Waiting* waiting = queues.first(level, allowed);
        if (waiting == nullptr) return {.moved = copied != 0};
        copied += carry(static_cast<Task&>(*waiting), now_ns);
    }
    return {.moved = true, .more = true};
}

// The first slice of a request; all of them wait elsewhere while the memory is being mapped.
uint64_t ShmChannel::carry(Task& task, uint64_t now_ns) {
    if (!core_.is_wanted(static_cast<const Slice&>(*task.first))) {
        core_.drop(static_cast<Slice&>(*queues.take(task, now_ns)));
        return 0;
    }
    const BufferDesc& buffer = *task.remote;
    if (!buffer.shared) {
        core_.move_waiting(task, Transport::kShm, now_ns);
        return 0;
    }
    std::shared_ptr<Mapping>& mapping = mappings_[*buffer.shared];
    if (mapping == nullptr) {
        mapping = std::make_shared<Mapping>();
        map(*buffer.shared, mapping, buffer.writable);
    }
    if (mapping->memory == nullptr) {
        for (Queued* one = queues.take_all(task); one != nullptr; one = one->next)
            mapping->waiting.push_back(static_cast<Slice*>(one));
        return 0;
    }
    auto& slice = static_cast<Slice&>(*queues.take(task, now_ns));
    const PeerMemory& memory = *mapping->memory;
    const uint64_t offset = slice.remote - buffer.address, length = slice.length;
    const bool is_write = task.direction == Direction::kWrite;
    if (!memory.is_registered() || offset + length > memory.length() || (is_write && !memory.writable())) {
        core_.refused(slice);
        return 0;
    }
    if (is_write) {
        std::memcpy(memory.address() + offset, slice.local, length);
    } else {
        std::memcpy(slice.local, memory.address() + offset, length);
    }
    core_.done(slice);
    return length;
}

void ShmChannel::map(const ObjectId& id, std::shared_ptr<Mapping> mapping, bool writable) {
    ++jobs_;
    core_.jobs().add(peer_.name(), [this, id, mapping = std::move(mapping), writable, segment = peer_.segment()] {
        std::shared_ptr<PeerMemory> memory;
        const Fetched how = fetch_memory(segment->shm_server, segment->instance, id, writable, &memory);
        core_.with_lock([&] { mapped(id, mapping, how, std::move(memory)); });
    });
}

void ShmChannel::mapped(const ObjectId& id, const std::shared_ptr<Mapping>& mapping, Fetched how,
                        std::shared_ptr<PeerMemory> memory) {
    const uint64_t now_ns = monotonic_ns();
    --jobs_;
    const std::vector<Slice*> waiting = std::exchange(mapping->waiting, {});
    mapping->memory = std::move(memory);
    const auto at = mappings_.find(id);
    if (how != Fetched::kMapped && at != mappings_.end() && at->second == mapping) mappings_.erase(at);
    if (how == Fetched::kUnreachable) down_until_ns_.store(now_ns + kDownNs, std::memory_order_relaxed);
    for (Slice* slice : waiting) {
        if (how == Fetched::kMapped) {
            core_.backends()[static_cast<size_t>(Transport::kShm)]->put_back(*slice->task, *slice, now_ns);
        } else if (how == Fetched::kNotOffered) {
            core_.refused(*slice);
        } else {
            core_.move_elsewhere(*slice, Transport::kShm, now_ns);
        }
    }
}

void ShmChannel::unmap_what_has_gone() {
    Mappings gone;
    for (auto at = mappings_.begin(); at != mappings_.end();) {
        const auto one = at++;
        const PeerMemory* memory = one->second->memory.get();
        if (memory != nullptr && !memory->is_registered()) gone.insert(mappings_.extract(one));
    }
    unmap(std::move(gone));
}

// A job does it: it takes milliseconds for a gigabyte.
void ShmChannel::unmap(Mappings mappings) {
    if (mappings.empty()) return;
    core_.jobs().add(peer_.name(), [mappings = std::move(mappings)]() mutable { mappings.clear(); });
}

void ShmChannel::abandon(uint64_t) {
    for (uint8_t level = 0; level < kPriorities; ++level)
        while (Waiting* waiting = queues.first(level, 0xFF))
            core_.fail_waiting(static_cast<Task&>(*waiting), Reason::kPeerGone);
    for (auto& [id, mapping] : mappings_)
        for (Slice* slice : std::exchange(mapping->waiting, {})) core_.fail(*slice, Reason::kPeerGone);
    unmap(std::exchange(mappings_, {}));
}

// It is another process, which has other memory.
void ShmChannel::revive(uint64_t) {
    unmap(std::exchange(mappings_, {}));
    down_until_ns_.store(0, std::memory_order_relaxed);
}

std::unique_ptr<Channel> ShmBackend::open(Peer& peer, uint64_t) {
    if (!peer.segment()->same_machine || peer.is_file()) return nullptr;
    auto channel = std::make_unique<ShmChannel>(core_, peer);
    add(*channel);
    return channel;
}

bool ShmBackend::progress(uint64_t now_ns) {
    if (now_ns - looked_ns_ < kLookNs) return false;
    looked_ns_ = now_ns;
    for (Channel* channel : channels()) static_cast<ShmChannel*>(channel)->unmap_what_has_gone();
    return false;
}

}  // namespace rove::tent
