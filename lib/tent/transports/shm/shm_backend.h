// SPDX-License-Identifier: Apache-2.0
// Copies between processes of one machine. Memory that a peer allocated with allocateLocalMemory() is shared memory. It
// is mapped (shm_server.h) when the first slice for it arrives, and unmapped when the peer has freed it, has ended or
// is closed.
//
// Copies are made without the drive lock: dispatch() hands slices over, work() copies them, and progress() takes them
// back. If the driving thread submitted a slice and it is too short to be worth handing over, it is copied at once. A
// few slices are copied by the thread that submitted them, since they are in its caches. Many slices, and slices that
// have waited for a while, are copied by any thread that calls. Units: bytes.
#pragma once

#include <array>
#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "tent/engine/backend.h"
#include "tent/engine/shard.h"
#include "tent/engine/thread_lane.h"
#include "tent/transports/shm/shm_server.h"

namespace rove::tent {

class ShmBackend;

class ShmChannel : public Channel {
  public:
    ShmChannel(Shard& shard, ShmBackend& backend, Peer& peer);
    ~ShmChannel() override;

    bool available(const BufferDesc& remote) const override;
    void abandon(uint64_t now_ns) override;
    void revive(uint64_t now_ns) override;
    bool idle() const override { return jobs_ == 0 && out_ == 0; }

    Dispatched dispatch(uint8_t level, uint8_t allowed, uint64_t now_ns) override;
    // Called when a slice was copied.
    void copied(Slice& slice);
    // Unmaps memory that is no longer registered.
    void unmap_what_has_gone();

  private:
    struct Mapping {
        std::shared_ptr<PeerMemory> memory;  // null while a job maps it
        std::vector<Slice*> waiting;         // slices that wait for that job
    };

    using Mappings = std::map<ObjectId, std::shared_ptr<Mapping>>;

    // Returns the bytes that were copied here.
    uint64_t carry(Task& task, uint64_t now_ns);
    void unmap(Mappings mappings);
    void map(const ObjectId& id, std::shared_ptr<Mapping> mapping, bool writable);
    void mapped(const ObjectId& id, const std::shared_ptr<Mapping>& mapping, Fetched how,
                std::shared_ptr<PeerMemory> memory);

    Shard& shard_;
    ShmBackend& backend_;
    Peer& peer_;
    Mappings mappings_;
    std::atomic<uint64_t> down_until_ns_{0};  // deadline of the pause after a failed mapping; 0: no mapping has failed
    uint32_t jobs_ = 0;                       // jobs that refer to this channel
    uint32_t out_ = 0;                        // slices handed over to be copied
};

class ShmBackend : public Backend {
  public:
    explicit ShmBackend(Shard& shard) : Backend(Transport::SHM, shard.config().queues), shard_(shard) {}

    std::unique_ptr<Channel> open(Peer& peer, uint64_t now_ns) override;
    bool progress(uint64_t now_ns) override;
    bool is_idle() override {
        return waiting_lanes_.load(std::memory_order_relaxed) == 0 &&
               copied_lanes_.load(std::memory_order_relaxed) == 0 && nothing_waits();
    }
    uint64_t next_deadline(uint64_t) const override { return kNever; }
    bool work() override;

    // A copy handed over by ShmChannel, which holds the drive lock.
    struct Copy {
        ShmChannel* channel = nullptr;
        Slice* slice = nullptr;
        std::shared_ptr<PeerMemory> memory;  // keeps the memory mapped until it was copied
        uint8_t* to = nullptr;
        const uint8_t* from = nullptr;
        uint64_t length = 0;
    };
    bool has_room() const { return out_ < kDeep && out_bytes_ < kRoundBytes; }
    // `lane` is the lane of the thread that submitted the slice, or kNobodys.
    static constexpr uint8_t kNobodys = kThreadLanes;
    void hand_over(Copy copy, uint8_t lane, uint64_t now_ns);

    static constexpr uint64_t kRoundBytes = 1 << 20;  // bytes copied before others have their turn, about 100 us

  private:
    static constexpr size_t kDeep = 64;  // copies at once

    struct alignas(64) Lane {
        std::mutex mutex;
        std::array<Copy, kDeep> waiting;  // a ring
        size_t first = 0, waiting_count = 0;
        std::vector<Copy> copied;
        // The two members below are read without the lock. Accesses are relaxed, as for the masks of lanes: a thread
        // that sees an old value checks again.
        std::atomic<uint64_t> handed_ns{0};  // when the lane last ceased to be empty
        // True if the last thread that worked here is one of the lane's own, so that they are expected to return.
        std::atomic<bool> is_attended{false};
    };

    bool work_at(uint8_t lane);
    void take_back(uint8_t lane);

    Shard& shard_;
    uint64_t looked_ns_ = 0;  // when progress() last checked for freed memory
    size_t out_ = 0;          // copies handed over and not taken back
    uint64_t out_bytes_ = 0;

    std::array<Lane, kThreadLanes + 1> lanes_;
    // Masks (1 << lane) of the lanes with waiting copies and with completed copies.
    alignas(64) std::atomic<uint32_t> waiting_lanes_{0};
    alignas(64) std::atomic<uint32_t> copied_lanes_{0};
    std::vector<Copy> taken_;  // used within progress()
};

}  // namespace rove::tent
