// SPDX-License-Identifier: Apache-2.0
// Copies between processes of one machine: memory that a peer allocated by allocateLocalMemory() is shared memory,
// which we map (shm_server.h) when the first slice for it comes, and unmap when the peer has freed it, has gone or is
// closed.
//
// Copies are made without the drive lock: dispatch() hands slices over, work() copies them, on whatever threads call
// it, and progress() takes them back. What is shorter than handing it over takes is copied at once. Units: bytes.
#pragma once

#include <array>
#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "tent/backend.h"
#include "tent/shard.h"
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
        return waiting_count_.load(std::memory_order_relaxed) == 0 &&
               copied_count_.load(std::memory_order_relaxed) == 0 && nothing_waits();
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
    void hand_over(Copy copy);

    static constexpr uint64_t kRoundBytes = 1 << 20;  // copied before others have their turn: some 100 us

  private:
    static constexpr size_t kDeep = 64;  // copies at once

    void take_back();

    Shard& shard_;
    uint64_t looked_ns_ = 0;  // for memory that has gone
    size_t out_ = 0;          // copies that were handed over and not taken back
    uint64_t out_bytes_ = 0;

    std::mutex mutex_;
    std::array<Copy, kDeep> waiting_;  // a ring
    size_t first_ = 0;
    std::vector<Copy> copied_;
    // The same, to look at without the lock. Relaxed: whoever sees them late looks again.
    std::atomic<size_t> waiting_count_{0}, copied_count_{0};
    std::vector<Copy> taken_;  // progress()'s
};

}  // namespace rove::tent
