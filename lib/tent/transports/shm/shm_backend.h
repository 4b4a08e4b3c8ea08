// SPDX-License-Identifier: Apache-2.0
// Copies between processes of one machine: memory that a peer allocated by allocateLocalMemory() is shared memory,
// which we map (shm_server.h) when the first slice for it comes, and unmap when the peer has freed it, has gone or is
// closed.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <vector>

#include "tent/backend.h"
#include "tent/core.h"
#include "tent/transports/shm/shm_server.h"

namespace rove::tent {

class ShmBackend;

class ShmChannel : public Channel {
  public:
    ShmChannel(Core& core, Peer& peer);
    ~ShmChannel() override;

    bool available(const BufferDesc& remote) const override;
    void abandon(uint64_t now_ns) override;
    void revive(uint64_t now_ns) override;
    bool idle() const override { return jobs_ == 0; }

    Dispatched dispatch(uint8_t level, uint8_t allowed, uint64_t now_ns) override;
    // Lets go of memory that is not registered any more.
    void unmap_what_has_gone();

  private:
    struct Mapping {
        std::shared_ptr<PeerMemory> memory;  // null: a job is at it
        std::vector<Slice*> waiting;         // for that job
    };

    using Mappings = std::map<ObjectId, std::shared_ptr<Mapping>>;

    // Returns the bytes that were copied.
    uint64_t carry(Task& task, uint64_t now_ns);
    void unmap(Mappings mappings);
    void map(const ObjectId& id, std::shared_ptr<Mapping> mapping, bool writable);
    void mapped(const ObjectId& id, const std::shared_ptr<Mapping>& mapping, Fetched how,
                std::shared_ptr<PeerMemory> memory);

    Core& core_;
    Peer& peer_;
    Mappings mappings_;
    std::atomic<uint64_t> down_until_ns_{0};  // something could not be mapped; 0: nothing was
    uint32_t jobs_ = 0;                       // that know of us
};

class ShmBackend : public Backend {
  public:
    explicit ShmBackend(Core& core) : Backend(Transport::kShm, core.config().rdma.queues), core_(core) {}

    std::unique_ptr<Channel> open(Peer& peer, uint64_t now_ns) override;
    bool progress(uint64_t now_ns) override;
    uint64_t next_deadline(uint64_t) const override { return kNever; }

  private:
    Core& core_;
    uint64_t looked_ns_ = 0;  // for memory that has gone
};

}  // namespace rove::tent
