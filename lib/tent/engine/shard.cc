// SPDX-License-Identifier: Apache-2.0
// See shard.h.
#include "tent/engine/shard.h"

#include <sched.h>
#include <sys/resource.h>
#include <time.h>

#include <algorithm>
#include <bit>
#include <utility>

#include "tent/engine/clock.h"
#include "tent/engine/core.h"
#include "tent/engine/merging.h"
#include "tent/observability/log.h"

namespace rove::tent {

namespace {

struct ThreadUse {
    uint64_t ran_ns = 0;
    uint64_t sleeps = 0;  // times that it gave its core up because it had to wait
};

ThreadUse use_of_thread() {
    rusage usage{};  // its times are as old as the last tick
    getrusage(RUSAGE_THREAD, &usage);
    timespec ran{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ran);
    return {static_cast<uint64_t>(ran.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(ran.tv_nsec),
            static_cast<uint64_t>(usage.ru_nvcsw)};
}

}  // namespace

const ::rove::tent::Config& Shard::config() const {
    return core_.config();
}

Jobs& Shard::jobs() {
    return core_.jobs();
}

SlicePool& Shard::pool() {
    return core_.pool();
}

uint64_t Shard::next_number() {
    return core_.next_number();
}

const Credentials& Shard::credentials() const {
    return core_.credentials();
}

void Shard::add_backend(std::unique_ptr<Backend> backend) {
    by_transport_[static_cast<size_t>(backend->transport())] = backend.get();
    backends_.push_back(std::move(backend));
}

void Shard::try_drive() {
    drive();
    if (core_.shards().size() == 1) return;
    thread_local uint32_t calls = 0;
    if (is_kept_back_.load(std::memory_order_relaxed)) {
        core_.help(number_);
    } else if (++calls % kOthers == 0) {
        core_.look_after_another(number_);
    }
}

void Shard::drive() {
    thread_local uint32_t failures = 0;
    Lock lock = try_lock();
    if (!lock.owns_lock()) {
        work_unlocked();
        // The holder of the lock may wait for this core, which the thread may have taken when it woke up.
        if (++failures % kFailuresBeforeYield == 0) sched_yield();
        return;
    }
    drives_.store(drives_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    // Most rounds find nothing. They do not even read the clock, and several are made in one call, which costs more
    // than they do. A program that calls so seldom that this matters relies on the background thread.
    const auto is_idle = [](const auto& backend) { return backend->is_idle(); };
    for (uint32_t i = 0; i < kLooks; ++i) {
        if (++polls_ % kQuickPolls != 0 && std::all_of(backends_.begin(), backends_.end(), is_idle)) continue;
        const uint64_t now_ns = locked();
        round(now_ns);
        unlock(lock, now_ns);
        work_unlocked();
        if (core_.slots() != nullptr) core_.slots()->yield_core(now_ns);
        return;
    }
}

uint64_t Shard::locked() {
    if (++holds_ % kSampled == 0) begin_sample();
    return monotonic_ns();
}

void Shard::unlock(Lock& lock, uint64_t since_ns) {
    const uint64_t now_ns = monotonic_ns();
    held_ns.add(now_ns - std::min(now_ns, since_ns));
    if (is_sampled_) end_sample();
    lock.unlock();
}

void Shard::begin_sample() {
    const ThreadUse use = use_of_thread();
    sample_ran_ns_ = use.ran_ns;
    sample_sleeps_ = use.sleeps;
    is_sampled_ = true;
}

void Shard::end_sample() {
    const ThreadUse use = use_of_thread();
    ran_ns.add(use.ran_ns - sample_ran_ns_);
    slept += use.sleeps != sample_sleeps_ ? 1 : 0;
    is_sampled_ = false;
}

void Shard::work_unlocked() {
    bool any = false;
    for (const Transport transport : {Transport::SHM, Transport::TCP})  // no other one does
        if (Backend* const one = backend(transport); one != nullptr) any |= one->work();
    if (!any) return;
    Lock lock = try_lock();
    if (!lock.owns_lock()) return;  // the holder of the lock finds it
    const uint64_t now_ns = locked();
    round(now_ns);
    unlock(lock, now_ns);
}

void Shard::dispatch(Lock lock, uint64_t now_ns, bool is_carried) {
    if (++holds_ % kSampled == 0) begin_sample();
    latest_ns_ = std::max(now_ns, latest_ns_);
    if (!is_carried || is_sampled_) {
        if (!nothing_waits()) move(latest_ns_);
        unlock(lock, now_ns);
    } else {
        lock.unlock();
    }
    work_unlocked();
}

Slice* Shard::take_freed(uint32_t count) {
    if (freed_ < count) return nullptr;
    Slice* const first = freed_first_;
    Slice* last = first;
    for (uint32_t i = 1; i < count; ++i) last = static_cast<Slice*>(last->next);
    freed_first_ = static_cast<Slice*>(last->next);
    if (freed_first_ == nullptr) freed_last_ = nullptr;
    freed_ -= count;
    last->next = nullptr;
    return first;
}

bool Shard::nothing_waits() const {
    return std::all_of(backends_.begin(), backends_.end(),
                       [](const auto& backend) { return backend->nothing_waits(); });
}

bool Shard::goes_at_once(Priority priority, uint64_t now_ns) const {
    if (!nothing_waits()) return false;
    if (const Slots* slots = core_.slots(); slots != nullptr && !slots->can_send(priority, now_ns)) return false;
    return core_.shards().size() == 1 || !core_.others_have_more(number_, index(priority));
}

bool Shard::move(uint64_t now_ns) {
    std::array<uint8_t, kTransports> levels{};
    uint8_t any = 0;
    for (size_t i = 0; i < backends_.size(); ++i) any |= levels[i] = backends_[i]->collect(now_ns);
    if (any == 0) {
        if (more_ != 0 || is_kept_back_.load(std::memory_order_relaxed)) tell_others(0, false);
        return false;
    }
    const uint8_t allowed = this->allowed(now_ns);
    const bool is_alone = core_.shards().size() == 1;
    bool moved = false, more = false, is_kept_back = false;
    uint8_t more_levels = 0;
    for (uint8_t level = 0; level < kPriorities && !more; ++level) {
        if ((any >> level & 1) == 0) continue;
        is_kept_back = !is_alone && core_.others_have_more(number_, level);
        if (is_kept_back) break;
        for (size_t i = 0; i < backends_.size(); ++i) {
            if ((levels[i] >> level & 1) == 0) continue;
            const Channel::Dispatched result = backends_[i]->dispatch(level, allowed, now_ns);
            moved |= result.moved;
            more |= result.more;
        }
        if (more) more_levels |= static_cast<uint8_t>(1u << level);
    }
    if (!is_alone) tell_others(more_levels, is_kept_back);
    return moved;
}

void Shard::tell_others(uint8_t more, bool is_kept_back) {
    is_kept_back_.store(is_kept_back, std::memory_order_relaxed);
    if (more == more_) return;
    more_ = more;
    core_.set_more(number_, more);
}

void Shard::with_lock(const std::function<void()>& work) {
    Lock lock(drive_);
    const uint64_t now_ns = locked();
    // Collects submitted requests first, so that they are where the search expects them.
    for (const auto& backend : backends_) backend->collect(now_ns);
    work();
    latest_ns_ = std::max(monotonic_ns(), latest_ns_);
    unlock(lock, now_ns);
}

bool Shard::background_round(uint64_t* deadline_ns) {
    Lock lock(drive_);
    const uint64_t now_ns = locked();
    const bool moved = round(now_ns);
    *deadline_ns = kNever;
    for (const auto& backend : backends_) *deadline_ns = std::min(*deadline_ns, backend->next_deadline(now_ns));
    unlock(lock, now_ns);
    work_unlocked();
    return moved;
}

bool Shard::round(uint64_t now_ns) {
    latest_ns_ = now_ns = std::max(now_ns, latest_ns_);  // another thread's clock may be ahead of ours
    bool moved = false;
    for (const auto& backend : backends_) moved |= backend->progress(now_ns);
    if (now_ns - deadlines_ns_ >= kDeadlinesNs) look_at_deadlines(now_ns);
    const bool has_told = more_ != 0 || is_kept_back_.load(std::memory_order_relaxed);  // which may be over
    if (has_told || !nothing_waits()) moved |= move(now_ns);
    if (freed_ > kKeptSlices) {
        core_.pool().give(freed_first_, freed_last_);
        freed_first_ = freed_last_ = nullptr;
        freed_ = 0;
    }
    return moved;
}

uint8_t Shard::first_in_use(uint64_t now_ns) const {
    return core_.first_in_use(now_ns);
}

void Shard::begin(Task& task, uint64_t now_ns) {
    core_.note_use(task.priority, now_ns);
    tasks_.begin();  // ordered with the check in Background::wake()
    if (Slots* slots = core_.slots(); slots != nullptr) slots->add_pending(task.priority, task.bytes, now_ns);
    if (task.deadline_ns == kNever) return;
    const std::lock_guard lock(dated_mutex_);
    dated_.emplace(task.deadline_ns, &task);
    dated_count_.store(dated_.size(), std::memory_order_relaxed);
}

uint8_t Shard::allowed(uint64_t now_ns) const {
    constexpr uint8_t kAll = (1 << kPriorities) - 1;
    const Slots* slots = core_.slots();
    if (slots == nullptr) return kAll;
    uint8_t bits = 0;
    for (uint8_t i = 0; i < kPriorities; ++i)
        if (slots->can_send(static_cast<Priority>(i), now_ns)) bits |= static_cast<uint8_t>(1u << i);
    return bits;
}

bool Shard::is_wanted(const Slice& slice) const {
    return !slice.task->failed && !slice.task->timed_out && !is_canceled(slice);
}

bool Shard::is_canceled(const Slice& slice) const {
    const uint64_t end = slice.remote + slice.length;
    for (const Task* part = slice.part; part != nullptr && part->target < end; part = part->next_part)
        if (!part->canceled.load(std::memory_order_relaxed)) return false;
    return true;
}

void Shard::done(Slice& slice) {
    Task& task = *slice.task;
    TransportCounters& counters = transports[static_cast<size_t>(task.selection.transport)];
    ++counters.slices;
    task.progress_ns = latest_ns_;
    core_.note_use(task.priority, latest_ns_);
    (task.is_write ? counters.write_bytes : counters.read_bytes) += slice.length;
    if (const Slots* slots = core_.slots(); slots != nullptr) {
        SlotCounters& slot = slot_counters[slots->slot_at(latest_ns_)];
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

void Shard::fail(Slice& slice, Reason reason) {
    if (!slice.task->failed) slice.task->reason = reason;
    slice.task->failed = true;
    release(slice);
}

void Shard::refused(Slice& slice) {
    if (slice.was_refused) return fail(slice, Reason::kRefused);
    Task& task = *slice.task;
    slice.was_refused = true;
    slice.next = task.refused;
    task.refused = &slice;
    if (slice.next == nullptr) core_.refresh(task);
}

void Shard::refreshed(Task& task, std::shared_ptr<const SegmentDesc> segment) {
    const BufferDesc* remote = segment == nullptr ? nullptr : segment->find(task.target, carried_bytes(task));
    if (remote != nullptr && task.is_write && !remote->writable) remote = nullptr;
    if (remote != nullptr) {
        task.segment = std::move(segment);
        task.remote = remote;
    }
    Backend& carrier = *backend(task.selection.transport);
    for (Slice *slice = std::exchange(task.refused, nullptr), *next; slice != nullptr; slice = next) {
        next = static_cast<Slice*>(slice->next);  // the task ends with the last of them that fails
        if (remote != nullptr) {
            carrier.put_back(task, *slice, monotonic_ns());
        } else {
            fail(*slice, Reason::kRefused);
        }
    }
}

void Shard::retry(Slice& slice, uint64_t now_ns) {
    const Transport transport = slice.task->selection.transport;
    if (++slice.attempts > config().max_retry_count) {
        move_elsewhere(slice, transport, now_ns);
        return;
    }
    ++transports[static_cast<size_t>(transport)].retries;
    backend(transport)->put_back(*slice.task, slice, now_ns);
}

void Shard::move_elsewhere(Slice& slice, Transport from, uint64_t now_ns) {
    Task& task = *slice.task;
    // The first slice that fails moves the task with its waiting slices; those in flight follow.
    Queued* waiting = nullptr;
    if (task.selection.transport == from) {
        Channel& channel = *task.peer->channel(from);
        if (++task.failovers > config().max_failover_attempts) return fail(slice, Reason::kNoTransport);
        task.excluded |= 1u << static_cast<unsigned>(from);
        task.context.available = task.peer->available(*task.remote) & ~task.excluded;
        task.context.hint = Transport::UNSPEC;
        static LogLimit limit;
        if (!core_.selector().select(task.context, 0, &task.selection).ok()) {
            log(limit, LogLevel::kWarning, "segment '%s': %s failed a request, and no other transport can carry it",
                task.peer->name().c_str(), name(from));
            return fail(slice, Reason::kNoTransport);
        }
        log(limit, LogLevel::kWarning, "segment '%s': %s failed a request of %s priority, which continues over %s",
            task.peer->name().c_str(), name(from), name(task.priority), name(task.selection.transport));
        channel.leave(task);
        if (task.level != Waiting::kNowhere) waiting = channel.queues.take_all(task);
    }
    Backend& to = *backend(task.selection.transport);
    slice.next = waiting;
    for (Queued *one = &slice, *next; one != nullptr; one = next) {
        next = one->next;
        ++transports[static_cast<size_t>(from)].failovers;
        static_cast<Slice*>(one)->attempts = 0;
        to.put_back(task, *one, now_ns);
    }
}

bool Shard::has_another(const Task& task, Transport from) const {
    if (task.failovers >= config().max_failover_attempts) return false;
    SelectionContext context = task.context;
    context.available = task.peer->available(*task.remote) & ~task.excluded & ~(1u << static_cast<unsigned>(from));
    context.hint = Transport::UNSPEC;
    Selection selection;
    return context.available != 0 && core_.selector().select(context, 0, &selection).ok();
}

void Shard::move_waiting(Task& task, Transport from, uint64_t now_ns) {
    Channel& channel = *task.peer->channel(from);
    auto* slice = static_cast<Slice*>(channel.queues.take(task, now_ns));
    move_elsewhere(*slice, from, now_ns);
}

void Shard::fail_waiting(Task& task, Reason reason) {
    if (!task.failed) task.reason = reason;
    task.failed = true;
    drop_waiting(task);
}

void Shard::time_out(Task& task, Reason reason) {
    if (!task.failed && !task.timed_out) task.reason = reason;
    task.timed_out = true;
    if (task.level != Waiting::kNowhere) drop_waiting(task);
}

void Shard::drop_waiting(Task& task) {
    Channel& channel = *task.peer->channel(task.selection.transport);
    channel.leave(task);
    for (Queued *one = channel.queues.take_all(task), *next; one != nullptr; one = next) {
        next = one->next;
        release(static_cast<Slice&>(*one));
    }
}

Task* Shard::first_late(uint64_t now_ns) {
    if (dated_count_.load(std::memory_order_relaxed) == 0) return nullptr;
    const std::lock_guard lock(dated_mutex_);
    for (auto at = dated_.begin(); at != dated_.end() && at->first <= now_ns; ++at)
        if (!at->second->timed_out) return at->second;
    return nullptr;
}

// T-20
void Shard::look_at_deadlines(uint64_t now_ns) {
    deadlines_ns_ = now_ns;
    while (Task* task = first_late(now_ns)) time_out(*task, Reason::kDeadline);
    if (now_ns < max_timeout_ns()) return;
    const uint64_t before_ns = now_ns - max_timeout_ns();
    for (const auto& backend : backends_) {
        while (auto* task = static_cast<Task*>(backend->stuck(before_ns))) {
            if (task->progress_ns > before_ns) {  // its slices in flight make progress
                task->since_ns = task->progress_ns;
            } else if (core_.slots() != nullptr && !core_.slots()->can_send(task->priority, now_ns)) {
                time_out(*task, Reason::kSlotsClosed);
            } else {
                time_out(*task, task->peer->channel(task->selection.transport)->why_nothing_moves());
            }
        }
    }
}

void Shard::drop_fence(Task& task, bool closed) {
    if (!closed && !task.failed) {
        task.failed = true;
        task.reason = Reason::kNotConfirmed;
    }
    if (--task.fences == 0 && task.slices_left == 0) finish(task);
}

void Shard::release(Slice& slice) {
    Task& task = *slice.task;
    slice.task = nullptr;
    slice.next = freed_first_;
    freed_first_ = &slice;
    ++freed_;
    if (freed_last_ == nullptr) freed_last_ = &slice;
    if (--task.slices_left == 0 && task.fences == 0) finish(task);
}

void Shard::finish(Task& leader) {
    for (Task *part = &leader, *next; part != nullptr; part = next) {
        next = part->next_part;  // all parts are of one batch, which lasts until the last of them is final
        part->failed = leader.failed;
        part->timed_out = leader.timed_out;
        part->reason = leader.reason;
        finish_one(*part);
    }
}

void Shard::finish_one(Task& task) {
    PriorityCounters& counters = priorities[index(task.priority)];
    const bool whole = task.transferred.load(std::memory_order_relaxed) == task.bytes;
    TransferStatusEnum state = TransferStatusEnum::COMPLETED;
    if (task.failed) {
        state = TransferStatusEnum::FAILED;
        ++counters.failed;
    } else if (task.timed_out && !whole) {
        state = TransferStatusEnum::TIMEOUT;
        ++counters.timed_out;
    } else if (!whole) {
        state = TransferStatusEnum::CANCELED;
        ++counters.canceled;
    } else {
        task.reason = Reason::kNone;
        ++counters.requests;
        counters.bytes += task.bytes;
        RequestHistograms& seen = histograms[index(task.priority)][static_cast<size_t>(task.selection.transport)];
        seen.latency_ns.add(latest_ns_ - std::min(latest_ns_, task.submitted_ns));
        seen.bytes.add(task.bytes);
    }
    if (Slots* slots = core_.slots(); slots != nullptr)
        slots->remove_pending(task.priority, task.bytes, monotonic_ns());
    if (task.deadline_ns != kNever) {
        const std::lock_guard lock(dated_mutex_);
        auto [at, end] = dated_.equal_range(task.deadline_ns);
        while (at != end && at->second != &task) ++at;
        if (at != end) dated_.erase(at);
        dated_count_.store(dated_.size(), std::memory_order_relaxed);
    }
    tasks_.finish();
    task.peer->tasks.finish();
    task.local->tasks.finish(number_);
    if (task.peer->is_file()) {  // a file stays open while a reference to it exists
        task.segment.reset();
        task.peer.reset();
    }
    const std::shared_ptr<Announcement> announcement = std::move(task.announcement);
    Batch& batch = *task.batch;
    task.state.store(state, std::memory_order_release);
    if (announcement != nullptr && state == TransferStatusEnum::COMPLETED && announcement->tasks_left.fetch_sub(1) == 1)
        core_.announce(announcement);
    if (batch.users.fetch_sub(1) == 1) core_.recycle(batch);
}

}  // namespace rove::tent
