// SPDX-License-Identifier: Apache-2.0
// Batches: from a request to slices in a queue, and what became of them.
#include <algorithm>

#include "tent/clock.h"
#include "tent/engine.h"
#include "tent/merging.h"

namespace rove::tent {

namespace {

// The documented 64 slices of a READ and 32 of a WRITE make slices of 2 MiB out of 64 MiB: HIGH would wait for one that
// was just posted, and a rail that slows down would have megabytes in flight. T-1 leaves the number open.
constexpr uint32_t kMaxSlicesPerRequest = 512;
constexpr uint64_t kMaxSliceBytes = uint64_t{1} << 30;  // half of what one work request may carry (IBTA 9.7.7)
constexpr uint64_t kMaxRequestBytes = uint64_t{1} << 45;

uint32_t max_slices(uint64_t length) {
    return static_cast<uint32_t>(std::max<uint64_t>(kMaxSlicesPerRequest, length / kMaxSliceBytes + 1));
}

Status bad_batch(uint64_t id) {
    return {Code::kInvalidArgument, "batch " + std::to_string(id) + " does not exist"};
}

bool is_final(TransferState state) {
    return state != TransferState::kInitial && state != TransferState::kPending;
}

std::string range(uint64_t start, uint64_t length) {
    char text[64];
    std::snprintf(text, sizeof(text), "0x%llx, %llu bytes", static_cast<unsigned long long>(start),
                  static_cast<unsigned long long>(length));
    return text;
}

}  // namespace

Batch* Engine::take_free_batch() {
    uint64_t free = free_batches_.load(std::memory_order_acquire);
    while ((free & kSlotMask) != 0) {
        Batch* batch = batches_[(free & kSlotMask) - 1].load(std::memory_order_relaxed);
        const uint64_t next = batch->next_free.load(std::memory_order_relaxed);
        if (free_batches_.compare_exchange_weak(free, ((free & ~kSlotMask) + kChange) | next,
                                                std::memory_order_acquire))
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
    uint64_t free = free_batches_.load(std::memory_order_relaxed), with;
    do {
        batch.next_free.store(static_cast<uint32_t>(free & kSlotMask), std::memory_order_relaxed);
        with = ((free & ~kSlotMask) + kChange) | (batch.slot + 1);
    } while (!free_batches_.compare_exchange_weak(free, with, std::memory_order_release, std::memory_order_relaxed));
}

uint64_t Engine::allocate_batch(size_t capacity) {
    if (capacity == 0 || capacity > kMaxBatchTasks) return 0;
    Batch* batch = take_free_batch();
    if (batch == nullptr) batch = new_batch();
    if (batch == nullptr) return 0;
    if (batch->capacity < capacity) {
        batch->tasks = std::make_unique<Task[]>(capacity);
        batch->capacity = static_cast<uint32_t>(capacity);
    }
    batch->limit = static_cast<uint32_t>(capacity);
    batch->submitted.store(0, std::memory_order_relaxed);
    batch->users.store(Batch::kProgram, std::memory_order_relaxed);
    const uint64_t id = batch->id.load(std::memory_order_relaxed) + kBatches;  // another one each time, never 0
    batch->id.store(id, std::memory_order_release);
    return id;
}

Batch* Engine::find_batch(uint64_t id) const {
    Batch* batch = batches_[id % kBatches].load();
    return batch != nullptr && batch->id.load() == id && (batch->users.load() & Batch::kProgram) != 0 ? batch : nullptr;
}

Status Engine::free_batch(uint64_t id) {
    Batch* batch = find_batch(id);
    if (batch == nullptr) return bad_batch(id);
    const uint32_t users = batch->users.fetch_and(~Batch::kProgram);
    if ((users & Batch::kProgram) == 0) return bad_batch(id);  // by another thread
    if (users == Batch::kProgram) core_.recycle(*batch);
    return {};
}

SlicePlan Engine::plan(const Task& leader) const {
    const uint64_t bytes = carried_bytes(leader);
    return plan_slices(bytes, max_slices(bytes), core_.config().rdma.block_size);
}

// The buffer and the peer of the request before are most often those of this one, too, and need no lookup: a task
// begins with them, and if nothing was unregistered or closed by then, it keeps them (LocalMemory, Peers: change()).
[[gnu::always_inline]] inline Status Engine::find_ends(const TransferRequest& request, Task* task) {
    const auto source = reinterpret_cast<uint64_t>(request.source);
    bool found = task->local != nullptr && task->local->holds(source, request.length);
    if (found) {
        task->local->tasks.begin();
        found = task->memory_change == memory_.change();
        if (!found) task->local->tasks.undo_begin();
    }
    if (!found) task->local = memory_.acquire(source, request.length, &task->memory_change);
    if (task->local == nullptr) {
        return {Code::kAddressNotRegistered, "source " + range(source, request.length) +
                                                 ": not within one registered buffer"};
    }
    found = task->peer != nullptr && task->handle == request.target && task->peer->is_there();
    if (found) {
        task->peer->tasks.begin();
        found = task->peers_change == peers_.change();
        if (!found) task->peer->tasks.undo_begin();
    }
    if (found) return {};
    Status status = peers_.acquire(request.target, &task->peer, &task->peers_change);
    task->handle = request.target;
    if (!status.ok()) task->local->tasks.undo_begin();
    return status;
}

void Engine::undo(Task& task) {
    task.local->tasks.undo_begin();
    task.peer->tasks.undo_begin();
}

[[gnu::always_inline]] inline Status Engine::select(const TransferRequest& request, uint64_t now_ns, Task* task) {
    if (!task->peer->is_current(task->segment)) task->segment = task->peer->segment();
    task->remote = task->segment->find(request.target_offset, request.length);
    if (task->remote == nullptr) {
        Status status = peers_.refresh(*task->peer, task->segment);
        if (!status.ok()) return status;
        task->segment = task->peer->segment();
        task->remote = task->segment->find(request.target_offset, request.length);
    }
    if (task->remote == nullptr) {
        return {Code::kAddressNotRegistered, "target " + range(request.target_offset, request.length) +
                                                 ": not within one registered buffer of segment '" +
                                                 task->peer->name() + "'"};
    }
    if (request.direction == Direction::kWrite && !task->remote->writable) {
        return {Code::kInvalidArgument, "target " + range(request.target_offset, request.length) +
                                            ": segment '" + task->peer->name() + "' lets others only read it"};
    }
    if (request.direction == Direction::kRead && !task->local->writable) {
        return {Code::kInvalidArgument, "source " + range(reinterpret_cast<uint64_t>(request.source), request.length) +
                                            ": it is mapped for reading only"};
    }
    const auto priority = static_cast<Priority>(request.priority);
    task->direction = request.direction;
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
    task->failovers = task->slices_left = task->fences = 0;
    task->failed = task->timed_out = false;
    task->canceled.store(false, std::memory_order_relaxed);
    task->transferred.store(0, std::memory_order_relaxed);
    Question& context = task->context;
    context = {};
    context.segment_type = task->peer->is_file() ? SegmentType::kFile : SegmentType::kMemory;
    context.same_machine = task->segment->same_machine;
    context.bytes = request.length;
    context.priority = priority;
    context.hint = static_cast<Transport>(request.transport_hint);
    if (request.policy_name != nullptr) context.policy_name = request.policy_name;
    context.peer = task->peer.get();
    context.remote = task->remote;
    const Status status = core_.selector().select(context, 0, &task->selection);
    // The program's text ends with the call. A policy that was chosen by name is the selection's.
    context.policy_name = task->selection.policy != nullptr && !context.policy_name.empty()
                              ? std::string_view(task->selection.policy->name)
                              : std::string_view();
    return status;
}

Status Engine::prepare(const TransferRequest& request, uint64_t now_ns, Task* task) {
    if (!to_priority(request.priority)) {
        return {Code::kInvalidArgument, "priority " + std::to_string(request.priority) +
                                            ": 0 (high), 1 (medium) and 2 (low) are allowed"};
    }
    if (request.transport_hint < 0 || request.transport_hint >= kTransports)
        return {Code::kInvalidArgument,
                "transport_hint " + std::to_string(request.transport_hint) + ": no such transport"};
    if (request.length == 0 || request.length > kMaxRequestBytes)
        return {Code::kInvalidArgument, "length " + std::to_string(request.length) + ": 1 to 2^45 bytes are allowed"};
    Status status = find_ends(request, task);
    if (!status.ok()) return status;
    status = select(request, now_ns, task);
    if (!status.ok()) undo(*task);
    return status;
}

Status Engine::submit(uint64_t id, std::span<const TransferRequest> requests, const NotificationText* notification) {
    Batch* batch = find_batch(id);
    if (batch == nullptr) return bad_batch(id);
    if (notification != nullptr && (notification->name.size() > kMaxNotificationName ||
                                    notification->message.size() > kMaxNotificationMessage)) {
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
    while (prepared < requests.size() && status.ok()) {
        Task& task = tasks[prepared];
        task.batch = batch;
        status = prepare(requests[prepared], now_ns, &task);
        if (status.ok()) ++prepared;
    }
    uint64_t total = 0;
    if (status.ok()) {
        // Not so much that slices become larger than a block.
        if (core_.config().merge_requests && tasks.size() > 1)
            merge_neighbours(tasks, kMaxSlicesPerRequest * core_.config().rdma.block_size);
        for (const Task& task : tasks)
            if (!task.is_led) total += plan(task).count;
    }
    uint8_t lowest = 0;
    for (const Task& task : tasks) lowest = std::max(lowest, index(task.priority));
    const uint32_t reserve = Core::kReserve[lowest];
    Slice* slice = status.ok() && total != 0 ? core_.pool().take(total, reserve) : nullptr;
    if (status.ok() && slice == nullptr && total != 0) {
        status = {Code::kTooManyRequests,
                  std::to_string(total) + " slices are needed, of " + std::to_string(Core::kMaxSlices - reserve) +
                      " for all requests of this priority, and lower ones, under way"};
    }
    if (!status.ok()) {
        for (Task& task : tasks.first(prepared)) undo(task);
        for (Task& task : tasks) {
            task.peer.reset();
            task.local.reset();
            task.segment.reset();
        }
        return status;
    }
    std::shared_ptr<Announcement> announcement;
    if (notification != nullptr) {
        announcement = std::make_shared<Announcement>();
        announcement->name = notification->name;
        announcement->message = notification->message;
        announcement->tasks_left = static_cast<uint32_t>(requests.size());
    }
    batch->users.fetch_add(static_cast<uint32_t>(requests.size()));
    uint32_t transports = 0;
    for (Task& task : tasks) {
        if (announcement != nullptr) {
            task.announcement = announcement;
            auto& targets = announcement->targets;
            const bool is_told = std::find(targets.begin(), targets.end(), task.peer) != targets.end();
            if (!is_told && !task.peer->is_file()) targets.push_back(task.peer);
        }
        task.state.store(TransferState::kPending, std::memory_order_relaxed);
        core_.begin(task, now_ns);
        transports |= 1u << static_cast<unsigned>(task.selection.transport);
    }
    std::unique_lock drive = core_.try_lock();
    for (Task& task : tasks) {
        if (task.is_led) continue;
        const SlicePlan plan = this->plan(task);
        task.slices_left = task.count = plan.count;
        task.since_ns = now_ns;
        task.first = slice;
        Task* part = &task;
        for (uint32_t j = 0; j < plan.count; ++j) {
            slice->task = &task;
            slice->local = task.source + plan.offset(j);
            slice->remote = task.target + plan.offset(j);
            slice->length = plan.bytes(j);
            while (part->target + part->bytes <= slice->remote) part = part->next_part;
            slice->part = part;
            slice->attempts = 0;
            slice->was_refused = false;
            task.last = slice;
            slice = static_cast<Slice*>(slice->next);
        }
        task.last->next = nullptr;
        Backend& backend = *core_.backends()[static_cast<size_t>(task.selection.transport)];
        // it is the driver's now
        drive.owns_lock() ? backend.put(task) : backend.submit(task);
    }
    batch->submitted.store(first + static_cast<uint32_t>(requests.size()), std::memory_order_release);
    if (drive.owns_lock()) {
        core_.dispatch(transports, now_ns);
        drive.unlock();  // who wakes may take our core, and wants the lock
    }
    background_.wake();
    return {};
}

Status Engine::cancel(uint64_t id, size_t task) {
    Batch* batch = find_batch(id);
    if (batch == nullptr) return bad_batch(id);
    if (task >= batch->submitted.load(std::memory_order_acquire))
        return {Code::kInvalidArgument, "batch " + std::to_string(id) + " has no task " + std::to_string(task)};
    batch->tasks[task].canceled.store(true);
    core_.try_drive();
    return {};
}

Status Engine::task_status(uint64_t id, size_t task, TaskStatus* out) {
    const Batch* batch = find_batch(id);
    if (batch == nullptr) return bad_batch(id);
    if (task >= batch->submitted.load(std::memory_order_acquire))
        return {Code::kInvalidArgument, "batch " + std::to_string(id) + " has no task " + std::to_string(task)};
    const Task& one = batch->tasks[task];
    if (!is_final(one.state.load(std::memory_order_acquire))) core_.try_drive();
    out->state = one.state.load(std::memory_order_acquire);
    out->transferred = one.transferred.load(std::memory_order_relaxed);
    out->reason = is_final(out->state) ? one.reason : Reason::kNone;
    return {};
}

Status Engine::task_statuses(uint64_t id, std::vector<TaskStatus>* out) {
    const Batch* batch = find_batch(id);
    if (batch == nullptr) return bad_batch(id);
    if (batch->users.load() != Batch::kProgram) core_.try_drive();
    out->resize(batch->submitted.load(std::memory_order_acquire));
    for (size_t i = 0; i < out->size(); ++i) {
        const Task& one = batch->tasks[i];
        (*out)[i] = {one.state.load(std::memory_order_acquire), one.transferred.load(std::memory_order_relaxed)};
    }
    return {};
}

Status Engine::overall_status(uint64_t id, TaskStatus* out) {
    const Batch* batch = find_batch(id);
    if (batch == nullptr) return bad_batch(id);
    if (batch->users.load() != Batch::kProgram) core_.try_drive();
    // The worst, once all are final.
    constexpr TransferState kFromWorst[] = {TransferState::kFailed, TransferState::kTimeout, TransferState::kCanceled,
                                            TransferState::kInvalid, TransferState::kCompleted};
    size_t worst = std::size(kFromWorst) - 1;
    bool pending = false;
    *out = {};
    const uint32_t count = batch->submitted.load(std::memory_order_acquire);
    for (uint32_t i = 0; i < count; ++i) {
        const TransferState state = batch->tasks[i].state.load(std::memory_order_acquire);
        out->transferred += batch->tasks[i].transferred.load(std::memory_order_relaxed);
        if (state == TransferState::kCompleted) continue;
        pending |= !is_final(state);
        const auto rank =
            static_cast<size_t>(std::find(kFromWorst, std::end(kFromWorst) - 1, state) - std::begin(kFromWorst));
        if (rank >= worst) continue;
        worst = rank;
        out->reason = batch->tasks[i].reason;
    }
    out->state = pending ? TransferState::kPending : kFromWorst[worst];
    if (pending) out->reason = Reason::kNone;
    return {};
}

}  // namespace rove::tent
