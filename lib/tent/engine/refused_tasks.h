// SPDX-License-Identifier: Apache-2.0
// Tasks to which a peer refused access. They wait until the peer has sent its current description. One job at a time
// asks for all of them.
#pragma once

#include <mutex>
#include <utility>
#include <vector>

namespace rove::tent {

struct Task;

class RefusedTasks {
  public:
    // Adds a task. Returns true if no job is asking, so that the caller must start one.
    bool add(Task& task) {
        const std::lock_guard lock(mutex_);
        waiting_.push_back(&task);
        return !std::exchange(is_asking_, true);
    }
    // Returns the tasks that were added since the last call. If `ends` is set and there are no such tasks, the asking
    // job ends.
    std::vector<Task*> take(bool ends) {
        const std::lock_guard lock(mutex_);
        if (ends) is_asking_ = !waiting_.empty();
        return std::exchange(waiting_, {});
    }

  private:
    std::mutex mutex_;
    std::vector<Task*> waiting_;
    bool is_asking_ = false;
};

}  // namespace rove::tent
