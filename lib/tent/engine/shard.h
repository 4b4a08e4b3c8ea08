// SPDX-License-Identifier: Apache-2.0
// A part of the engine: some of its peers, and their tasks and slices from the queue to completion.
//
// The drive lock. Its holder acts for the shard: it takes slices from queues, posts, polls, retries, and finishes
// tasks. A program's thread holds it for one round at a time in submitTransfer() and getTransferStatus(), unless
// another thread has it; the background thread (background.h) does so while the program does not call. Holders never
// block: blocking work belongs to jobs, which take the lock to return their results. Long work is excluded, too: a
// thread copies memory after its round, without the lock (Backend::work()), and so do threads that find the lock taken.
//
// A round processes completions of all transports, and then moves waiting slices level by level: HIGH of all peers and
// transports before MEDIUM of all before LOW of all. A level that could send more after every peer had its turn holds
// back lower levels until the next round.
//
// Time. A request without progress for max_timeout_ns ends as TIMEOUT, unless it waits behind others of its priority
// that make progress. A request may thus take as long as it needs, and none waits for ever. Its transport then gives up
// the slices in flight.
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
    // The engine's (core.h).
    const ::rove::tent::Config& config() const;
    Jobs& jobs();
    SlicePool& pool();
    uint64_t next_number();
    const Credentials& credentials() const;

    // Adds a transport. Called before the first submission.
    void add_backend(std::unique_ptr<Backend> backend);
    // Returns null if there is no such transport.
    Backend* backend(Transport transport) const { return by_transport_[static_cast<size_t>(transport)]; }
    std::span<const std::unique_ptr<Backend>> backends() const { return backends_; }

    // --- the drive lock ---
    // Makes a round, if no other thread makes one; at intervals, and when another shard's requests have precedence,
    // also one of another shard.
    void try_drive();
    // Makes a round of this shard only.
    void drive();
    // Takes the lock for a submitter, unless another thread makes a round. The submitter then queues without atomics
    // and calls dispatch().
    std::unique_lock<DriveLock> try_lock() {
        std::unique_lock lock(drive_, std::try_to_lock);
        if (!lock.owns_lock()) contended_.fetch_add(1, std::memory_order_relaxed);
        return lock;
    }
    // Returns slices that this shard has just released, linked by `next`, or null if there are too few. Needs the lock.
    Slice* take_freed(uint32_t count);
    // Returns true if a request of this priority goes at once because nothing waits. Needs the lock.
    bool goes_at_once(Priority priority, uint64_t now_ns) const;
    // Sends slices that were queued by `now_ns`, and releases the lock. It does not poll for completions, so that
    // consecutive submissions leave together. `is_carried` is true for one request that went at once; that takes less
    // time than reading the clock for `held_ns`.
    void dispatch(std::unique_lock<DriveLock> lock, uint64_t now_ns, bool is_carried = false);
    // Runs `work` with the lock.
    void with_lock(const std::function<void()>& work);
    // Makes a round of the background thread. Returns true if it made progress; sets `*deadline_ns` to the time of the
    // next work.
    bool background_round(uint64_t* deadline_ns);
    uint64_t latest_ns() const { return latest_ns_; }                            // the latest time stamp under the lock
    uint64_t drives() const { return drives_.load(std::memory_order_relaxed); }  // rounds of the program's threads
    // Returns how often try_lock() found the lock taken.
    uint64_t contended() const { return contended_.load(std::memory_order_relaxed); }
    uint64_t unfinished() const { return tasks_.unfinished(); }  // number of tasks

    // Announces a task that has begun at its buffer and its peer and will be queued. Any thread may call it.
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
    // Returns the first priority that is in use in the engine (Core).
    uint8_t first_in_use(uint64_t now_ns) const;
    // Fails the slice's task, because no transport can carry it.
    void fail(Slice& slice, Reason reason);
    // Handles a peer's refusal. Our description of its memory may be out of date, for example after a new registration:
    // the shard asks the peer once, and tries the slice again with the answer.
    void refused(Slice& slice);
    // Handles the answer: the peer's current description, or null without an answer.
    void refreshed(Task& task, std::shared_ptr<const SegmentDesc> segment);
    // Tries the slice again with its transport, or after too many attempts with another one.
    void retry(Slice& slice, uint64_t now_ns);
    // Moves the slice, and the waiting slices of its task, from the transport `from` to another one.
    void move_elsewhere(Slice& slice, Transport from, uint64_t now_ns);
    // Returns true if there is another transport.
    bool has_another(const Task& task, Transport from) const;
    // Moves the waiting slices of a task from the channel of `from`.
    void move_waiting(Task& task, Transport from, uint64_t now_ns);
    // Fails the waiting slices of a task. Slices in flight are not tried again.
    void fail_waiting(Task& task, Reason reason);
    // Does the same with the state TIMEOUT.
    void time_out(Task& task, Reason reason);
    uint64_t max_timeout_ns() const { return config().max_timeout_ns; }
    // Records that the task may still change the peer's memory, until drop_fence(). `closed` tells that it certainly
    // cannot any more.
    void add_fence(Task& task) { ++task.fences; }
    void drop_fence(Task& task, bool closed);

    std::array<TransportCounters, kTransports> transports{};
    std::array<PriorityCounters, kPriorities> priorities{};
    std::array<SlotCounters, kPriorities> slot_counters{};  // there are as many slots as priorities
    std::array<std::array<RequestHistograms, kTransports>, kPriorities> histograms{};
    // How long the drive lock was held by a round that made progress. The clock also runs while the holder has lost its
    // core.
    Histogram held_ns;
    // One round in kSampled: the CPU time of the holder; and the number of holders that slept.
    Histogram ran_ns;
    uint64_t slept = 0;

  private:
    static constexpr uint32_t kFailuresBeforeYield = 16;
    // The most rounds of one try_drive(), which stops at the first that finds something.
    static constexpr uint32_t kLooks = 4;
    static constexpr uint32_t kQuickPolls = 32;  // every 32nd round that finds nothing is a whole round
    static constexpr uint32_t kOthers = 16;      // every 16th call of try_drive() also serves another shard

    static constexpr uint64_t kDeadlinesNs = 1'000'000;  // between two checks of deadlines
    // Limits the cost of system calls: four of some 0.3 us in this many rounds.
    static constexpr uint32_t kSampled = 1024;

    using Lock = std::unique_lock<DriveLock>;

    bool round(uint64_t now_ns);
    bool nothing_waits() const;
    // Is called after the lock was taken. Returns the time.
    uint64_t locked();
    // It was taken at `since_ns`, and is given back.
    void unlock(Lock& lock, uint64_t since_ns);
    void begin_sample();
    void end_sample();
    // Does the work of transports that needs no lock, and then makes a round for its results.
    void work_unlocked();
    bool move(uint64_t now_ns);
    // Tells the other shards at which levels more could be sent, and whether their higher levels go first.
    void tell_others(uint8_t more, bool is_kept_back);
    void look_at_deadlines(uint64_t now_ns);
    Task* first_late(uint64_t now_ns);  // a task whose own deadline has passed, or null
    void drop_waiting(Task& task);
    void release(Slice& slice);
    void finish(Task& leader);
    void finish_one(Task& task);
    bool is_canceled(const Slice& slice) const;

    Core& core_;
    const uint8_t number_;
    std::vector<std::unique_ptr<Backend>> backends_;
    std::array<Backend*, kTransports> by_transport_{};

    // Separate cache lines for data that waiting threads read, data that they write, and data of the holder.
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
    uint64_t sample_ran_ns_ = 0, sample_sleeps_ = 0;  // the holder's values when the sample began
    uint8_t more_ = 0;                                // the value that Core was told
    std::atomic<bool> is_kept_back_{false};           // held back by higher levels of other shards
    // Released slices, of which some stay here for the next requests.
    static constexpr uint32_t kKeptSlices = 64;
    Slice* freed_first_ = nullptr;
    Slice* freed_last_ = nullptr;
    uint32_t freed_ = 0;
};

}  // namespace rove::tent
