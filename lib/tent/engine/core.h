// SPDX-License-Identifier: Apache-2.0
// An engine's shards (shard.h), and the state that they share. Each peer belongs to one shard, so threads that transfer
// to peers of different shards do not wait for each other.
//
// Shards agree on priorities. A shard that had too little time for all slices of a level announces this. The other
// shards then leave lower levels waiting and make a round of that shard first. A thread that drives one shard
// occasionally makes a round of another, so that unfinished tasks there advance even if the program asks only for
// others.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "tent/config/config.h"
#include "tent/control/credentials.h"
#include "tent/control/jobs.h"
#include "tent/engine/task.h"
#include "tent/qos/slots.h"

namespace rove::tent {

class Shard;

class Core {
  public:
    // The limit on unfinished slices, over all requests. Requests above it are refused, so a queue is never full.
    static constexpr uint32_t kMaxSlices = 262'144;
    // The part of kMaxSlices that is reserved for higher priorities. A program that fills the engine with LOW requests
    // does not get its HIGH requests refused.
    static constexpr std::array<uint32_t, kPriorities> kReserve{0, kMaxSlices / 8, kMaxSlices / 4};

    explicit Core(const ::rove::tent::Config& config);
    ~Core();
    Core(const Core&) = delete;
    Core& operator=(const Core&) = delete;

    const ::rove::tent::Config& config() const { return config_; }
    Jobs& jobs() { return jobs_; }
    SlicePool& pool() { return pool_; }
    uint64_t instance() const { return instance_; }
    void set_instance(uint64_t instance) { instance_ = instance; }
    // Returns a number for a connection, which is greater than all numbers before it.
    uint64_t next_number() { return next_number_.fetch_add(1); }
    const Credentials& credentials() const { return credentials_; }
    void set_credentials(Credentials credentials) { credentials_ = std::move(credentials); }
    void set_slots(std::unique_ptr<Slots> slots) { slots_ = std::move(slots); }
    Slots* slots() { return slots_.get(); }
    void set_selector(TransportSelector selector) { selector_.emplace(std::move(selector)); }
    const TransportSelector& selector() const { return *selector_; }

    std::span<const std::unique_ptr<Shard>> shards() const { return shards_; }
    Shard& shard(size_t index) const { return *shards_[index]; }
    // Returns the shard for a new peer.
    uint8_t next_shard() { return static_cast<uint8_t>(turn_.fetch_add(1) % shards_.size()); }
    uint64_t unfinished() const;  // unfinished tasks

    // --- called by shards, on any thread ---

    // Records the levels, as bits (1 << level), of which more could move than the shard had time for.
    void set_more(uint8_t shard, uint8_t levels);
    // Returns true if another shard has called set_more() for a level before this one. The loads are relaxed: a value
    // that is seen late costs one round.
    bool others_have_more(uint8_t shard, uint8_t before_level) const;
    // Records that a request of this priority begins, or that part of it was carried.
    void note_use(Priority priority, uint64_t now_ns) {
        std::atomic<uint64_t>& used_ns = used_ns_[index(priority)];
        if (now_ns >= used_ns.load(std::memory_order_relaxed) + kUseStepNs)
            used_ns.store(now_ns, std::memory_order_relaxed);
    }
    // Returns the first priority that is in use or was used within kLatelyNs, or kPriorities if there is no such
    // priority. Lower priorities keep out of its way.
    uint8_t first_in_use(uint64_t now_ns) const;
    // Makes a round of each other shard that has more of any level except the lowest.
    void help(uint8_t shard) const;
    // Makes a round of another shard that has unfinished tasks.
    void look_after_another(uint8_t shard) const;

    // Called when a freed batch has no unfinished tasks left.
    std::function<void(Batch&)> recycle;
    // Called when the peer of the task must be asked which memory it publishes. Shard::refreshed() is called
    // afterwards.
    std::function<void(Task&)> refresh;
    // Called when all tasks of an announcement are complete.
    std::function<void(std::shared_ptr<Announcement>)> announce;

  private:
    static constexpr uint64_t kUseStepNs = 1'000'000, kLatelyNs = 50'000'000;

    const ::rove::tent::Config config_;
    uint64_t instance_ = 0;
    std::atomic<uint64_t> next_number_{1};
    std::atomic<uint32_t> turn_{0};
    Credentials credentials_;
    Jobs jobs_;
    SlicePool pool_;
    std::unique_ptr<Slots> slots_;
    std::optional<TransportSelector> selector_;
    std::array<std::atomic<uint32_t>, kPriorities> more_{};  // shards as bits, indexed by level
    // Time of the last note_use(), indexed by priority.
    alignas(64) std::array<std::atomic<uint64_t>, kPriorities> used_ns_{};
    std::vector<std::unique_ptr<Shard>> shards_;
};

}  // namespace rove::tent
