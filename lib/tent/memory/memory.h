// SPDX-License-Identifier: Apache-2.0
// The memory that the program registered, and memory that the engine allocated for it. Units: bytes.
#pragma once

#include <infiniband/verbs.h>

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <shared_mutex>
#include <string>
#include <vector>

#include "rove/tent_status.h"
#include "tent/engine/task_count.h"
#include "tent/memory/shared_memory.h"

namespace rove::tent {

// A device's registration of a buffer.
struct Registration {
    ibv_mr* region = nullptr;
    uint32_t lkey = 0, rkey = 0;
};

// What is in LocalMemory does not change but for its counts: any thread reads it.
struct LocalBuffer {
    uint64_t address = 0, length = 0;
    std::string location = "*";
    int numa_node = -1;  // of "cpu:N", or where its pages are; -1: not known
    Permission permission = Permission::kGlobalReadWrite;
    bool writable = true;                  // by us: not a read-only mapping
    std::vector<Registration> registered;  // by device
    std::optional<ObjectId> shared;        // the memory behind it, if others of this machine can map that
    uint32_t registrations = 1;            // of the same address and length; Engine::registering_ guards it
    TaskCounts tasks;
    std::atomic<uint32_t> served{0};  // requests of peers that are being answered by tcp

    bool holds(uint64_t start, uint64_t bytes) const { return bytes <= length && start - address <= length - bytes; }
    bool is_used() const { return tasks.unfinished() != 0 || served.load() != 0; }
};

// Any thread: lookups share the lock. Registering is the engine's, which serialises it.
class LocalMemory {
  public:
    // The buffer that holds all of [address, address + length), or null. A task begins with it: it stays registered
    // until that is finished, by `shard`. `*change` is change() when it was found.
    std::shared_ptr<LocalBuffer> acquire(uint64_t address, uint64_t length, uint8_t shard, uint64_t* change);
    // The same for a request of a peer, until LocalBuffer::served is counted down.
    std::shared_ptr<LocalBuffer> serve(uint64_t address, uint64_t length);
    // Another number after each registration and its end. Whoever has counted a task with a buffer, and sees the number
    // with which the buffer was found, has it registered as with acquire().
    uint64_t change() const { return change_.load(); }
    // The buffer of exactly this place, or null. Length 0: what was registered at `address` last.
    std::shared_ptr<LocalBuffer> exact(uint64_t address, uint64_t length) const;
    void add(std::shared_ptr<LocalBuffer> buffer);
    // False: it is used, and stays.
    bool remove_unused(const LocalBuffer& buffer);
    // How many have bytes in [address, address + length).
    size_t count_overlapping(uint64_t address, uint64_t length) const;
    std::vector<std::shared_ptr<LocalBuffer>> all() const;

  private:
    std::shared_ptr<LocalBuffer> find(uint64_t address, uint64_t length) const;

    mutable std::shared_mutex mutex_;
    std::atomic<uint64_t> change_{1};
    std::multimap<uint64_t, std::shared_ptr<LocalBuffer>> buffers_;  // by address
};

}  // namespace rove::tent
