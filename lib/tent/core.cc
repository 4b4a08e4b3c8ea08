// SPDX-License-Identifier: Apache-2.0
// See core.h.
#include "tent/core.h"

#include <sched.h>

#include <algorithm>
#include <bit>
#include <utility>

#include "tent/clock.h"
#include "tent/log.h"
#include "tent/merging.h"

namespace rove::tent {

void Core::try_drive() {
    drives_.store(drives_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    thread_local uint32_t failures = 0;
    std::unique_lock lock(drive_, std::try_to_lock);
    if (!lock.owns_lock()) {
        // Whoever drives may be waiting for our core, perhaps since we woke up on it.
        if (++failures % kFailuresBeforeYield == 0) sched_yield();
        return;
    }
    // Most looks find nothing: for them not even the clock is read, and some are taken at a call, which costs more than
    // they do. Whoever drives so seldom that this matters has the background thread.
    const auto quiet = [](const auto& backend) { return backend == nullptr || backend->quiet(); };
    for (uint32_t i = 0; i < kLooks; ++i) {
        if (++polls_ % kQuickPolls != 0 && std::all_of(backends_.begin(), backends_.end(), quiet)) continue;
        const uint64_t now_ns = monotonic_ns();
        round(now_ns);
        lock.unlock();
        if (slots_ != nullptr) slots_->make_way(now_ns);
        return;
    }
}

void Core::dispatch(uint32_t transports, uint64_t now_ns) {
    latest_ns_ = std::max(now_ns, latest_ns_);
    move(transports, latest_ns_);
}

bool Core::move(uint32_t transports, uint64_t now_ns) {
    std::array<uint8_t, kTransports> levels{};
    uint8_t any = 0;
    for (uint32_t rest = transports; rest != 0; rest &= rest - 1) {
        const auto i = static_cast<size_t>(std::countr_zero(rest));
        any |= levels[i] = backends_[i]->collect(now_ns);
    }
    if (any == 0) return false;
    const uint8_t allowed = this->allowed(now_ns);
    bool moved = false, more = false;
    for (uint8_t level = 0; level < kPriorities && !more; ++level) {
        if ((any >> level & 1) == 0) continue;
        for (uint32_t rest = transports; rest != 0; rest &= rest - 1) {
            const auto i = static_cast<size_t>(std::countr_zero(rest));
            if ((levels[i] >> level & 1) == 0) continue;
            const Channel::Dispatched result = backends_[i]->dispatch(level, allowed, now_ns);
            moved |= result.moved;
            more |= result.more;
        }
    }
    return moved;
}

void Core::with_lock(const std::function<void()>& work) {
    const std::lock_guard lock(drive_);
    const uint64_t now_ns = monotonic_ns();
    for (const auto& backend : backends_)
        if (backend != nullptr) backend->collect(now_ns);  // so that what was submitted is where it is looked for
    work();
    latest_ns_ = std::max(monotonic_ns(), latest_ns_);
}

bool Core::background_round(uint64_t* deadline_ns) {
    bool moved = false;
    const std::lock_guard lock(drive_);
    const uint64_t now_ns = monotonic_ns();
    moved = round(now_ns);
    *deadline_ns = kNever;
    for (const auto& backend : backends_)
        if (backend != nullptr) *deadline_ns = std::min(*deadline_ns, backend->next_deadline(now_ns));
    return moved;
}

bool Core::round(uint64_t now_ns) {
    latest_ns_ = now_ns = std::max(now_ns, latest_ns_);  // another thread's clock may be ahead of ours
    bool moved = false;
    uint32_t transports = 0;
    for (size_t i = 0; i < kTransports; ++i) {
        if (backends_[i] == nullptr) continue;
        transports |= 1u << i;
        moved |= backends_[i]->progress(now_ns);
    }
    if (now_ns - deadlines_ns_ >= kDeadlinesNs) look_at_deadlines(now_ns);
    moved |= move(transports, now_ns);
    if (freed_first_ != nullptr) {
        pool_.give(freed_first_, freed_last_);
        freed_first_ = freed_last_ = nullptr;
    }
    return moved;
}

void Core::begin(Task& task, uint64_t now_ns) {
    tasks_.begin();  // in order with what Background::wake() looks at
    if (slots_ != nullptr) slots_->add_pending(task.priority, task.bytes, now_ns);
    if (task.deadline_ns == kNever) return;
    const std::lock_guard lock(dated_mutex_);
    dated_.emplace(task.deadline_ns, &task);
    dated_count_.store(dated_.size(), std::memory_order_relaxed);
}

uint8_t Core::allowed(uint64_t now_ns) const {
    constexpr uint8_t kAll = (1 << kPriorities) - 1;
    if (slots_ == nullptr) return kAll;
    uint8_t bits = 0;
    for (uint8_t i = 0; i < kPriorities; ++i)
        if (slots_->can_send(static_cast<Priority>(i), now_ns)) bits |= static_cast<uint8_t>(1u << i);
    return bits;
}

bool Core::is_wanted(const Slice& slice) const {
    return !slice.task->failed && !slice.task->timed_out && !is_canceled(slice);
}

bool Core::is_canceled(const Slice& slice) const {
    const uint64_t end = slice.remote + slice.length;
    for (const Task* part = slice.part; part != nullptr && part->target < end; part = part->next_part)
        if (!part->canceled.load(std::memory_order_relaxed)) return false;
    return true;
}

void Core::done(Slice& slice) {
    Task& task = *slice.task;
    TransportCounters& counters = transports[static_cast<size_t>(task.selection.transport)];
    ++counters.slices;
    task.progress_ns = latest_ns_;
    (task.direction == Direction::kRead ? counters.read_bytes : counters.write_bytes) += slice.length;
    if (slots_ != nullptr) {
        SlotCounters& slot = slot_counters[slots_->slot_at(latest_ns_)];
        ++slot.slices;
        slot.bytes += slice.length;
    }
    const uint64_t end = slice.remote + slice.length;
    for (Task* part = slice.part; part != nullptr && part->target < end; part = part->next_part) {
        const uint64_t bytes = std::min(part->target + part->bytes, end) - std::max(part->target, slice.remote);
        part->transferred.store(part->transferred.load(std::memory_order_relaxed) + bytes, std::memory_order_relaxed);
    }
    release(slice);
}

void Core::fail(Slice& slice, Reason reason) {
    if (!slice.task->failed) slice.task->reason = reason;
    slice.task->failed = true;
    release(slice);
}

void Core::refused(Slice& slice) {
    if (slice.was_refused) return fail(slice, Reason::kRefused);
    Task& task = *slice.task;
    slice.was_refused = true;
    slice.next = task.refused;
    task.refused = &slice;
    if (slice.next == nullptr) refresh(task);
}

void Core::refreshed(Task& task, std::shared_ptr<const SegmentDesc> segment) {
    const BufferDesc* remote = segment == nullptr ? nullptr : segment->find(task.target, carried_bytes(task));
    if (remote != nullptr && task.direction == Direction::kWrite && !remote->writable) remote = nullptr;
    if (remote != nullptr) {
        task.segment = std::move(segment);
        task.remote = task.context.remote = remote;
    }
    Backend& backend = *backends_[static_cast<size_t>(task.selection.transport)];
    for (Slice *slice = std::exchange(task.refused, nullptr), *next; slice != nullptr; slice = next) {
        next = static_cast<Slice*>(slice->next);  // the task ends with the last of them that fails
        if (remote != nullptr) {
            backend.put_back(task, *slice, monotonic_ns());
        } else {
            fail(*slice, Reason::kRefused);
        }
    }
}

void Core::retry(Slice& slice, uint64_t now_ns) {
    const Transport transport = slice.task->selection.transport;
    if (++slice.attempts > config_.rdma.max_retry_count) {
        move_elsewhere(slice, transport, now_ns);
        return;
    }
    ++transports[static_cast<size_t>(transport)].retries;
    backends_[static_cast<size_t>(transport)]->put_back(*slice.task, slice, now_ns);
}

void Core::move_elsewhere(Slice& slice, Transport from, uint64_t now_ns) {
    Task& task = *slice.task;
    // The first slice that fails moves the task, with what waits of it; those under way follow.
    Queued* waiting = nullptr;
    if (task.selection.transport == from) {
        Channel& channel = *task.peer->channel(from);
        if (++task.failovers > config_.max_failover_attempts) return fail(slice, Reason::kNoTransport);
        task.context.excluded |= 1u << static_cast<unsigned>(from);
        task.context.hint = Transport::kUnspec;
        static LogLimit limit;
        if (!selector_->select(task.context, 0, &task.selection).ok()) {
            log(limit, LogLevel::kWarning, "segment '%s': %s fails a request, and nothing else can carry it",
                task.peer->name().c_str(), name(from));
            return fail(slice, Reason::kNoTransport);
        }
        log(limit, LogLevel::kWarning, "segment '%s': %s fails a request of %s priority, which goes on by %s",
            task.peer->name().c_str(), name(from), name(task.priority), name(task.selection.transport));
        channel.leave(task);
        if (task.level != Waiting::kNowhere) waiting = channel.queues.take_all(task);
    }
    Backend& to = *backends_[static_cast<size_t>(task.selection.transport)];
    slice.next = waiting;
    for (Queued *one = &slice, *next; one != nullptr; one = next) {
        next = one->next;
        ++transports[static_cast<size_t>(from)].failovers;
        static_cast<Slice*>(one)->attempts = 0;
        to.put_back(task, *one, now_ns);
    }
}

void Core::move_waiting(Task& task, Transport from, uint64_t now_ns) {
    Channel& channel = *task.peer->channel(from);
    auto* slice = static_cast<Slice*>(channel.queues.take(task, now_ns));
    move_elsewhere(*slice, from, now_ns);
}

void Core::fail_waiting(Task& task, Reason reason) {
    if (!task.failed) task.reason = reason;
    task.failed = true;
    drop_waiting(task);
}

void Core::time_out(Task& task, Reason reason) {
    if (!task.failed && !task.timed_out) task.reason = reason;
    task.timed_out = true;
    if (task.level != Waiting::kNowhere) drop_waiting(task);
}

void Core::drop_waiting(Task& task) {
    Channel& channel = *task.peer->channel(task.selection.transport);
    channel.leave(task);
    for (Queued *one = channel.queues.take_all(task), *next; one != nullptr; one = next) {
        next = one->next;
        release(static_cast<Slice&>(*one));
    }
}

Task* Core::first_late(uint64_t now_ns) {
    if (dated_count_.load(std::memory_order_relaxed) == 0) return nullptr;
    const std::lock_guard lock(dated_mutex_);
    for (auto at = dated_.begin(); at != dated_.end() && at->first <= now_ns; ++at)
        if (!at->second->timed_out) return at->second;
    return nullptr;
}

void Core::look_at_deadlines(uint64_t now_ns) {
    deadlines_ns_ = now_ns;
    while (Task* task = first_late(now_ns)) time_out(*task, Reason::kDeadline);
    if (now_ns < max_timeout_ns()) return;
    const uint64_t before_ns = now_ns - max_timeout_ns();
    for (const auto& backend : backends_) {
        if (backend == nullptr) continue;
        while (auto* task = static_cast<Task*>(backend->stuck(before_ns))) {
            if (task->progress_ns > before_ns) {  // what is under way of it gets on
                task->since_ns = task->progress_ns;
            } else if (slots_ != nullptr && !slots_->can_send(task->priority, now_ns)) {
                time_out(*task, Reason::kSlotsClosed);
            } else {
                time_out(*task, task->peer->channel(task->selection.transport)->why_nothing_moves());
            }
        }
    }
}

void Core::drop_fence(Task& task, bool closed) {
    if (!closed && !task.failed) {
        task.failed = true;
        task.reason = Reason::kNotConfirmed;
    }
    if (--task.fences == 0 && task.slices_left == 0) finish(task);
}

void Core::release(Slice& slice) {
    Task& task = *slice.task;
    slice.task = nullptr;
    slice.next = freed_first_;
    freed_first_ = &slice;
    if (freed_last_ == nullptr) freed_last_ = &slice;
    if (--task.slices_left == 0 && task.fences == 0) finish(task);
}

void Core::finish(Task& leader) {
    for (Task *part = &leader, *next; part != nullptr; part = next) {
        next = part->next_part;  // all parts are of one batch, which lasts until the last of them is final
        part->failed = leader.failed;
        part->timed_out = leader.timed_out;
        part->reason = leader.reason;
        finish_one(*part);
    }
}

void Core::finish_one(Task& task) {
    PriorityCounters& counters = priorities[index(task.priority)];
    const bool whole = task.transferred.load(std::memory_order_relaxed) == task.bytes;
    TransferState state = TransferState::kCompleted;
    if (task.failed) {
        state = TransferState::kFailed;
        ++counters.failed;
    } else if (task.timed_out && !whole) {
        state = TransferState::kTimeout;
        ++counters.timed_out;
    } else if (!whole) {
        state = TransferState::kCanceled;
        ++counters.canceled;
    } else {
        task.reason = Reason::kNone;
        ++counters.requests;
        counters.bytes += task.bytes;
        RequestHistograms& seen = histograms[index(task.priority)][static_cast<size_t>(task.selection.transport)];
        seen.latency_ns.add(latest_ns_ - std::min(latest_ns_, task.submitted_ns));
        seen.bytes.add(task.bytes);
    }
    if (slots_ != nullptr) slots_->remove_pending(task.priority, task.bytes, monotonic_ns());
    if (task.deadline_ns != kNever) {
        const std::lock_guard lock(dated_mutex_);
        auto [at, end] = dated_.equal_range(task.deadline_ns);
        while (at != end && at->second != &task) ++at;
        if (at != end) dated_.erase(at);
        dated_count_.store(dated_.size(), std::memory_order_relaxed);
    }
    tasks_.finish();
    task.peer->tasks.finish();
    task.local->tasks.finish();
    if (task.peer->is_file()) {  // which is open while somebody knows it
        task.segment.reset();
        task.peer.reset();
    }
    const std::shared_ptr<Announcement> announcement = std::move(task.announcement);
    Batch& batch = *task.batch;
    task.state.store(state, std::memory_order_release);
    if (announcement != nullptr && state == TransferState::kCompleted && --announcement->tasks_left == 0)
        announce(announcement);
    if (batch.users.fetch_sub(1) == 1) recycle(batch);
}

}  // namespace rove::tent
