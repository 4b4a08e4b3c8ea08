// SPDX-License-Identifier: Apache-2.0
// A part of the engine: some of its peers, what happens to their tasks and slices once they are queued, and whose turn
// it is to make progress.
//
// The drive lock. Whoever holds it is the shard: it takes slices from queues, posts, polls, retries, finishes tasks. A
// program's thread takes it for one round at a time in submitTransfer() and getTransferStatus(), unless another has it;
// the background thread (background.h) does while the program is elsewhere. Nothing that may block is done with it:
// that is for jobs, which take it to bring back what came of it. Nor is what takes long: whoever made a round copies
// memory after it, without the lock (Backend::work()), and so do threads that find somebody else driving.
//
// A round takes completions of all transports, and then moves what waits, level by level: HIGH of all peers and
// transports before MEDIUM of all before LOW of all. A level of which more could go when everybody had a turn keeps
// lower ones waiting until the next round.
//
// Time. A request of which nothing is carried for max_timeout_ns ends as TIMEOUT, unless it waits behind others of its
// priority of which something is. So a request may take as long as it needs, and none waits for ever. What is under way
// then is given up by its transport.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "base/drive_lock.h"
#include "tent/config/config.h"
#include "tent/control/credentials.h"
#include "tent/control/jobs.h"
#include "tent/engine/backend.h"
#include "tent/engine/peer.h"
#include "tent/engine/task.h"
#include "tent/observability/histogram.h"

namespace rove::tent {

struct TransportCounters {
    uint64_t read_bytes = 0, write_bytes = 0, slices = 0;
    uint64_t retries = 0;    // slices tried again on the same transport
    uint64_t failovers = 0;  // slices given to another transport
};

struct PriorityCounters {
    uint64_t requests = 0, bytes = 0;  // complete
    uint64_t failed = 0, timed_out = 0, canceled = 0;
};

struct SlotCounters {
    uint64_t slices = 0, bytes = 0;  // that were done in it
};

class Core;

class Shard {
  public:
    Shard(Core& core, uint8_t number) : core_(core), number_(number) {}

    uint8_t number() const { return number_; }
    // Of the engine (core.h).
    const ::rove::tent::Config& config() const;
    Jobs& jobs();
    SlicePool& pool();
    uint64_t next_number();
    const Credentials& credentials() const;

    // Before anything is submitted.
    void add_backend(std::unique_ptr<Backend> backend);
    // Null: there is none.
    Backend* backend(Transport transport) const { return by_transport_[static_cast<size_t>(transport)]; }
    std::span<const std::unique_ptr<Backend>> backends() const { return backends_; }

    // --- the drive lock ---
    // A round, if nobody else makes one; now and then, and when that goes first, one of another shard.
    void try_drive();
    // The same of this shard alone.
    void drive();
    // For a submitter, who then queues without atomics and calls dispatch(): unless somebody else makes a round.
    std::unique_lock<DriveLock> try_lock() {
        std::unique_lock lock(drive_, std::try_to_lock);
        if (!lock.owns_lock()) contended_.fetch_add(1, std::memory_order_relaxed);
        return lock;
    }
    // With the lock: slices that this shard has just given back, chained by `next`; null: there are not so many.
    Slice* take_freed(uint32_t count);
    // With the lock: whether a request of this priority goes before all that waits, because nothing does.
    bool goes_at_once(Priority priority, uint64_t now_ns) const;
    // With the lock: slices were queued by `now_ns`, and go. Completions are not looked for: what is submitted in a row
    // shall go out together. Gives the lock back. `is_carried`: it was one request that went at once; that takes less
    // time than to read the clock for `held_ns`.
    void dispatch(std::unique_lock<DriveLock> lock, uint64_t now_ns, bool is_carried = false);
    // Runs `work` with the lock.
    void with_lock(const std::function<void()>& work);
    // A round of the background thread. Returns whether anything moved; `*deadline_ns`: when there is work again.
    bool background_round(uint64_t* deadline_ns);
    uint64_t latest_ns() const { return latest_ns_; }  // nothing was stamped later with the lock
    uint64_t drives() const { return drives_.load(std::memory_order_relaxed); }  // by the program's threads
    // How often try_lock() found it taken.
    uint64_t contended() const { return contended_.load(std::memory_order_relaxed); }
    uint64_t unfinished() const { return tasks_.unfinished(); }  // tasks

    // A task, which has begun for its buffer and its peer, is about to be queued. Any thread.
    void begin(Task& task, uint64_t now_ns);

