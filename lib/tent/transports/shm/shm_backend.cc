// SPDX-License-Identifier: Apache-2.0
// See shm_backend.h.
#include "tent/transports/shm/shm_backend.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "tent/engine/clock.h"

namespace rove::tent {

namespace {

// For slices up to this size, handing over costs more than a tenth of the copy.
constexpr uint64_t kShortBytes = 16 << 10;
constexpr uint32_t kNearSlices = 4;  // a request with more slices has left the near caches of its thread
// Time for which copies are left to the submitting thread. A thread that polls checks for them several times meanwhile.
constexpr uint64_t kOwnersNs = 5'000;
constexpr uint64_t kUnreachableNs = 1'000'000'000;  // pause after memory could not be mapped
constexpr uint64_t kGoneLookNs = 100'000'000;       // interval between two checks for freed memory

}  // namespace

ShmChannel::ShmChannel(Shard& shard, ShmBackend& backend, Peer& peer)
    : Channel(shard.config().queues), shard_(shard), backend_(backend), peer_(peer) {}

ShmChannel::~ShmChannel() {
    unmap(std::move(mappings_));
}

bool ShmChannel::available(const BufferDesc& remote) const {
    const uint64_t down_until_ns = down_until_ns_.load(std::memory_order_relaxed);
    return remote.shared.has_value() && !peer_.gone.load(std::memory_order_relaxed) &&
           (down_until_ns == 0 || monotonic_ns() >= down_until_ns);
}

Channel::Dispatched ShmChannel::dispatch(uint8_t level, uint8_t allowed, uint64_t now_ns) {
    Dispatched result;
    for (uint64_t copied = 0; copied < ShmBackend::kRoundBytes && backend_.has_room();) {
        Waiting* waiting = queues.first(level, allowed);
        if (waiting == nullptr) return result;
        copied += carry(static_cast<Task&>(*waiting), now_ns);
        result.moved = true;
    }
    result.more = backend_.has_room();
    return result;
}

// Carries the first slice of a request. While the memory is being mapped, all its slices wait at the mapping.
uint64_t ShmChannel::carry(Task& task, uint64_t now_ns) {
    if (!shard_.is_wanted(static_cast<const Slice&>(*task.first))) {
        shard_.drop(static_cast<Slice&>(*queues.take(task, now_ns)));
        return 0;
    }
    const BufferDesc& buffer = *task.remote;
    if (!buffer.shared) {
        shard_.move_waiting(task, Transport::SHM, now_ns);
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
    const bool is_write = task.is_write;
    uint8_t* const there = memory.address() + offset;
    if (!memory.is_registered() || offset + length > memory.length() || (is_write && !memory.writable())) {
        shard_.refused(slice);
        return 0;
    }
    uint8_t* const to = is_write ? there : slice.local;
    const uint8_t* const from = is_write ? slice.local : there;
    if (length > kShortBytes || task.lane != own_lane()) {
        ++out_;
        backend_.hand_over({this, &slice, mapping->memory, to, from, length},
                           task.count <= kNearSlices ? task.lane : ShmBackend::kNobodys, now_ns);
        return 0;
    }
    std::memcpy(to, from, length);
    shard_.done(slice);
    return length;
}

void ShmChannel::copied(Slice& slice) {
    --out_;
    // Data written to the memory of a process that has ended reached no one.
    if (peer_.gone.load(std::memory_order_relaxed)) {
        shard_.fail(slice, Reason::kPeerGone);
    } else {
        shard_.done(slice);
    }
}

void ShmChannel::map(const ObjectId& id, std::shared_ptr<Mapping> mapping, bool writable) {
    ++jobs_;
    shard_.jobs().add(peer_.name(), [this, id, mapping = std::move(mapping), writable, segment = peer_.segment()] {
        std::shared_ptr<PeerMemory> memory;
        const Fetched how = fetch_memory(segment->shm_server, segment->instance, id, writable, &memory);
        shard_.with_lock([&] { mapped(id, mapping, how, std::move(memory)); });
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
    if (how == Fetched::kUnreachable) down_until_ns_.store(now_ns + kUnreachableNs, std::memory_order_relaxed);
    for (Slice* slice : waiting) {
        if (how == Fetched::kMapped) {
            backend_.put_back(*slice->task, *slice, now_ns);
        } else if (how == Fetched::kNotOffered) {
            shard_.refused(*slice);
        } else {
            shard_.move_elsewhere(*slice, Transport::SHM, now_ns);
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

// Leaves unmapping to a job, since it takes milliseconds for a gigabyte.
void ShmChannel::unmap(Mappings mappings) {
    if (mappings.empty()) return;
    shard_.jobs().add(peer_.name(), [mappings = std::move(mappings)]() mutable { mappings.clear(); });
}

void ShmChannel::abandon(uint64_t) {
    for (uint8_t level = 0; level < kPriorities; ++level)
        while (Waiting* waiting = queues.first(level, 0xFF))
            shard_.fail_waiting(static_cast<Task&>(*waiting), Reason::kPeerGone);
    for (auto& [id, mapping] : mappings_)
        for (Slice* slice : std::exchange(mapping->waiting, {})) shard_.fail(*slice, Reason::kPeerGone);
    unmap(std::exchange(mappings_, {}));
}

// The peer is another process, which has other memory.
void ShmChannel::revive(uint64_t) {
    unmap(std::exchange(mappings_, {}));
    down_until_ns_.store(0, std::memory_order_relaxed);
}

std::unique_ptr<Channel> ShmBackend::open(Peer& peer, uint64_t) {
    if (!peer.segment()->same_machine || peer.is_file()) return nullptr;
    auto channel = std::make_unique<ShmChannel>(shard_, *this, peer);
    add(*channel);
    return channel;
}

bool ShmBackend::progress(uint64_t now_ns) {
    const uint32_t copied = copied_lanes_.load(std::memory_order_relaxed);
    for (uint32_t rest = copied; rest != 0; rest &= rest - 1) take_back(static_cast<uint8_t>(std::countr_zero(rest)));
    if (now_ns - looked_ns_ < kGoneLookNs) return copied != 0;
    looked_ns_ = now_ns;
    for (Channel* channel : channels()) static_cast<ShmChannel*>(channel)->unmap_what_has_gone();
    return copied != 0;
}

void ShmBackend::hand_over(Copy copy, uint8_t to, uint64_t now_ns) {
    ++out_;
    out_bytes_ += copy.length;
    Lane& lane = lanes_[to];
    const std::lock_guard lock(lane.mutex);
    lane.waiting[(lane.first + lane.waiting_count) % kDeep] = std::move(copy);
    if (lane.waiting_count++ != 0) return;
    lane.handed_ns.store(now_ns, std::memory_order_relaxed);
    waiting_lanes_.fetch_or(1u << to, std::memory_order_relaxed);
}

bool ShmBackend::work() {
    uint32_t waiting = waiting_lanes_.load(std::memory_order_relaxed);
    if (waiting == 0) return false;
    const uint8_t own = own_lane();
    if ((waiting >> own & 1) != 0 && work_at(own)) {
        lanes_[own].is_attended.store(true, std::memory_order_relaxed);
        return true;
    }
    const uint64_t now_ns = monotonic_ns();
    for (; waiting != 0; waiting &= waiting - 1) {
        const auto one = static_cast<uint8_t>(std::countr_zero(waiting));
        Lane& lane = lanes_[one];
        const bool is_over = now_ns >= lane.handed_ns.load(std::memory_order_relaxed) + kOwnersNs;
        if (lane.is_attended.load(std::memory_order_relaxed) && !is_over) continue;
        lane.is_attended.store(false, std::memory_order_relaxed);
        if (work_at(one)) return true;
    }
    return false;
}

bool ShmBackend::work_at(uint8_t number) {
    Lane& lane = lanes_[number];
    uint64_t bytes = 0;  // bounded, since others may hand over more all the time
    std::unique_lock lock(lane.mutex);
    while (bytes < kRoundBytes && lane.waiting_count != 0) {
        Copy copy = std::move(lane.waiting[lane.first]);
        lane.first = (lane.first + 1) % kDeep;
        if (--lane.waiting_count == 0) waiting_lanes_.fetch_and(~(1u << number), std::memory_order_relaxed);
        lock.unlock();
        std::memcpy(copy.to, copy.from, copy.length);
        copy.memory.reset();  // here, since unmapping takes long too
        bytes += copy.length;
        lock.lock();
        if (lane.copied.empty()) copied_lanes_.fetch_or(1u << number, std::memory_order_relaxed);
        lane.copied.push_back(std::move(copy));
    }
    return bytes != 0;
}

void ShmBackend::take_back(uint8_t number) {
    {
        Lane& lane = lanes_[number];
        const std::lock_guard lock(lane.mutex);
        std::swap(lane.copied, taken_);
        copied_lanes_.fetch_and(~(1u << number), std::memory_order_relaxed);
    }
    out_ -= taken_.size();
    for (const Copy& copy : taken_) {
        out_bytes_ -= copy.length;
        copy.channel->copied(*copy.slice);
    }
    taken_.clear();
}

}  // namespace rove::tent
