// SPDX-License-Identifier: Apache-2.0
// Batches: from a request to slices in a queue, and what became of them.
#include <algorithm>
#include <bit>

#include "tent/engine/clock.h"
#include "tent/engine/engine.h"
#include "tent/engine/merging.h"
#include "tent/engine/shard.h"

namespace rove::tent {

namespace {

// The documented limits of 64 slices for a READ and 32 for a WRITE would cut 64 MiB into slices of 2 MiB: HIGH would
// wait for one that was just posted, and a rail that slows down would have megabytes in flight. T-1 leaves the number
// open.
constexpr uint32_t kMaxSlicesPerRequest = 512;
constexpr uint32_t kShortWalk = 16;  // a walk over this many tasks costs less than to remember the position
constexpr uint64_t kMaxSliceBytes = uint64_t{1} << 30;  // half of the largest work request (IBTA 9.7.7)
constexpr uint64_t kMaxRequestBytes = uint64_t{1} << 45;

uint32_t max_slices(uint64_t length) {
    return static_cast<uint32_t>(std::max<uint64_t>(kMaxSlicesPerRequest, length / kMaxSliceBytes + 1));
}

Status bad_batch(uint64_t id) {
    return {Code::kInvalidArgument, "batch " + std::to_string(id) + " does not exist"};
}

bool is_final(TransferStatusEnum state) {
    return state != TransferStatusEnum::INITIAL && state != TransferStatusEnum::PENDING;
}

std::string range(uint64_t start, uint64_t length) {
    char text[64];
    std::snprintf(text, sizeof(text), "0x%llx, %llu bytes", static_cast<unsigned long long>(start),
                  static_cast<unsigned long long>(length));
    return text;
}

}  // namespace

Batch* Engine::take_free_batch(uint32_t lane) {
    std::atomic<uint64_t>& last = free_batches_[lane].last;
    uint64_t free = last.load(std::memory_order_acquire);
    while ((free & kSlotMask) != 0) {
        Batch* batch = batches_[(free & kSlotMask) - 1].load(std::memory_order_relaxed);
        const uint64_t next = batch->next_free.load(std::memory_order_relaxed);
        if (last.compare_exchange_weak(free, ((free & ~kSlotMask) + kChange) | next, std::memory_order_acquire))
            return batch;
    }
    return nullptr;
}

Batch* Engine::new_batch() {
    const std::lock_guard lock(batch_mutex_);
    if (all_batches_.size() == kBatches) return nullptr;
    const auto slot = static_cast<uint32_t>(all_batches_.size());
    Batch* batch = all_batches_.emplace_back(std::make_unique<Batch>()).get();
    batch->slot = slot;
    batch->id.store(slot);
    batches_[slot].store(batch);
    return batch;
}

void Engine::recycle(Batch& batch) {
    if (batch.capacity > kFewTasks && kept_tasks_.fetch_add(batch.capacity) + batch.capacity > kMaxKeptTasks) {
        kept_tasks_.fetch_sub(batch.capacity);
        batch.capacity = 0;
        const std::lock_guard lock(dropped_mutex_);
        dropped_.push_back(std::move(batch.tasks));
    }
    std::atomic<uint64_t>& last = free_batches_[batch.lane].last;
    uint64_t free = last.load(std::memory_order_relaxed), with;
    do {
        batch.next_free.store(static_cast<uint32_t>(free & kSlotMask), std::memory_order_relaxed);
        with = ((free & ~kSlotMask) + kChange) | (batch.slot + 1);
    } while (!last.compare_exchange_weak(free, with, std::memory_order_release, std::memory_order_relaxed));
}

uint64_t Engine::allocate_batch(size_t capacity) {
    if (capacity == 0 || capacity > kMaxBatchTasks) return 0;
    const uint8_t own = own_lane();
    Batch* batch = nullptr;
    for (uint32_t i = 0; batch == nullptr && i < kThreadLanes; ++i) batch = take_free_batch((own + i) % kThreadLanes);
    if (batch == nullptr) batch = new_batch();
    if (batch == nullptr) return 0;
    batch->lane = own;
    if (batch->capacity > kFewTasks) kept_tasks_.fetch_sub(batch->capacity);
    if (batch->capacity < capacity) {
        batch->tasks = std::make_unique<Task[]>(capacity);
        batch->capacity = static_cast<uint32_t>(capacity);
    }
    batch->limit = static_cast<uint32_t>(capacity);
    batch->submitted.store(0, std::memory_order_relaxed);
    batch->shards.store(0, std::memory_order_relaxed);
    batch->walked = 0;
    batch->walked_bytes = 0;
    batch->users.store(Batch::kProgram, std::memory_order_relaxed);
    const uint64_t id = batch->id.load(std::memory_order_relaxed) + kBatches;  // another one each time, never 0
    batch->id.store(id, std::memory_order_release);
    return id;
}

Batch* Engine::find_batch(uint64_t id) const {
    Batch* batch = batches_[id % kBatches].load();
    return batch != nullptr && batch->id.load() == id && (batch->users.load() & Batch::kProgram) != 0 ? batch : nullptr;
}

// Off the drive lock: it may take milliseconds.
void Engine::free_dropped_tasks() {
    std::vector<std::unique_ptr<Task[]>> dropped;
    const std::lock_guard lock(dropped_mutex_);
    std::swap(dropped, dropped_);
}

Status Engine::free_batch(uint64_t id) {
    Batch* batch = find_batch(id);
    if (batch == nullptr) return bad_batch(id);
    const uint32_t users = batch->users.fetch_and(~Batch::kProgram);
    if ((users & Batch::kProgram) == 0) return bad_batch(id);  // another thread has freed it
    if (users == Batch::kProgram) core_.recycle(*batch);
    return {};
}

// Most requests have the buffer and the peer of the previous one, which then need no lookup: the task begins with them,
// and keeps them if nothing was unregistered or closed meanwhile (LocalMemory, Peers: change()).
[[gnu::always_inline]] inline Status Engine::find_ends(const Request& request, Task* task, bool* waited) {
    bool found = task->peer != nullptr && task->handle == request.target_id && task->peer->is_there();
    if (found) {
        task->peer->tasks.begin();
        found = task->peers_change == peers_.change();
        if (!found) task->peer->tasks.undo_begin();
    }
    if (!found) {
        *waited = true;  // it may have waited
        Status status = peers_.acquire(request.target_id, &task->peer, &task->peers_change);
        task->handle = request.target_id;
        if (!status.ok()) return status;
    }
    task->shard = task->peer->shard();
    const auto source = reinterpret_cast<uint64_t>(request.source);
    found = task->local != nullptr && task->local->holds(source, request.length);
    if (found) {
        task->local->tasks.begin(task->shard);
        found = task->memory_change == memory_.change();
        if (!found) task->local->tasks.undo_begin(task->shard);
    }
    if (!found) task->local = memory_.acquire(source, request.length, task->shard, &task->memory_change);
    if (task->local != nullptr) return {};
    task->peer->tasks.undo_begin();
    return {Code::kAddressNotRegistered,
            "source " + range(source, request.length) + ": not within one registered buffer"};
}

void Engine::undo(Task& task) {
    task.local->tasks.undo_begin(task.shard);
    task.peer->tasks.undo_begin();
}

[[gnu::always_inline]] inline Status Engine::select(const Request& request, uint64_t now_ns, Task* task, bool* waited) {
    if (!task->peer->is_current(task->segment)) task->segment = task->peer->segment();
    task->remote = task->segment->find(request.target_offset, request.length);
    if (task->remote == nullptr) {
        *waited = true;
        Status status = peers_.refresh_for(*task->peer, request.target_offset, request.length, &task->segment);
        if (!status.ok()) return status;
        task->remote = task->segment->find(request.target_offset, request.length);
    }
    if (task->remote == nullptr) {
        return {Code::kAddressNotRegistered, "target " + range(request.target_offset, request.length) +
                                                 ": not within one registered buffer of segment '" +
                                                 task->peer->name() + "'"};
    }
    task->is_write = request.opcode == Request::WRITE;
    if (task->is_write && !task->remote->writable) {
        return {Code::kInvalidArgument, "target " + range(request.target_offset, request.length) + ": segment '" +
                                            task->peer->name() + "' allows only READs of it"};
    }
    if (!task->is_write && !task->local->writable) {
        return {Code::kInvalidArgument, "source " + range(reinterpret_cast<uint64_t>(request.source), request.length) +
                                            ": its mapping is read-only"};
    }
    const auto priority = static_cast<Priority>(request.priority);
    task->priority = priority;
    task->source = static_cast<uint8_t*>(request.source);
    task->target = request.target_offset;
    task->bytes = request.length;
    task->submitted_ns = now_ns;
    task->next_part = nullptr;
    task->is_led = false;
    task->progress_ns = now_ns;
    task->deadline_ns = request.deadline_ns == 0 ? kNever : request.deadline_ns;
    task->reason = Reason::kNone;
    task->is_allotted = false;
    task->failovers = task->excluded = task->slices_left = task->fences = 0;
    task->failed = task->timed_out = false;
    task->canceled.store(false, std::memory_order_relaxed);
    task->transferred.store(0, std::memory_order_relaxed);
    SelectionContext& context = task->context;
    context = {};
    context.segment_type = task->peer->is_file() ? SegmentType::kFile : SegmentType::kMemory;
    context.same_machine = task->segment->same_machine;
    context.bytes = request.length;
    context.priority = priority;
    context.hint = request.transport_hint;
    if (request.policy_name) context.policy_name = *request.policy_name;
    context.available = task->peer->available(*task->remote);
    const Status status = core_.selector().select(context, 0, &task->selection);
    // The program's text ends with the call. A policy that was chosen by name is the selection's.
    context.policy_name = task->selection.policy != nullptr && !context.policy_name.empty()
                              ? std::string_view(task->selection.policy->name)
                              : std::string_view();
    return status;
}

Status Engine::prepare(const Request& request, uint64_t now_ns, Task* task, bool* waited) {
    if (!to_priority(request.priority)) {
        return {Code::kInvalidArgument,
                "priority " + std::to_string(request.priority) + ": 0 (high), 1 (medium) and 2 (low) are allowed"};
    }
    if (request.transport_hint < 0 || request.transport_hint >= kTransports)
        return {Code::kInvalidArgument,
                "transport_hint " + std::to_string(request.transport_hint) + ": no such transport"};
    if (request.opcode != Request::READ && request.opcode != Request::WRITE) {
        return {Code::kInvalidArgument,
                "opcode " + std::to_string(request.opcode) + ": 0 (READ) and 1 (WRITE) are allowed"};
    }
    if (request.length == 0 || request.length > kMaxRequestBytes)
        return {Code::kInvalidArgument, "length " + std::to_string(request.length) + ": 1 to 2^45 bytes are allowed"};
    Status status = find_ends(request, task, waited);
    if (!status.ok()) return status;
    status = select(request, now_ns, task, waited);
    if (!status.ok()) undo(*task);
    return status;
}

// Decides how each request is cut, and takes slices for all of them. Returns kTooManyRequests if there are too few. For
// a single request it also tries to lock the shard, whose last returned slices are then available.
[[gnu::always_inline]] inline Status Engine::take_slices(std::span<Task> tasks, DriveGuard* drive, Slice** first) {
    uint64_t total = 0;
    uint8_t lowest = 0;
    for (Task& task : tasks) {
        if (task.is_led) continue;
        const uint64_t bytes = carried_bytes(task);
        task.plan = plan_slices(bytes, max_slices(bytes), core_.config().block_size);
        total += task.plan.count;
        lowest = std::max(lowest, index(task.priority));
    }
    if (tasks.size() == 1) {
        Shard& shard = core_.shard(tasks.front().shard);
        *drive = shard.try_lock();
        if (drive->owns_lock()) *first = shard.take_freed(tasks.front().plan.count);
    }
    if (*first != nullptr || total == 0) return {};
    const uint32_t reserve = Core::kReserve[lowest];
    *first = core_.pool().take(total, reserve);
    if (*first != nullptr) return {};
    return {Code::kTooManyRequests,
            std::to_string(total) + " slices are needed, but requests of this priority and lower ones may have only " +
                std::to_string(Core::kMaxSlices - reserve) + " in progress"};
}

// Cuts a request, and those that continue it, into slices from `first` on. Returns the first of those that are left.
[[gnu::always_inline]] inline Slice* Engine::cut(Task& task, Slice* slice) {
    const SlicePlan& plan = task.plan;
    task.slices_left = task.count = plan.count;
    task.first = slice;
    Task* part = &task;
    for (uint32_t i = 0; i < plan.count; ++i) {
        slice->task = &task;
        slice->local = task.source + plan.offset(i);
        slice->remote = task.target + plan.offset(i);
        slice->length = plan.bytes(i);
        while (part->target + part->bytes <= slice->remote) part = part->next_part;
        slice->part = part;
        slice->attempts = 0;
        slice->was_refused = false;
        task.last = slice;
        slice = static_cast<Slice*>(slice->next);
    }
    task.last->next = nullptr;
    return slice;
}

void Engine::tell_when_complete(const NotificationText& notification, std::span<Task> tasks) {
    const auto announcement = std::make_shared<Announcement>();
    announcement->name = notification.name;
    announcement->message = notification.message;
    announcement->tasks_left = static_cast<uint32_t>(tasks.size());
    auto& targets = announcement->targets;
    for (Task& task : tasks) {
        task.announcement = announcement;
        const bool is_told = std::find(targets.begin(), targets.end(), task.peer) != targets.end();
        if (!is_told && !task.peer->is_file()) targets.push_back(task.peer);
    }
}

// They belong to the driver when this returns.
[[gnu::always_inline]] inline void Engine::queue(Batch& batch, std::span<Task> tasks, Slice* slice, DriveGuard of_first,
                                                 uint64_t now_ns, bool waited) {
    uint32_t shards = 0;
    for (Task& task : tasks) {
        task.state.store(TransferStatusEnum::PENDING, std::memory_order_relaxed);
        core_.shard(task.shard).begin(task, now_ns);
        shards |= 1u << task.shard;
    }
    batch.shards.store(batch.shards.load(std::memory_order_relaxed) | shards, std::memory_order_relaxed);
    const uint32_t before = batch.submitted.load(std::memory_order_relaxed);
    batch.submitted.store(before + static_cast<uint32_t>(tasks.size()), std::memory_order_release);
    for (; shards != 0; shards &= shards - 1) {
        Shard& shard = core_.shard(static_cast<size_t>(std::countr_zero(shards)));
        DriveGuard drive = of_first.owns_lock() ? std::move(of_first) : shard.try_lock();
        const uint64_t queued_ns = waited ? monotonic_ns() : now_ns;
        bool is_carried = false;
        for (Task& task : tasks) {
            if (task.is_led || task.shard != shard.number()) continue;
            task.since_ns = queued_ns;
            slice = cut(task, slice);
            Backend& backend = *shard.backend(task.selection.transport);
            if (!drive.owns_lock()) {
                backend.submit(task);
                continue;
            }
            const uint64_t now_or_later_ns = std::max(queued_ns, shard.latest_ns());
            if (task.count == 1 && shard.goes_at_once(task.priority, queued_ns) &&
                backend.carry_at_once(task, now_or_later_ns)) {
                is_carried = tasks.size() == 1;
                continue;
            }
            backend.put(task);
        }
        if (drive.owns_lock()) shard.dispatch(std::move(drive), queued_ns, is_carried);
    }
}

Status Engine::submit(uint64_t id, std::span<const Request> requests, const NotificationText* notification) {
    Batch* batch = find_batch(id);
    if (batch == nullptr) return bad_batch(id);
    if (notification != nullptr &&
        (notification->name.size() > kMaxNotificationName || notification->message.size() > kMaxNotificationMessage)) {
        return {Code::kInvalidArgument, "notification: its name or message is too long"};
    }
    const std::lock_guard lock(batch->submitting);
    const uint32_t first = batch->submitted.load();
    if (requests.size() > batch->limit - first) {
        return {Code::kTooManyRequests, "batch " + std::to_string(id) + " has room for " +
                                            std::to_string(batch->limit - first) + " more of " +
                                            std::to_string(batch->limit) + " requests"};
    }
    const uint64_t now_ns = monotonic_ns();
    const std::span<Task> tasks(batch->tasks.get() + first, requests.size());
    Status status;
    size_t prepared = 0;
    bool waited = requests.size() > 1;  // or did more than takes no time
    const uint8_t lane = own_lane();
    while (prepared < requests.size() && status.ok()) {
        Task& task = tasks[prepared];
        task.batch = batch;
        task.lane = lane;
        status = prepare(requests[prepared], now_ns, &task, &waited);
        if (status.ok()) ++prepared;
    }
    Slice* slice = nullptr;
    DriveGuard drive;
    if (status.ok()) {
        // Not so much that slices become larger than a block.
        if (core_.config().merge_requests && tasks.size() > 1)
            merge_neighbours(tasks, kMaxSlicesPerRequest * core_.config().block_size);
        status = take_slices(tasks, &drive, &slice);
    }
    if (!status.ok()) {
        if (drive.owns_lock()) drive.unlock();
        for (Task& task : tasks.first(prepared)) undo(task);
        for (Task& task : tasks) {
            task.peer.reset();
            task.local.reset();
            task.segment.reset();
        }
        return status;
    }
    batch->users.fetch_add(static_cast<uint32_t>(requests.size()));
    if (notification != nullptr) tell_when_complete(*notification, tasks);
    queue(*batch, tasks, slice, std::move(drive), now_ns, waited);
    background_.wake();
    return {};
}

Status Engine::cancel(uint64_t id, size_t task) {
    Batch* batch = find_batch(id);
    if (batch == nullptr) return bad_batch(id);
    if (task >= batch->submitted.load(std::memory_order_acquire))
        return {Code::kInvalidArgument, "batch " + std::to_string(id) + " has no task " + std::to_string(task)};
    batch->tasks[task].canceled.store(true);
    core_.shard(batch->tasks[task].shard).try_drive();
    return {};
}

Status Engine::task_status(uint64_t id, size_t task, TaskStatus* out) {
    const Batch* batch = find_batch(id);
    if (batch == nullptr) return bad_batch(id);
    if (task >= batch->submitted.load(std::memory_order_acquire))
        return {Code::kInvalidArgument, "batch " + std::to_string(id) + " has no task " + std::to_string(task)};
    const Task& one = batch->tasks[task];
    if (!is_final(one.state.load(std::memory_order_acquire))) core_.shard(one.shard).try_drive();
    out->state = one.state.load(std::memory_order_acquire);
    out->transferred = one.transferred.load(std::memory_order_relaxed);
    out->reason = is_final(out->state) ? one.reason : Reason::kNone;
    return {};
}

Status Engine::task_statuses(uint64_t id, std::vector<TaskStatus>* out) {
    const Batch* batch = find_batch(id);
    if (batch == nullptr) return bad_batch(id);
    if (batch->users.load() != Batch::kProgram) drive(*batch);
    out->resize(batch->submitted.load(std::memory_order_acquire));
    for (size_t i = 0; i < out->size(); ++i) {
        const Task& one = batch->tasks[i];
        (*out)[i] = {one.state.load(std::memory_order_acquire), one.transferred.load(std::memory_order_relaxed)};
    }
    return {};
}

void Engine::drive(const Batch& batch) {
    for (uint32_t rest = batch.shards.load(std::memory_order_relaxed); rest != 0; rest &= rest - 1)
        core_.shard(static_cast<size_t>(std::countr_zero(rest))).try_drive();
}

Status Engine::overall_status(uint64_t id, TaskStatus* out) {
    Batch* batch = find_batch(id);
    if (batch == nullptr) return bad_batch(id);
    if (batch->users.load() != Batch::kProgram) drive(*batch);
    // The worst, once all are final.
    constexpr TransferStatusEnum kFromWorst[] = {FAILED, TIMEOUT, CANCELED, INVALID, COMPLETED};
    size_t worst = std::size(kFromWorst) - 1;
    bool pending = false;
    *out = {};
    const uint32_t count = batch->submitted.load(std::memory_order_acquire);
    // Acquire pairs with the release below: what another thread walked.
    const bool walks = count > kShortWalk && !batch->walking.exchange(true, std::memory_order_acquire);
    uint32_t i = walks ? batch->walked : 0, complete = i;
    if (walks) out->transferred = batch->walked_bytes;
    for (; i < count; ++i) {
        const TransferStatusEnum state = batch->tasks[i].state.load(std::memory_order_acquire);
        out->transferred += batch->tasks[i].transferred.load(std::memory_order_relaxed);
        if (state == TransferStatusEnum::COMPLETED) {
            if (complete != i || !walks) continue;
            batch->walked = ++complete;
            batch->walked_bytes = out->transferred;
            continue;
        }
        pending |= !is_final(state);
        const auto rank =
            static_cast<size_t>(std::find(kFromWorst, std::end(kFromWorst) - 1, state) - std::begin(kFromWorst));
        if (rank >= worst) continue;
        worst = rank;
        out->reason = batch->tasks[i].reason;
    }
    if (walks) batch->walking.store(false, std::memory_order_release);
    out->state = pending ? TransferStatusEnum::PENDING : kFromWorst[worst];
    if (pending) out->reason = Reason::kNone;
    return {};
}

}  // namespace rove::tent
