// SPDX-License-Identifier: Apache-2.0
// Copies between processes of one machine: memory that a peer allocated by allocateLocalMemory() is shared memory,
// which we map (shm_server.h) when the first slice for it comes, and unmap when the peer has freed it, has gone or is
// closed.
//
// Copies are made without the drive lock: dispatch() hands slices over, work() copies them, and progress() takes them
// back. What is shorter than handing it over takes is copied at once, if it is the driver's own. Few slices are copied
// by who submitted them, whose caches they are in; many, and what has waited for a while, by whoever comes. Units:
// bytes.
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
    // A slice was copied.
    void copied(Slice& slice);
    // Lets go of memory that is not registered any more.
    void unmap_what_has_gone();

  private:
    struct Mapping {
        std::shared_ptr<PeerMemory> memory;  // null: a job is at it
        std::vector<Slice*> waiting;         // for that job
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
    std::atomic<uint64_t> down_until_ns_{0};  // something could not be mapped; 0: nothing was
    uint32_t jobs_ = 0;                       // that know of us
    uint32_t out_ = 0;                        // slices that were handed over to be copied
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

    // Of ShmChannel, with the drive lock.
    struct Copy {
        ShmChannel* channel = nullptr;
        Slice* slice = nullptr;
        std::shared_ptr<PeerMemory> memory;  // mapped until it was copied
        uint8_t* to = nullptr;
        const uint8_t* from = nullptr;
        uint64_t length = 0;
    };
    bool has_room() const { return out_ < kDeep && out_bytes_ < kRoundBytes; }
    // `lane`: of who submitted it, or kNobodys.
    static constexpr uint8_t kNobodys = kThreadLanes;
    void hand_over(Copy copy, uint8_t lane, uint64_t now_ns);

    static constexpr uint64_t kRoundBytes = 1 << 20;  // copied before others have their turn: some 100 us

  private:
    static constexpr size_t kDeep = 64;  // copies at once

    struct alignas(64) Lane {
        std::mutex mutex;
        std::array<Copy, kDeep> waiting;  // a ring
        size_t first = 0, waiting_count = 0;
        std::vector<Copy> copied;
        // To look at without the lock. Relaxed, as the two below: whoever sees them late looks again.
        std::atomic<uint64_t> handed_ns{0};  // since then something waits
        // Its threads come for what waits: the last time, it was one of them who did.
        std::atomic<bool> is_attended{false};
    };

    bool work_at(uint8_t lane);
    void take_back(uint8_t lane);

    Shard& shard_;
    uint64_t looked_ns_ = 0;  // for memory that has gone
    size_t out_ = 0;          // copies that were handed over and not taken back
    uint64_t out_bytes_ = 0;

    std::array<Lane, kThreadLanes + 1> lanes_;
    // Lanes (1 << lane) where something waits, or was copied.
    alignas(64) std::atomic<uint32_t> waiting_lanes_{0};
    alignas(64) std::atomic<uint32_t> copied_lanes_{0};
    std::vector<Copy> taken_;  // progress()'s
};

}  // namespace rove::tent
