// SPDX-License-Identifier: Apache-2.0
// The notifications for one peer, in the order in which their submits completed. One job at a time sends them.
#pragma once

#include <deque>
#include <memory>
#include <mutex>
#include <utility>

namespace rove::tent {

struct Announcement;

class Outbox {
  public:
    static constexpr size_t kMost = 4096;  // notifications that wait: as many as a peer keeps for its program

    // Adds a notification, unless the outbox is full, which sets `*full`. Returns true if no job is sending, so that
    // the caller must start one.
    bool add(std::shared_ptr<const Announcement> announcement, bool* full) {
        const std::lock_guard lock(mutex_);
        *full = waiting_.size() >= kMost;
        if (*full) return false;
        waiting_.push_back(std::move(announcement));
        return !std::exchange(is_sending_, true);
    }
    // Returns the next notification, or null if the outbox is empty, which ends the sending job.
    std::shared_ptr<const Announcement> next() {
        const std::lock_guard lock(mutex_);
        is_sending_ = !waiting_.empty();
        if (!is_sending_) return nullptr;
        auto first = std::move(waiting_.front());
        waiting_.pop_front();
        return first;
    }

  private:
    std::mutex mutex_;
    std::deque<std::shared_ptr<const Announcement>> waiting_;
    bool is_sending_ = false;
};

}  // namespace rove::tent
