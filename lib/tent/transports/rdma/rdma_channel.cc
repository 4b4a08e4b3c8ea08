// SPDX-License-Identifier: Apache-2.0
// Places slices on rails; see rdma_channel.h. The care for the rails themselves is in rail_care.cc.
#include "tent/transports/rdma/rdma_channel.h"

#include <algorithm>
#include <bit>
#include <cerrno>

#include "tent/transports/rdma/rdma_backend.h"

namespace rove::tent {

namespace {

constexpr uint32_t kBurst = 32;  // slices that a channel posts before others have their turn

constexpr uint64_t bit(uint8_t device) {
    return uint64_t{1} << device;
}

}  // namespace

RdmaChannel::RdmaChannel(RdmaBackend& backend, Shard& shard, Peer& peer, uint64_t now_ns)
    : Channel(shard.config().queues), backend_(backend), shard_(shard), peer_(peer), opened_ns_(now_ns) {
    // Makes a rail for each device of the end with more devices. Devices of equal names belong together, and others by
    // their places in the lists. All other pairs are spare.
    const auto segment = peer.segment();
    const size_t locals = backend.devices().size(), remotes = segment->devices.size();
    const auto is_pair = [&](size_t local, size_t remote) {
        if (locals > remotes) return local % remotes == remote;
        if (locals < remotes) return remote % locals == local;
        const std::string& name = backend.devices()[local]->name();
        for (size_t i = 0; i < remotes; ++i)
            if (segment->devices[i].name == name) return i == remote;
        return local == remote;
    };
    for (const bool spare : {false, true}) {
        for (size_t local = 0; local < locals; ++local) {
            for (size_t remote = 0; remote < remotes; ++remote) {
                if (is_pair(local, remote) == spare) continue;
                auto rail = std::make_unique<Rail>(shard.config().rdma.rails, this);
                rail->local = static_cast<uint8_t>(local);
                rail->remote = static_cast<uint8_t>(remote);
                rail->name = backend.devices()[local]->name() + "-" + segment->devices[remote].name;
                rail->is_spare = spare;
                rail->down_ns = now_ns;
                backend.add_rail(*rail);
                rails_.push_back(std::move(rail));
            }
        }
        if (!spare) pairs_ = rails_.size();
    }
    for (const auto& rail : in_use()) connect(*rail, {});
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
    for (const auto& rail : in_use()) {
        if (rail->local != device || rail->state != Rail::State::kUp) continue;
        if (best == nullptr || load(*rail) < load(*best)) best = rail.get();
    }
    return best;
}

uint64_t RdmaChannel::usable_devices() const {
    uint64_t mask = 0;
    for (const auto& rail : in_use())
        if (rail->state == Rail::State::kUp) mask |= uint64_t{1} << rail->local;
    return mask;
}

bool RdmaChannel::has_room(const Rail& rail, uint8_t priority) const {
    if (rail.posted[priority] >= shard_.config().rdma.endpoint.max_qp_wr) return false;
    if (!rail.credits->has_room(priority)) return false;
    if (rail.posted_up_to(static_cast<Priority>(priority)) >= rail.window.bytes()) return false;
    if (priority == 0) return true;
    // While a higher priority is in use, all rails of a port together may have as many bytes in flight as this one
    // alone.
    const uint64_t now_ns = shard_.latest_ns();
    const uint8_t used = shard_.first_in_use(now_ns);
    if (used >= priority) return true;
    const auto least = static_cast<Priority>(priority);
    return std::max(rail.posted_behind(used, least), rail.recent->behind(used, least, now_ns)) < rail.beside.bytes();
}

uint64_t RdmaChannel::devices_with_room(uint8_t priority) const {
    uint64_t mask = 0;
    for (const auto& rail : in_use())
        if (rail->state == Rail::State::kUp && has_room(*rail, priority)) mask |= bit(rail->local);
    return mask;
}

uint8_t RdmaChannel::levels() const {
    uint8_t levels = queues.levels();
    for (uint8_t i = 0; i < kPriorities; ++i) levels |= static_cast<uint8_t>((parked_[i] != 0) << i);
    return levels;
}

Reason RdmaChannel::why_nothing_moves() const {
    return usable_devices() == 0 ? Reason::kNoRail : Reason::kNoProgress;
}

uint32_t RdmaChannel::dispatch_parked(uint8_t priority, uint64_t now_ns) {
    uint32_t taken = 0;
    for (const auto& rail : in_use()) {
        Slice* slice = rail->parked[priority];
        if (slice == nullptr) continue;
        if (!shard_.is_wanted(*slice)) {
            backend_.selector().release(rdma(*slice).device, slice->length);
            shard_.drop(*slice);
        } else if (!has_room(*rail, priority) || !post(*rail, *slice, now_ns)) {
            continue;
        }
        rail->parked[priority] = nullptr;
        --parked_[priority];
        ++taken;
    }
    return taken;
}

Channel::Dispatched RdmaChannel::dispatch(uint8_t level, uint8_t allowed, uint64_t now_ns) {
    uint32_t taken = 0;
    if (parked_[level] != 0 && (allowed >> level & 1) != 0) taken = dispatch_parked(level, now_ns);
    while (taken < kBurst) {
        Waiting* waiting = queues.first(level, allowed);
        if (waiting == nullptr) return {.moved = taken != 0};
        // A promoted slice does not overtake parked slices of its own priority.
        const uint8_t priority = index(waiting->priority);
        if (priority != level && parked_[priority] != 0) taken += dispatch_parked(priority, now_ns);
        auto& task = static_cast<Task&>(*waiting);
        auto& slice = static_cast<Slice&>(*waiting->first);
        if (shard_.is_wanted(slice)) {
            const Fate fate = place(task, slice, now_ns);
            if (fate == Fate::kWaits) return {.moved = taken != 0};
            if (fate == Fate::kNowhere) {
                const bool waits = may_come_up(task.selection.device_mask, now_ns) ||
                                   (may_return() && !shard_.has_another(task, Transport::RDMA));
                if (waits) return {.moved = taken != 0};
                shard_.move_waiting(task, Transport::RDMA, now_ns);
            } else {
                queues.take(task, now_ns);
            }
        } else {
            queues.take(task, now_ns);
            if (task.shares != nullptr && task.shares->devices != 0) give_back_share(task);
            shard_.drop(slice);
        }
        ++taken;
    }
    return {.moved = true, .more = true};
}

bool RdmaChannel::carry_at_once(Task& task, uint64_t now_ns) {
    const Fate fate = place(task, static_cast<Slice&>(*task.first), now_ns);
    if (fate == Fate::kParked) backend_.activate(*this);
    if (fate != Fate::kPosted && fate != Fate::kParked) return false;
    task.first = nullptr;
    task.count = 0;
    return true;
}

bool RdmaChannel::choose(Slice& slice, uint64_t devices, uint64_t among, uint64_t now_ns) {
    DeviceSelector& selector = backend_.selector();
    if (std::has_single_bit(devices)) {  // no choice
        if ((devices & among & selector.up_mask()) == 0) return false;
        rdma(slice).device = static_cast<uint8_t>(std::countr_zero(devices));
        selector.charge(rdma(slice).device, slice.length);
        return true;
    }
    const uint64_t bytes[] = {slice.length};
    uint8_t chosen[1];
    const Task& task = *slice.task;
    uint8_t there[DeviceSelector::kMaxDevices];
    if (!selector
             .allocate(bytes, task.local->numa_node, devices, task.priority, now_ns, chosen, among,
                       ranks_there(*task.remote, there))
             .ok())
        return false;
    rdma(slice).device = chosen[0];
    return true;
}

const uint8_t* RdmaChannel::ranks_there(const BufferDesc& remote, uint8_t* by_device) const {
    if (remote.ranks.empty()) return nullptr;
    std::fill_n(by_device, backend_.devices().size(), uint8_t{0});
    for (const auto& rail : in_use())
        if (rail->state == Rail::State::kUp) by_device[rail->local] = remote.ranks[rail->remote];
    return by_device;
}

RdmaChannel::Fate RdmaChannel::place(Task& task, Slice& slice, uint64_t now_ns) {
    const uint8_t priority = index(task.priority);
    const uint64_t usable = usable_devices() & task.selection.device_mask;
    if (usable == 0) return Fate::kNowhere;
    const SelectorConfig& config = shard_.config().rdma.selector;
    if (!task.is_allotted) {
        task.is_allotted = true;
        if (!config.enable_smart_scheduling || (task.count > 1 && config.batch_policy == BatchPolicy::kInverseScore))
            allot(task, usable, now_ns);
    }
    const bool has_share = task.shares != nullptr && task.shares->devices != 0;
    if (has_share) {
        if ((task.shares->devices & ~usable) != 0) drop_shares(task, ~usable);
        const uint64_t roomy = devices_with_room(priority) & usable;
        const uint64_t own = task.shares->devices & roomy & backend_.selector().eligible(usable, task.priority, now_ns);
        if (own != 0) {
            rdma(slice).device = static_cast<uint8_t>(std::countr_zero(own));
            if (!post(*rail_of(rdma(slice).device), slice, now_ns)) return Fate::kWaits;
            take_share(task, slice);
            return Fate::kPosted;
        }
        if (roomy == 0 || (!config.enable_smart_scheduling && task.shares->devices != 0)) return Fate::kWaits;
    }
    if (!choose(slice, usable, DeviceSelector::kAllDevices, now_ns)) return Fate::kNowhere;
    Rail* rail = rail_of(rdma(slice).device);
    if (has_room(*rail, priority) && post(*rail, slice, now_ns)) {
        if (has_share && task.shares->devices != 0) ++backend_.allotments[give_back_share(task)].placed_anew;
        return Fate::kPosted;
    }
    if (!has_share && rail->parked[priority] == nullptr) {
        rail->parked[priority] = &slice;
        ++parked_[priority];
        return Fate::kParked;
    }
    backend_.selector().release(rdma(slice).device, slice.length);
    if (has_share || !choose(slice, usable, devices_with_room(priority), now_ns)) return Fate::kWaits;
    if (post(*rail_of(rdma(slice).device), slice, now_ns)) return Fate::kPosted;
    backend_.selector().release(rdma(slice).device, slice.length);
    return Fate::kWaits;
}

void RdmaChannel::allot(Task& task, uint64_t devices, uint64_t now_ns) {
    std::vector<uint64_t>& lengths = backend_.lengths();
    std::vector<uint8_t>& chosen = backend_.chosen();
    lengths.clear();
    for (const Queued* one = task.first; one != nullptr; one = one->next)
        lengths.push_back(static_cast<const Slice*>(one)->length);
    chosen.resize(lengths.size());
    // Allots the slices to all devices, as for HIGH: the devices that a lower priority may use change many times before
    // its last slice.
    uint8_t there[DeviceSelector::kMaxDevices];
    if (!backend_.selector()
             .allocate(lengths, task.local->numa_node, devices, Priority::kHigh, now_ns, chosen,
                       DeviceSelector::kAllDevices, ranks_there(*task.remote, there))
             .ok())
        return;
    if (task.shares == nullptr) task.shares = std::make_unique<Shares>();
    Shares& shares = *task.shares;
    for (size_t i = 0; i < chosen.size(); ++i) {
        if ((shares.devices & bit(chosen[i])) == 0) {
            shares.slices[chosen[i]] = 0;
            shares.bytes[chosen[i]] = 0;
            shares.devices |= bit(chosen[i]);
        }
        ++shares.slices[chosen[i]];
        ++backend_.allotments[chosen[i]].allotted;
        shares.bytes[chosen[i]] += lengths[i];
    }
}

void RdmaChannel::take_share(Task& task, const Slice& slice) {
    Shares& shares = *task.shares;
    uint64_t& bytes = shares.bytes[rdma(slice).device];
    const bool is_last = --shares.slices[rdma(slice).device] == 0;
    const uint64_t planned = is_last ? bytes : std::min(bytes, slice.length);
    bytes -= planned;
    if (is_last) shares.devices &= ~bit(rdma(slice).device);
    if (planned > slice.length) backend_.selector().release(rdma(slice).device, planned - slice.length);
    if (planned < slice.length) backend_.selector().charge(rdma(slice).device, slice.length - planned);
}

uint8_t RdmaChannel::give_back_share(Task& task) {
    Shares& shares = *task.shares;
    auto most = static_cast<uint8_t>(std::countr_zero(shares.devices));
    for (uint64_t rest = shares.devices; rest != 0; rest &= rest - 1) {
        const auto device = static_cast<uint8_t>(std::countr_zero(rest));
        if (shares.bytes[device] > shares.bytes[most]) most = device;
    }
    const uint64_t bytes = shares.bytes[most] / shares.slices[most];
    shares.bytes[most] -= bytes;
    backend_.selector().release(most, bytes);
    if (--shares.slices[most] == 0) shares.devices &= ~bit(most);
    return most;
}

void RdmaChannel::drop_shares(Task& task, uint64_t devices) {
    for (uint64_t rest = task.shares->devices & devices; rest != 0; rest &= rest - 1) {
        const auto device = static_cast<uint8_t>(std::countr_zero(rest));
        backend_.selector().release(device, task.shares->bytes[device]);
    }
    task.shares->devices &= ~devices;
}

void RdmaChannel::leave(Task& task) {
    if (task.shares != nullptr) drop_shares(task, DeviceSelector::kAllDevices);
}

bool RdmaChannel::post(Rail& rail, Slice& slice, uint64_t now_ns) {
    const Task& task = *slice.task;
    ibv_sge sge{.addr = reinterpret_cast<uint64_t>(slice.local),
                .length = static_cast<uint32_t>(slice.length),
                .lkey = task.local->registered[rail.local].lkey};
    ++rdma(slice).tag;
    rdma(slice).tag &= 0x7FFFFFFF;
    ibv_send_wr wr{};
    wr.wr_id = RdmaBackend::slice_wr(slice);
    wr.sg_list = &sge;
    wr.num_sge = 1;
    wr.opcode = task.is_write ? IBV_WR_RDMA_WRITE : IBV_WR_RDMA_READ;
    wr.send_flags = IBV_SEND_SIGNALED;
    wr.wr.rdma.remote_addr = slice.remote;
    wr.wr.rdma.rkey = task.remote->rkeys[rail.remote];
    ibv_send_wr* bad = nullptr;
    if (ibv_post_send(rail.connection->qp(task.priority), &wr, &bad) != 0) return false;
    // The slice is in flight already, so the bookkeeping does not delay it.
    rdma(slice).mark = backend_.selector().post(rdma(slice).device, now_ns);
    if (rail.is_idle()) rail.wait_from(now_ns);
    rail.append(slice);
    return true;
}

void RdmaChannel::completed(Slice& slice, uint64_t now_ns) {
    Rail& rail = *rdma(slice).rail;
    const Priority priority = slice.task->priority;
    const SelectorConfig& config = shard_.config().rdma.selector;
    if (config.enable_smart_scheduling) {
        const uint64_t post_ns = rdma(slice).mark.post_ns;
        const uint8_t used = priority != Priority::kHigh ? shard_.first_in_use(now_ns) : index(priority);
        if (slice.length >= config.block_size) rail.beside.saw(now_ns - post_ns, now_ns);
        if (used < index(priority)) {
            const uint64_t posted = rail.recent->behind(used, priority, now_ns);
            rail.beside.completed(slice.length, posted, post_ns, now_ns);
        } else {
            rail.window.completed(slice.length, rail.posted_up_to(priority), post_ns, now_ns);
        }
    }
    rail.remove(slice);
    backend_.selector().complete(rdma(slice).device, slice.length, rdma(slice).mark, now_ns);
    ++rail.counters.slices;
    (slice.task->is_write ? rail.counters.write_bytes : rail.counters.read_bytes) += slice.length;
    note_answer(rail, now_ns);
    rail.succeeded();
    shard_.done(slice);
    if (rail.state == Rail::State::kDraining) finish_draining(rail, now_ns);
}

void RdmaChannel::failed(Slice& slice, ibv_wc_status status, uint64_t now_ns) {
    Rail& rail = *rdma(slice).rail;
    ++rail.counters.errors;
    const bool refused_there = status == IBV_WC_REM_ACCESS_ERR || status == IBV_WC_REM_INV_REQ_ERR;
    const bool flushed = status == IBV_WC_WR_FLUSH_ERR && rail.state == Rail::State::kDraining;
    // The peer or the local device refuses this particular request. The other slices are tried again.
    if (refused_there || status == IBV_WC_LOC_PROT_ERR || status == IBV_WC_LOC_LEN_ERR) {
        rail.remove(slice);
        backend_.selector().release(rdma(slice).device, slice.length);
        status == IBV_WC_REM_ACCESS_ERR ? shard_.refused(slice) : shard_.fail(slice, Reason::kRefused);
    }
    // The peer's QP is in the error state too: requests behind the refused one were not carried out, and will not be.
    // The QPs of other priorities are not affected and finish their requests.
    if (refused_there || flushed) {
        if (flushed) {
            rail.remove(slice);
            backend_.selector().release(rdma(slice).device, slice.length);
            shard_.retry(slice, now_ns);
        }
        if (rail.state == Rail::State::kUp) {
            rail.state = Rail::State::kDraining;
            take_back_parked(rail, now_ns);
        }
        finish_draining(rail, now_ns);
        return;
    }
    if (rail.count_error(now_ns)) rail.put_to_rest(now_ns);
    give_up(rail, now_ns);
}

void RdmaChannel::finish_draining(Rail& rail, uint64_t now_ns) {
    if (rail.is_idle()) give_up(rail, now_ns);
}

void RdmaChannel::abandon(uint64_t now_ns) {
    available_.store(false, std::memory_order_relaxed);
    const auto fail = [](Task& task) {
        if (!task.failed) task.reason = Reason::kPeerGone;
        task.failed = true;
    };
    for (const auto& rail : rails_) {
        for (Slice* slice = rail->oldest; slice != nullptr; slice = rdma(*slice).after) fail(*slice->task);
        for (Slice* slice : rail->parked)
            if (slice != nullptr) fail(*slice->task);
        if (rail->connection != nullptr) give_up(*rail, now_ns);
    }
    for (uint8_t level = 0; level < kPriorities; ++level)
        while (Waiting* waiting = queues.first(level, 0xFF))
            shard_.fail_waiting(static_cast<Task&>(*waiting), Reason::kPeerGone);
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
