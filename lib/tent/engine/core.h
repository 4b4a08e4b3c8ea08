// SPDX-License-Identifier: Apache-2.0
// An engine's shards (shard.h), and what they have in common. Each peer belongs to one of them, so threads that
// transfer to peers of different shards do not wait for each other.
//
// Shards agree on priorities: a shard that has more of a level than it had time for says so, and others leave lower
// levels waiting and make a round of that shard first. A thread that drives one shard looks after the others now and
// then, so that what is under way there goes on though the program asks for something else.
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
    // So many may be under way at once, in all requests: what is too much is refused, so a queue is never full.
    static constexpr uint32_t kMaxSlices = 262'144;
    // Of these, so many are kept for higher priorities: one who fills the engine with LOW does not get HIGH refused.
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
    // Of a connection: greater than all before.
    uint64_t next_number() { return next_number_.fetch_add(1); }
    const Credentials& credentials() const { return credentials_; }
    void set_credentials(Credentials credentials) { credentials_ = std::move(credentials); }
    void set_slots(std::unique_ptr<Slots> slots) { slots_ = std::move(slots); }
    Slots* slots() { return slots_.get(); }
    void set_selector(TransportSelector selector) { selector_.emplace(std::move(selector)); }
    const TransportSelector& selector() const { return *selector_; }

    std::span<const std::unique_ptr<Shard>> shards() const { return shards_; }
    Shard& shard(size_t index) const { return *shards_[index]; }
    // For a peer that is new.
    uint8_t next_shard() { return static_cast<uint8_t>(turn_.fetch_add(1) % shards_.size()); }
    uint64_t unfinished() const;  // tasks

    // --- of shards, any thread ---
    // More of the levels with a bit (1 << level) could go than the shard had time for.
    void set_more(uint8_t shard, uint8_t levels);
    // Whether another shard has said so of a level before this one. Relaxed: seen late it costs one round.
    bool others_have_more(uint8_t shard, uint8_t before_level) const;
    // A request of this priority begins, or something of it was carried.
    void note_use(Priority priority, uint64_t now_ns) {
        std::atomic<uint64_t>& used_ns = used_ns_[index(priority)];
        if (now_ns >= used_ns.load(std::memory_order_relaxed) + kUseStepNs)
            used_ns.store(now_ns, std::memory_order_relaxed);
    }
    // The first priority that is in use, or was lately: what is below it keeps out of its way. kPriorities: none.
    uint8_t first_in_use(uint64_t now_ns) const;
    // Makes a round of those.
    void help(uint8_t shard) const;
    // Makes a round of another shard that has something under way.
    void look_after_another(uint8_t shard) const;

    // Called when a batch that was freed has nothing under way any more.
    std::function<void(Batch&)> recycle;
    // Called when the peer of the task must be asked what it publishes; then Shard::refreshed() is called.
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
    std::array<std::atomic<uint32_t>, kPriorities> more_{};                 // by level: shards as bits
    alignas(64) std::array<std::atomic<uint64_t>, kPriorities> used_ns_{};  // as note_use() was told
    std::vector<std::unique_ptr<Shard>> shards_;
};

}  // namespace rove::tent
