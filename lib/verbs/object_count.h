// SPDX-License-Identifier: Apache-2.0
// How many objects of one kind a device has: never more than ibv_query_device says it can have. A rule of verbs, not a
// shortage: each kind would have room for more.
#pragma once

#include <atomic>
#include <cstdint>
#include <utility>

namespace rove::verbs {

class ObjectCount {
  public:
    explicit ObjectCount(uint32_t limit) : limit_(limit) {}
    ObjectCount(const ObjectCount&) = delete;
    ObjectCount& operator=(const ObjectCount&) = delete;

    // One object's place, which the object keeps and gives back when it is destroyed. Empty (false) if there was none.
    class Place {
      public:
        Place() = default;
        Place(Place&& other) noexcept : count_(std::exchange(other.count_, nullptr)) {}
        Place& operator=(Place&& other) noexcept {
            std::swap(count_, other.count_);
            return *this;
        }
        ~Place() {
            if (count_ != nullptr) count_->taken_.fetch_sub(1, std::memory_order_relaxed);
        }
        explicit operator bool() const { return count_ != nullptr; }

      private:
        friend class ObjectCount;
        explicit Place(ObjectCount& count) : count_(&count) {}
        ObjectCount* count_ = nullptr;
    };

    Place take() {
        uint32_t taken = taken_.load(std::memory_order_relaxed);
        do {
            if (taken == limit_) return {};
        } while (!taken_.compare_exchange_weak(taken, taken + 1, std::memory_order_relaxed));
        return Place(*this);
    }
    uint32_t taken() const { return taken_.load(std::memory_order_relaxed); }

  private:
    const uint32_t limit_;
    std::atomic<uint32_t> taken_{0};
};

}  // namespace rove::verbs
