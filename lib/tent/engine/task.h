// SPDX-License-Identifier: Apache-2.0
// A request in progress (Task), its parts (Slice), and the requests that a program tracks together (Batch). All of them
// come from pools, so that nothing is allocated between submission and completion. Units are bytes, and nanoseconds of
// CLOCK_MONOTONIC.
//
// Ownership: a submitter fills slices and tasks before it queues them. From then on they belong to the holder of the
// shard's drive lock (shard.h). Other threads only read a task's `state` and `transferred`, and set `canceled`.
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
    kNoProgress,    // TIMEOUT: no progress for max_timeout_ns
    kSlotsClosed,   // TIMEOUT: no progress while the slots of other priorities kept it waiting
    kNoRail,        // TIMEOUT: no progress while no port reached the peer's
    kDeadline,      // TIMEOUT: its own deadline passed
    kRefused,       // FAILED: the peer, or our device, refuses the access
    kPeerGone,      // FAILED: the peer's process has ended
    kNoTransport,   // FAILED: no transport is left
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
    uint32_t index = 0;        // its place in the pool
    bool was_refused = false;  // the peer has refused it once (Core::refused)
    // Notes of a transport. They are zero at first and only its own: the content stays when the slice is used for
    // another request.
    alignas(8) std::array<std::byte, 56> notes{};
};

// Notifies the targets of a submission once all its requests are complete.
struct Announcement {
    std::string name, message;
    std::vector<std::shared_ptr<Peer>> targets;
    std::atomic<uint32_t> tasks_left{0};  // tasks that are not complete
};

// The share of a request's slices that each device carries, as it was allotted (rdma_channel.h).
struct Shares {
    uint64_t devices = 0;  // devices that still have a share
    std::array<uint32_t, DeviceSelector::kMaxDevices> slices{};
    std::array<uint64_t, DeviceSelector::kMaxDevices> bytes{};  // charged to the devices
};

// The members that a completion needs come first, in few cache lines, because the data of the requests in flight has
// evicted them from the near caches.
struct alignas(64) Task : Waiting {
    Batch* batch = nullptr;
    std::atomic<TransferStatusEnum> state{TransferStatusEnum::INITIAL};
    bool is_write = false;
    uint8_t shard = 0;  // the peer's shard
    uint8_t lane = 0;   // the submitter's lane (thread_lane.h)
    std::atomic<bool> canceled{false};
    bool failed = false, timed_out = false;
    Reason reason = Reason::kNone;  // the reason for `failed` or `timed_out`
    bool is_allotted = false;       // true if `shares` belong to this request
    bool is_led = false;            // true if it continues another task (next_part)
    uint32_t slices_left = 0;
    // Connections that must be closed at the peer before the request is reported complete (rdma/connection.h).
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
    SlicePlan plan;                              // includes the tasks that continue it
    std::shared_ptr<const SegmentDesc> segment;  // kept for the next request
    const BufferDesc* remote = nullptr;          // a buffer of `segment`
    Slice* refused = nullptr;                    // slices that wait for another `segment`
    SelectionContext context;
    std::unique_ptr<Shares> shares;  // kept for the next request
    uint64_t deadline_ns = kNever;   // the request's own deadline, after which it ends as TIMEOUT
    uint32_t failovers = 0;          // transports that it was moved away from
    uint32_t excluded = 0;           // these transports as bits (1 << id)
    uint64_t handle = 0;             // the handle of `peer`
    // Change() of LocalMemory and Peers when `local` and `peer` were found.
    uint64_t memory_change = 0, peers_change = 0;
};

// Serializes submissions to a batch. It is held briefly, or for seconds while an outdated segment is fetched, so
// waiters sleep. Waiting is rare, and half of the cost of a std::mutex would serve to wake waiters.
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
    uint32_t capacity = 0;               // size of `tasks`
    uint32_t limit = 0;                  // tasks that the program asked for
    std::atomic<uint32_t> submitted{0};  // number of submitted tasks
    std::atomic<uint32_t> users{0};   // kProgram, and the number of tasks in progress; the last user recycles the batch
    std::atomic<uint32_t> shards{0};  // shards of its tasks, as bits
    uint32_t slot = 0;                // its place in the engine's table
    uint8_t lane = 0;                 // the allocating thread's lane (thread_lane.h)
    std::atomic<uint32_t> next_free{0};  // slot + 1 of the next unused batch; 0: none
    SubmitLock submitting;
    static constexpr uint32_t kProgram = 1u << 31;  // set until the program frees the batch
    // This many tasks from the first on are known to be complete, with this many bytes. The next query starts after
    // them if it gets `walking`.
    std::atomic<bool> walking{false};
    uint32_t walked = 0;
    uint64_t walked_bytes = 0;
};

// A pool of unused slices. Its lock is taken once for many slices.
class SlicePool {
  public:
    // Holds at most `limit` slices. Memory is allocated when that many are needed for the first time.
    explicit SlicePool(size_t limit);
    // Takes `count` slices, linked by `next`. Returns null if fewer are left without touching `reserve`.
    Slice* take(size_t count, size_t reserve = 0);
    // Returns the slices from `first` to `last`, linked by `next`.
    void give(Slice* first, Slice* last);
    // Returns the slice with this Slice::index, which must be taken.
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
