// SPDX-License-Identifier: Apache-2.0
// Copies between processes of one machine: memory that a peer allocated by allocateLocalMemory() is shared memory,
// which we map.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tent/backend.h"
#include "tent/core.h"

namespace rove::tent {

class ShmBackend;

class ShmChannel : public Channel {
  public:
    ShmChannel(Core& core, Peer& peer);
    ~ShmChannel() override;

    bool available(const BufferDesc& remote) const override { return !remote.shm.empty(); }
    void abandon(uint64_t now_ns) override;

    Dispatched dispatch(uint8_t level, uint8_t allowed, uint64_t now_ns) override;

  private:
    struct Mapping {
        uint8_t* address = nullptr;
        uint64_t length = 0;
    };
    // Where the slice's place in the peer's memory is in ours; null: it cannot be mapped.
    uint8_t* place(const Slice& slice);

    Core& core_;
    std::map<std::string, Mapping> mappings_;  // by name; each is of one process and one allocation
};

class ShmBackend : public Backend {
  public:
    explicit ShmBackend(Core& core) : Backend(Transport::kShm, core.config().rdma.queues), core_(core) {}

    std::unique_ptr<Channel> open(Peer& peer, uint64_t now_ns) override;
    bool progress(uint64_t) override { return false; }
    uint64_t next_deadline(uint64_t) const override { return kNever; }

  private:
    Core& core_;
};

}  // namespace rove::tent
