// SPDX-License-Identifier: Apache-2.0
// What happens to tasks and slices once they are queued, and whose turn it is to make progress.
//
// The drive lock. Whoever holds it is the engine: it takes slices from queues, posts, polls, retries, finishes tasks. A
// program's thread takes it for one round at a time in submitTransfer() and getTransferStatus(), unless another has it;
// the background thread (background.h) does while the program is elsewhere. Nothing that may block is done with it:
// that is for jobs, which take it to bring back what came of it.
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
#include <optional>
#include <vector>

#include "datapath/drive_lock.h"
#include "tent/backend.h"
#include "tent/config.h"
#include "tent/control/credentials.h"
#include "tent/control/jobs.h"
#include "tent/histogram.h"
#include "tent/peer.h"
#include "tent/slots.h"
#include "tent/task.h"

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

class Core {
  public:
    // So many may be under way at once, in all requests: what is too much is refused, so a queue is never full.
    static constexpr uint32_t kMaxSlices = 65536;
    // Of these, so many are kept for higher priorities: one who fills the engine with LOW does not get HIGH refused.
    static constexpr std::array<uint32_t, kPriorities> kReserve{0, kMaxSlices / 8, kMaxSlices / 4};

    explicit Core(const ::rove::tent::Config& config) : config_(config), pool_(kMaxSlices) {}

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
    std::array<std::unique_ptr<Backend>, kTransports>& backends() { return backends_; }
    const std::array<std::unique_ptr<Backend>, kTransports>& backends() const { return backends_; }

    // --- the drive lock ---
    // A round, if nobody else makes one.
    void try_drive();
    // For a submitter, who then queues without atomics and calls dispatch(): unless somebody else makes a round.
    std::unique_lock<datapath::DriveLock> try_lock() { return {drive_, std::try_to_lock}; }
    // With the lock: slices were queued for `transports` (bits 1 << id) by `now_ns`, and go. Completions are not looked
    // for: what is submitted in a row shall go out together.
    void dispatch(uint32_t transports, uint64_t now_ns);
    // Runs `work` with the lock.
    void with_lock(const std::function<void()>& work);
    // A round of the background thread. Returns whether anything moved; `*deadline_ns`: when there is work again.
    bool background_round(uint64_t* deadline_ns);
    uint64_t latest_ns() const { return latest_ns_; }  // nothing was stamped later with the lock
    uint64_t drives() const { return drives_.load(std::memory_order_relaxed); }  // by the program's threads
    uint64_t unfinished() const { return tasks_.unfinished(); }

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
    // What waits of a request in a channel of `from` is.
    void move_waiting(Task& task, Transport from, uint64_t now_ns);
    // What waits of it fails, and what is under way is not tried again.
    void fail_waiting(Task& task, Reason reason);
    // The same as TIMEOUT.
    void time_out(Task& task, Reason reason);
    uint64_t max_timeout_ns() const { return config_.rdma.max_timeout_ns; }
    // Something of the task may still change the peer's memory, until drop_fence(). `closed`: it is sure that it does
    // not any more.
    void add_fence(Task& task) { ++task.fences; }
    void drop_fence(Task& task, bool closed);

    std::array<TransportCounters, kTransports> transports{};
    std::array<PriorityCounters, kPriorities> priorities{};
    std::array<SlotCounters, kPriorities> slot_counters{};  // as many slots as priorities
    std::array<std::array<RequestHistograms, kTransports>, kPriorities> histograms{};

    // Called when a batch that was freed has nothing under way any more.
    std::function<void(Batch&)> recycle;
    // Called when the peer of the task must be asked what it publishes; then refreshed() is called.
    std::function<void(Task&)> refresh;
    // Called when all tasks of an announcement are complete.
    std::function<void(std::shared_ptr<Announcement>)> announce;

  private:
    static constexpr uint32_t kFailuresBeforeYield = 16;
    static constexpr uint32_t kLooks = 4;       // that try_drive() takes at most, until one finds something
    static constexpr uint32_t kQuickPolls = 32;  // the last of so many looks that find nothing is a whole round

    static constexpr uint64_t kDeadlinesNs = 1'000'000;  // between two looks at deadlines

    bool round(uint64_t now_ns);
    bool move(uint32_t transports, uint64_t now_ns);
    void look_at_deadlines(uint64_t now_ns);
    Task* first_late(uint64_t now_ns);  // whose own deadline has passed; null: there is none
    void drop_waiting(Task& task);
    void release(Slice& slice);
    void finish(Task& leader);
    void finish_one(Task& task);
    bool is_canceled(const Slice& slice) const;

    const ::rove::tent::Config config_;
    uint64_t instance_ = 0;
    std::atomic<uint64_t> next_number_{1};
    Credentials credentials_;
    Jobs jobs_;
    SlicePool pool_;
    std::unique_ptr<Slots> slots_;
    std::optional<TransportSelector> selector_;
    std::array<std::unique_ptr<Backend>, kTransports> backends_;

    datapath::DriveLock drive_;
    std::atomic<uint64_t> drives_{0};
    TaskCount tasks_;
    uint64_t latest_ns_ = 0;  // nothing was stamped later with the lock
    uint64_t deadlines_ns_ = 0;
    std::mutex dated_mutex_;
    std::multimap<uint64_t, Task*> dated_;  // requests with a deadline of their own
    std::atomic<size_t> dated_count_{0};
    uint32_t polls_ = 0;
    // Slices that were given back in this round.
    Slice* freed_first_ = nullptr;
    Slice* freed_last_ = nullptr;
};

}  // namespace rove::tent
