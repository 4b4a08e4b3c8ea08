// SPDX-License-Identifier: Apache-2.0
// Slices to rails: see rdma_channel.h. What becomes of the rails themselves is in rail_care.cc.
#include "tent/transports/rdma/rdma_channel.h"

#include <algorithm>
#include <cerrno>

#include "tent/transports/rdma/rdma_backend.h"

namespace rove::tent {

namespace {

constexpr uint32_t kBurst = 32;  // slices that a channel posts before others have their turn

uint8_t bit(Priority priority) {
    return static_cast<uint8_t>(1u << index(priority));
}

}  // namespace

RdmaChannel::RdmaChannel(RdmaBackend& backend, Core& core, Peer& peer, uint64_t now_ns)
    : Channel(core.config().rdma.queues),
      backend_(backend),
      core_(core),
      peer_(peer),
      opened_ns_(now_ns) {
    // A rail for each device of the end that has more of them. Devices of equal names belong together, others by their
    // places.
    const auto segment = peer.segment();
    const size_t locals = backend.devices().size(), remotes = segment->devices.size();
    for (size_t i = 0; i < std::max(locals, remotes); ++i) {
        auto rail = std::make_unique<Rail>(*this, core.config().rdma.rails);
        rail->local = static_cast<uint8_t>(i % locals);
        rail->remote = static_cast<uint8_t>(i % remotes);
        const std::string& name = backend.devices()[rail->local]->name();
        for (size_t j = 0; j < remotes && locals == remotes; ++j)
            if (segment->devices[j].name == name) rail->remote = static_cast<uint8_t>(j);
        rail->name = name + "-" + segment->devices[rail->remote].name;
        rail->down_ns = now_ns;
        backend.add_rail(*rail);
        rails_.push_back(std::move(rail));
    }
    for (const auto& rail : rails_) connect(*rail, {});
}

RdmaChannel::~RdmaChannel() = default;

bool RdmaChannel::idle() const {
    return jobs_ == 0 && std::all_of(rails_.begin(), rails_.end(), [](const auto& rail) { return rail->is_idle(); });
}

Rail* RdmaChannel::rail_of(uint8_t device) const {
    Rail* best = nullptr;
    const auto load = [](const Rail& rail) {
        return rail.posted_bytes[0] + rail.posted_bytes[1] + rail.posted_bytes[2];
    };
    for (const auto& rail : rails_) {
        if (rail->local != device || rail->state != Rail::State::kUp) continue;
        if (best == nullptr || load(*rail) < load(*best)) best = rail.get();
    }
    return best;
}

uint64_t RdmaChannel::usable_devices() const {
    uint64_t mask = 0;
    for (const auto& rail : rails_)
        if (rail->state == Rail::State::kUp) mask |= uint64_t{1} << rail->local;
    return mask;
}

bool RdmaChannel::has_room(const Rail& rail, const Slice& slice) const {
    const uint8_t priority = index(slice.priority);
    if (rail.posted[priority] >= core_.config().rdma.endpoint.max_qp_wr) return false;
    return rail.posted_up_to(slice.priority) < rail.window.bytes();
}

uint64_t RdmaChannel::devices_with_room(const Slice& slice) const {
    uint64_t mask = 0;
    for (const auto& rail : rails_)
        if (rail->state == Rail::State::kUp && has_room(*rail, slice)) mask |= uint64_t{1} << rail->local;
    return mask;
}

Slice* RdmaChannel::next(uint8_t allowed, uint64_t now_ns) {
    for (uint8_t i = 0; i < kPriorities; ++i) {
        if (held_[i] == nullptr || (allowed & 1u << i) == 0) continue;
        Slice* slice = held_[i];
        held_[i] = nullptr;
        return slice;
    }
    return static_cast<Slice*>(queues.pop(allowed, now_ns));
}

bool RdmaChannel::wants() const {
    if (!queues.empty()) return true;
    for (const Slice* slice : held_)
        if (slice != nullptr) return true;
    for (const auto& rail : rails_)
        if (rail->parked != nullptr) return true;
    return false;
}

bool RdmaChannel::dispatch(uint8_t allowed, uint64_t now_ns) {
    queues.promote(now_ns);
    uint32_t taken = 0;
    for (const auto& rail : rails_) {
        if (rail->parked == nullptr || (allowed & bit(rail->parked->priority)) == 0) continue;
        if (!has_room(*rail, *rail->parked)) continue;
        Slice& slice = *rail->parked;
        rail->parked = nullptr;
        if (!post(*rail, slice, now_ns)) rail->parked = &slice;
        ++taken;
    }
    while (allowed != 0 && taken < kBurst) {
        Slice* slice = next(allowed, now_ns);
        if (slice == nullptr) break;
        const Priority priority = slice->priority;
        stop_waiting_if_down(*slice);
        const uint8_t device = slice->device;
        const uint64_t charged = slice->waits_for_device ? slice->length : 0;
        const bool wanted = core_.is_wanted(*slice, now_ns);
        if (!wanted && charged != 0) backend_.selector().release(device, charged);
        const Fate fate = wanted ? place(*slice, now_ns) : Fate::kGone;
        if (fate == Fate::kWaits) {
            held_[index(priority)] = slice;
            allowed &= static_cast<uint8_t>(~bit(priority));
        } else {
            ++taken;
        }
    }
    return taken != 0;
}

bool RdmaChannel::choose(Slice& slice, uint64_t devices, uint64_t now_ns) {
    const uint64_t bytes[] = {slice.length};
    uint8_t chosen[1];
    if (devices == 0 || !backend_.selector()
                             .allocate(bytes, slice.task->local->numa_node, devices, slice.priority, now_ns, chosen)
                             .ok()) {
        return false;
    }
    slice.device = chosen[0];
    return true;
}

void RdmaChannel::stop_waiting_if_down(Slice& slice) {
    if (!slice.waits_for_device || rail_of(slice.device) != nullptr) return;
    slice.waits_for_device = false;
    backend_.selector().release(slice.device, slice.length);
}

RdmaChannel::Fate RdmaChannel::place(Slice& slice, uint64_t now_ns) {
    const uint64_t allowed = slice.task->selection.device_mask;
    if (!slice.waits_for_device && !choose(slice, usable_devices() & allowed, now_ns)) {
        if (is_hopeful(allowed, now_ns)) return Fate::kWaits;
        core_.move_elsewhere(slice, Transport::kRdma, now_ns);
        return Fate::kGone;
    }
    Rail& first = *rail_of(slice.device);
    // Round robin waits for the device whose turn it is; the smart one takes the best of those that have room.
    slice.waits_for_device = false;
    if (has_room(first, slice) && post(first, slice, now_ns)) return Fate::kPosted;
    if (first.parked == nullptr) {
        first.parked = &slice;
        return Fate::kPosted;
    }
    slice.waits_for_device = !core_.config().rdma.selector.enable_smart_scheduling;
    if (slice.waits_for_device) return Fate::kWaits;
    backend_.selector().release(slice.device, slice.length);
    if (!choose(slice, devices_with_room(slice) & allowed, now_ns)) return Fate::kWaits;
    if (post(*rail_of(slice.device), slice, now_ns)) return Fate::kPosted;
    backend_.selector().release(slice.device, slice.length);
    return Fate::kWaits;
}

bool RdmaChannel::post(Rail& rail, Slice& slice, uint64_t now_ns) {
    const Task& task = *slice.task;
    ibv_sge sge{.addr = reinterpret_cast<uint64_t>(slice.local),
                .length = static_cast<uint32_t>(slice.length),
                .lkey = task.local->regions[rail.local]->lkey};
    ++slice.tag;
    slice.tag &= 0x7FFFFFFF;
    ibv_send_wr wr{};
    wr.wr_id = RdmaBackend::slice_wr(slice);
    wr.sg_list = &sge;
    wr.num_sge = 1;
    wr.opcode = task.direction == Direction::kRead ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE;
    wr.send_flags = IBV_SEND_SIGNALED;
    wr.wr.rdma.remote_addr = slice.remote;
    wr.wr.rdma.rkey = task.remote->rkeys[rail.remote];
    ibv_send_wr* bad = nullptr;
    if (ibv_post_send(rail.connection->qp(slice.priority), &wr, &bad) != 0) return false;
    // It is on its way: what is written down now costs it no time.
    slice.mark = backend_.selector().post(slice.device, now_ns);
    if (rail.is_idle()) rail.heard_ns = now_ns;
    rail.append(slice);
    return true;
}

void RdmaChannel::completed(Slice& slice, uint64_t now_ns) {
    Rail& rail = *slice.rail;
    if (core_.config().rdma.selector.enable_smart_scheduling)
        rail.window.completed(slice.length, rail.posted_up_to(slice.priority), slice.mark.post_ns, now_ns,
                              rail.target_ns(slice.priority, now_ns));
    rail.remove(slice);
    backend_.selector().complete(slice.device, slice.length, slice.mark, now_ns);
    ++rail.counters.slices;
    (slice.task->direction == Direction::kRead ? rail.counters.read_bytes : rail.counters.write_bytes) += slice.length;
    hear(rail, now_ns);
    core_.done(slice);
}

void RdmaChannel::failed(Slice& slice, ibv_wc_status status, uint64_t now_ns) {
    Rail& rail = *slice.rail;
    ++rail.counters.errors;
    // The peer, or our own device, refuses this very request: it would be refused again. The other slices are tried
    // again.
    if (status == IBV_WC_REM_ACCESS_ERR || status == IBV_WC_REM_INV_REQ_ERR || status == IBV_WC_LOC_PROT_ERR ||
        status == IBV_WC_LOC_LEN_ERR) {
        rail.remove(slice);
        backend_.selector().release(slice.device, slice.length);
        peer_.stale.store(true);
        core_.fail(slice);
    }
    rail.health.on_error(now_ns);
    give_up(rail, now_ns);
}

void RdmaChannel::abandon(uint64_t now_ns) {
    available_.store(false, std::memory_order_relaxed);
    for (const auto& rail : rails_) {
        for (Slice* slice = rail->oldest; slice != nullptr; slice = slice->after) slice->task->failed = true;
        if (rail->parked != nullptr) rail->parked->task->failed = true;
        if (rail->connection != nullptr) give_up(*rail, now_ns);
    }
    while (Slice* slice = next(0xFF, now_ns)) {
        stop_waiting_if_down(*slice);  // they all are
        core_.fail(*slice);
    }
}

void RdmaChannel::revive(uint64_t now_ns) {
    for (const auto& rail : rails_) {
        rail->retry_ns = now_ns;
        rail->refusals = 0;
        rail->ever_up = false;
        rail->down_ns = now_ns;
    }
    available_.store(true, std::memory_order_relaxed);
}

}  // namespace rove::tent
