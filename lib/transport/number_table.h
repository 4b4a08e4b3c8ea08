// SPDX-License-Identifier: Apache-2.0
// The objects of a process by the number that packets carry. Control calls change it while workers look objects up: a
// slot is one pointer that is stored with release and loaded with acquire order. A caller that removes an object waits
// until no worker can use it any more before it frees the memory.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <vector>

#include "base/secret.h"
#include "transport/quiescence.h"

namespace rove::transport {

// A number is an index (low 16 bits) and a generation (high 8 bits). The first index and the step to the next are
// random, and so is each index's first generation. An index is reused after all others, with the next generation, so
// that late packets of a destroyed object do not find its successor.
template <class T, uint32_t T::*number>
class NumberTable {
  public:
    static constexpr uint32_t kEntries = 1u << 16;
    static constexpr uint32_t kFirst = 16;  // QPN 0 and 1 are special, IBTA 3.5.3; the rest is reserved for us
    // The last index is left out: with generation 255 it would be the multicast QPN.
    static constexpr uint32_t kCapacity = kEntries - 1 - kFirst;

    // Tables with the same secret and different `salt`, below 2^32, have different numbers.
    explicit NumberTable(const Secret& secret, uint64_t salt = 0) : entries_(kEntries), generations_(kEntries) {
        salt <<= 32;
        for (uint32_t index = 0; index < kEntries; ++index)
            generations_[index] = static_cast<uint8_t>(secret.hash(salt | index));
        const uint64_t random = secret.hash(salt | kEntries);
        next_ = static_cast<uint32_t>(random) % kEntries;
        step_ = static_cast<uint32_t>(random >> 32) % kEntries | 1;  // odd, so that it reaches each index
    }
    // Gives `object` a number and publishes it, after all other fields that workers read were set. Returns false if all
    // numbers are in use.
    bool insert(T& object) {
        const std::lock_guard lock(mutex_);
        for (uint32_t tried = 0; tried < kEntries; ++tried) {
            const uint32_t index = next_;
            next_ = (next_ + step_) % kEntries;
            if (index < kFirst || index == kEntries - 1 || entries_[index].load(std::memory_order_relaxed) != nullptr)
                continue;
            object.*number = static_cast<uint32_t>(generations_[index]++) << 16 | index;
            entries_[index].store(&object, std::memory_order_release);
            return true;
        }
        return false;
    }
    // Removes the object from look-ups.
    void remove(T& object) {
        const std::lock_guard lock(mutex_);
        entries_[object.*number & (kEntries - 1)].store(nullptr, std::memory_order_release);
    }
    T* find(uint32_t wanted) const {
        T* object = entries_[wanted & (kEntries - 1)].load(std::memory_order_acquire);  // pairs with insert()
        return object != nullptr && object->*number == wanted ? object : nullptr;
    }
    // Prefetch, for a later look-up, the slot and then the object in it.
    void prefetch(uint32_t wanted) const { __builtin_prefetch(&entries_[wanted & (kEntries - 1)]); }
    void prefetch_object(uint32_t wanted) const {
        const T* const object = entries_[wanted & (kEntries - 1)].load(std::memory_order_relaxed);
        if (object == nullptr) return;
        for (size_t at = 0; at < sizeof(T); at += 64) __builtin_prefetch(reinterpret_cast<const char*>(object) + at);
    }
    // Calls `visit(T&)` for each object.
    void for_each(const AllWorkersQuiesced&, auto&& visit) const {
        for (const auto& entry : entries_)
            if (T* object = entry.load(std::memory_order_acquire)) visit(*object);
    }

  protected:
    std::vector<std::atomic<T*>> entries_;

  private:
    std::mutex mutex_;  // among control calls, for the following
    std::vector<uint8_t> generations_;
    uint32_t next_, step_;
};

}  // namespace rove::transport
