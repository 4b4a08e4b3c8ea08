// SPDX-License-Identifier: Apache-2.0
// Counts a device's objects of one kind, and enforces the limit that ibv_query_device() reports. The limit is a rule of
// verbs; there would be memory for more.
#pragma once

#include <atomic>
#include <cstdint>
#include <utility>

namespace rove::verbs {

class ObjectQuota {
  public:
    explicit ObjectQuota(uint32_t limit) : limit_(limit) {}
    ObjectQuota(const ObjectQuota&) = delete;
    ObjectQuota& operator=(const ObjectQuota&) = delete;

    // A permit for one object, which keeps it and returns it when it is destroyed. It is empty (false) if there was no
    // room.
    class Ticket {
      public:
        Ticket() = default;
        Ticket(Ticket&& other) noexcept : count_(std::exchange(other.count_, nullptr)) {}
        Ticket& operator=(Ticket&& other) noexcept {
            std::swap(count_, other.count_);
            return *this;
        }
        ~Ticket() {
            if (count_ != nullptr) count_->taken_.fetch_sub(1, std::memory_order_relaxed);
        }
        explicit operator bool() const { return count_ != nullptr; }

      private:
        friend class ObjectQuota;
        explicit Ticket(ObjectQuota& count) : count_(&count) {}
        ObjectQuota* count_ = nullptr;
    };

    Ticket take() {
        uint32_t taken = taken_.load(std::memory_order_relaxed);
        do {
            if (taken == limit_) return {};
        } while (!taken_.compare_exchange_weak(taken, taken + 1, std::memory_order_relaxed));
        return Ticket(*this);
    }
    uint32_t taken() const { return taken_.load(std::memory_order_relaxed); }

  private:
    const uint32_t limit_;
    std::atomic<uint32_t> taken_{0};
};

}  // namespace rove::verbs
