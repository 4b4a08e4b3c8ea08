// SPDX-License-Identifier: Apache-2.0
// Tasks that a peer refuses the access, until it was asked what it publishes now. One job at a time asks for all.
#pragma once

#include <mutex>
#include <utility>
#include <vector>

namespace rove::tent {

struct Task;

class RefusedTasks {
  public:
    // Returns whether nobody asks, so that the caller has to begin.
    bool add(Task& task) {
        const std::lock_guard lock(mutex_);
        waiting_.push_back(&task);
        return !std::exchange(is_asking_, true);
    }
    // Those that were added since. `ends`: if there are none, nobody asks any more.
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
