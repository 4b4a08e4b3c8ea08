// SPDX-License-Identifier: Apache-2.0
// See merging.h.
#include "tent/engine/merging.h"

#include <algorithm>
#include <tuple>
#include <vector>

namespace rove::tent {

namespace {

bool goes_before(const Task* a, const Task* b) {
    return std::tuple(a->peer.get(), a->is_write, a->target) < std::tuple(b->peer.get(), b->is_write, b->target);
}

bool is_continued(const Task& one, const Task& by) {
    const auto decided = [](const Task& task) {
        return std::tuple(task.peer.get(), task.is_write, task.priority, task.context.hint, task.selection.policy,
                          task.selection.device_mask, task.selection.transport, task.local.get(), task.remote,
                          task.deadline_ns);
    };
    return one.source + one.bytes == by.source && one.target + one.bytes == by.target && decided(one) == decided(by);
}

}  // namespace

void merge_neighbours(std::span<Task> tasks, uint64_t most_bytes) {
    thread_local std::vector<Task*> order;  // thread-local to keep its memory between calls
    order.clear();
    for (Task& task : tasks) order.push_back(&task);
    if (!std::is_sorted(order.begin(), order.end(), goes_before)) std::sort(order.begin(), order.end(), goes_before);
    Task* before = nullptr;
    uint64_t bytes = 0;  // total of the current leader and its parts
    for (Task* task : order) {
        bytes += task->bytes;
        if (before == nullptr || !is_continued(*before, *task) || bytes > most_bytes) {
            bytes = task->bytes;
        } else {
            before->next_part = task;
            task->is_led = true;
        }
        before = task;
    }
}

uint64_t carried_bytes(const Task& leader) {
    uint64_t bytes = 0;
    for (const Task* part = &leader; part != nullptr; part = part->next_part) bytes += part->bytes;
    return bytes;
}

}  // namespace rove::tent