    // --- with the drive lock ---
    // Bit (1 << priority): whether it may be posted now (slots).
    uint8_t allowed(uint64_t now_ns) const;
    // Whether a slice that waits is still wanted.
    bool is_wanted(const Slice& slice) const;
    // It is not, and was taken from its queue.
    void drop(Slice& slice) { release(slice); }
    // It was carried.
    void done(Slice& slice);
    // The first priority that is in use in the engine (Core).
    uint8_t first_in_use(uint64_t now_ns) const;
    // Nobody will carry it: its task fails.
    void fail(Slice& slice, Reason reason);
    // The peer refuses the access. What we know of its memory may be out of date, as it is when that was registered
    // anew: the peer is asked once, and the slice tried again with the answer.
    void refused(Slice& slice);
    // The answer: what the peer publishes now; null: there was none.
    void refreshed(Task& task, std::shared_ptr<const SegmentDesc> segment);
    // It is tried again by the transport that it was with, or, when it was too often, by another one.
    void retry(Slice& slice, uint64_t now_ns);
    // It, and what waits with it, is tried by another transport than the one of `from`.
    void move_elsewhere(Slice& slice, Transport from, uint64_t now_ns);
    // Whether there is such a one.
    bool has_another(const Task& task, Transport from) const;
    // What waits of a request in a channel of `from` is.
    void move_waiting(Task& task, Transport from, uint64_t now_ns);
    // What waits of it fails, and what is under way is not tried again.
    void fail_waiting(Task& task, Reason reason);
    // The same as TIMEOUT.
    void time_out(Task& task, Reason reason);
    uint64_t max_timeout_ns() const { return config().max_timeout_ns; }
    // Something of the task may still change the peer's memory, until drop_fence(). `closed`: it is sure that it does
    // not any more.
    void add_fence(Task& task) { ++task.fences; }
    void drop_fence(Task& task, bool closed);

    std::array<TransportCounters, kTransports> transports{};
    std::array<PriorityCounters, kPriorities> priorities{};
    std::array<SlotCounters, kPriorities> slot_counters{};  // as many slots as priorities
    std::array<std::array<RequestHistograms, kTransports>, kPriorities> histograms{};
    // For how long the drive lock was held at a time in which something was done: by the clock, which goes on while the
    // holder has lost its core.
    Histogram held_ns;
    // Of one such time in kSampled: what its holder ran meanwhile; and how many holders slept.
    Histogram ran_ns;
    uint64_t slept = 0;

  private:
    static constexpr uint32_t kFailuresBeforeYield = 16;
    static constexpr uint32_t kLooks = 4;        // that try_drive() takes at most, until one finds something
    static constexpr uint32_t kQuickPolls = 32;  // the last of so many looks that find nothing is a whole round
    static constexpr uint32_t kOthers = 16;      // one of so many calls of try_drive() is for another shard, too

    static constexpr uint64_t kDeadlinesNs = 1'000'000;  // between two looks at deadlines
    static constexpr uint32_t kSampled = 1024;           // system calls: four of some 0.3 us in so many rounds

    using Lock = std::unique_lock<DriveLock>;

    bool round(uint64_t now_ns);
    bool nothing_waits() const;
    // The lock was taken: the time.
    uint64_t locked();
    // It was taken at `since_ns`, and is given back.
    void unlock(Lock& lock, uint64_t since_ns);
    void begin_sample();
    void end_sample();
    // Without the lock: what transports do without it, and then a round for what came of that.
    void work_unlocked();
    bool move(uint64_t now_ns);
    // Of which levels more could go, and whether others' higher ones go first.
    void tell_others(uint8_t more, bool is_kept_back);
    void look_at_deadlines(uint64_t now_ns);
    Task* first_late(uint64_t now_ns);  // whose own deadline has passed; null: there is none
    void drop_waiting(Task& task);
    void release(Slice& slice);
    void finish(Task& leader);
    void finish_one(Task& task);
    bool is_canceled(const Slice& slice) const;

    Core& core_;
    const uint8_t number_;
    std::vector<std::unique_ptr<Backend>> backends_;
    std::array<Backend*, kTransports> by_transport_{};

    // Lines of their own: what those who wait read, what they write, and what the holder of the lock does.
    alignas(64) DriveLock drive_;
    alignas(64) std::atomic<uint64_t> contended_{0};
    TaskCount tasks_;
    alignas(64) std::atomic<uint64_t> drives_{0};
    uint64_t latest_ns_ = 0;  // nothing was stamped later with the lock
    uint64_t deadlines_ns_ = 0;
    std::mutex dated_mutex_;
    std::multimap<uint64_t, Task*> dated_;  // requests with a deadline of their own
    std::atomic<size_t> dated_count_{0};
    uint32_t polls_ = 0, holds_ = 0;
    bool is_sampled_ = false;
    uint64_t sample_ran_ns_ = 0, sample_sleeps_ = 0;  // of the holder, when it was begun
    uint8_t more_ = 0;                                // as Core was told
    std::atomic<bool> is_kept_back_{false};           // by what other shards have of higher levels
    // Slices that were given back, of which a few stay here for the next requests.
    static constexpr uint32_t kKeptSlices = 64;
    Slice* freed_first_ = nullptr;
    Slice* freed_last_ = nullptr;
    uint32_t freed_ = 0;
};

}  // namespace rove::tent
