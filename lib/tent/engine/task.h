// SPDX-License-Identifier: Apache-2.0
// A request under way (Task), its parts (Slice), and what was submitted together (Batch). All of it comes from pools:
// the way from submit to completion allocates nothing. Units: bytes, nanoseconds of CLOCK_MONOTONIC.
//
// Who may touch what: a submitter fills slices and tasks before it queues them; from then on they belong to the holder
// of the shard's drive lock (shard.h). Others read a task's `state` and `transferred` only, and set `canceled`.
#pragma once

#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/spin_lock.h"
#include "tent/engine/priority_queues.h"
#include "tent/engine/segment.h"
#include "tent/memory/memory.h"
#include "tent/placement/device_selector.h"
#include "tent/placement/slicing.h"
#include "tent/placement/transport_selector.h"

namespace rove::tent {

class Peer;
struct Batch;
struct Task;

// Why a request did not end as COMPLETED.
enum class Reason : uint8_t {
    kNone,
    kNoProgress,    // TIMEOUT: nothing of it was carried for max_timeout_ns
    kSlotsClosed,   // the same, while the slots of other priorities kept it waiting
    kNoRail,        // the same, while no port reached the peer's
    kDeadline,      // TIMEOUT: its own deadline passed
    kRefused,       // FAILED: the peer, or our device, refuses the access
    kPeerGone,      // FAILED: the peer's process has ended
    kNoTransport,   // FAILED: no transport is left that could carry it
    kNotConfirmed,  // FAILED: the peer did not confirm that a connection which broke changes nothing any more
};
const char* text(Reason reason);

struct alignas(64) Slice : Queued {
    Task* task = nullptr;
    Task* part = nullptr;  // the first request of which it has bytes: `task`, or one that was merged into that
    uint8_t* local = nullptr;
    uint64_t remote = 0;  // the peer's address, or the offset in a file
    uint64_t length = 0;
    uint32_t attempts = 0;
    uint32_t index = 0;        // in the pool
    bool was_refused = false;  // by the peer, once (Core::refused)
    // What a transport has to remember of it. All zero at first, and no other one's affair: what was written there
    // stays when the slice is used for another request.
    alignas(8) std::array<std::byte, 56> notes{};
};

// Tells the targets of a submit once, when all of it is complete.
struct Announcement {
    std::string name, message;
    std::vector<std::shared_ptr<Peer>> targets;
    std::atomic<uint32_t> tasks_left{0};  // until all are complete
};

// What of a request's slices each device is to carry, as it was allotted (rdma_channel.h).
struct Shares {
    uint64_t devices = 0;  // those that still have any
    std::array<uint32_t, DeviceSelector::kMaxDevices> slices{};
    std::array<uint64_t, DeviceSelector::kMaxDevices> bytes{};  // charged
};

// What a completion needs comes first, in few cache lines: the data of the requests under way has driven them out of
// the near caches.
struct alignas(64) Task : Waiting {
    Batch* batch = nullptr;
    std::atomic<TransferStatusEnum> state{TransferStatusEnum::INITIAL};
    bool is_write = false;
    uint8_t shard = 0;  // of `peer`
    uint8_t lane = 0;   // of who submitted it (thread_lane.h)
    std::atomic<bool> canceled{false};
    bool failed = false, timed_out = false;
    Reason reason = Reason::kNone;  // of `failed` and `timed_out`
    bool is_allotted = false;       // `shares` are of this request
    bool is_led = false;            // it continues another (next_part)
    uint32_t slices_left = 0;
    // connections that must be closed at the peer before this is reported complete (rdma/connection.h)
    uint32_t fences = 0;
    uint64_t target = 0;  // the peer's address, or the offset in a file
    uint64_t bytes = 0;
    std::atomic<uint64_t> transferred{0};
    uint64_t submitted_ns = 0;
    uint64_t progress_ns = 0;   // when it was submitted, or something of it last carried
    Task* next_part = nullptr;  // merged (merging.h): the request that continues this one

    // These stay when it is finished: most often the next request needs them again.
    std::shared_ptr<LocalBuffer> local;
    std::shared_ptr<Peer> peer;
    std::shared_ptr<Announcement> announcement;
    Selection selection;

    uint8_t* source = nullptr;
    SlicePlan plan;                              // with those that continue it
    std::shared_ptr<const SegmentDesc> segment;  // stays, too
    const BufferDesc* remote = nullptr;          // of `segment`
    Slice* refused = nullptr;                    // those that wait for another `segment`
    SelectionContext context;
    std::unique_ptr<Shares> shares;                // stays, too
    uint64_t deadline_ns = kNever;                 // of its own: it ends as TIMEOUT then; kNever: it has none
    uint32_t failovers = 0;                        // transports that it was moved away from
    uint32_t excluded = 0;                         // ... as bits (1 << id)
    uint64_t handle = 0;                           // whose `peer` is
    uint64_t memory_change = 0, peers_change = 0;  // as of LocalMemory and Peers when `local` and `peer` were found
};

// Of a batch: one submit at a time. Held for a moment, and for seconds while a stale segment is fetched, so who waits
// sleeps. As good as nobody does: half of what a std::mutex costs is for telling who waits.
class SubmitLock {
  public:
    void lock() {
        while (taken_.exchange(true, std::memory_order_acquire)) usleep(100);
    }
    void unlock() { taken_.store(false, std::memory_order_release); }

  private:
    std::atomic<bool> taken_{false};
};

struct alignas(64) Batch {
    std::atomic<uint64_t> id{0};
    std::unique_ptr<Task[]> tasks;
    uint32_t capacity = 0;               // of `tasks`
    uint32_t limit = 0;                  // tasks that the program asked for
    std::atomic<uint32_t> submitted{0};  // tasks
    std::atomic<uint32_t> users{0};      // kProgram, and the number of tasks under way: the last of them recycles it
    std::atomic<uint32_t> shards{0};     // of its tasks, as bits
    uint32_t slot = 0;                   // in the engine's table
    uint8_t lane = 0;                    // of who allocated it (thread_lane.h)
    std::atomic<uint32_t> next_free{0};  // slot + 1 of the next one that nobody uses; 0: none
    SubmitLock submitting;
    static constexpr uint32_t kProgram = 1u << 31;  // the program has not freed it
    // So many tasks, from the first on, are known to be complete, and had so many bytes: whoever asks again begins
    // behind them, if it gets `walking`.
    std::atomic<bool> walking{false};
    uint32_t walked = 0;
    uint64_t walked_bytes = 0;
};

// Slices that nobody uses. The lock is taken once for many.
class SlicePool {
  public:
    // At most `limit`; memory is taken when that many are needed for the first time.
    explicit SlicePool(size_t limit);
    // Takes `count`, chained by `next`; null if there are not so many beside `reserve`.
    Slice* take(size_t count, size_t reserve = 0);
    // `first` to `last`, chained by `next`.
    void give(Slice* first, Slice* last);
    // By Slice::index of one that was taken.
    Slice& at(uint32_t index) { return chunks_[index / kChunk][index % kChunk]; }
    bool is_index(uint32_t index) const {
        return index / kChunk < limit_ / kChunk && chunks_[index / kChunk] != nullptr;
    }

  private:
    static constexpr size_t kChunk = 1024;

    const size_t limit_;  // a multiple of kChunk
    std::vector<std::unique_ptr<Slice[]>> chunks_;
    SpinLock lock_;
    Slice* free_ = nullptr;
    size_t free_count_ = 0, made_ = 0;
};

}  // namespace rove::tent
