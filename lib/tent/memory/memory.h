// SPDX-License-Identifier: Apache-2.0
// The memory that the program registered, and the memory that the engine allocated for it. Units: bytes.
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

// A buffer in LocalMemory does not change, except for its counts, so any thread may read it.
struct LocalBuffer {
    uint64_t address = 0, length = 0;
    std::string location = "*";
    int numa_node = -1;  // N of "cpu:N", or the node of its pages; -1 if not known
    Permission permission = Permission::kGlobalReadWrite;
    bool writable = true;                  // false if our mapping is read-only
    std::vector<Registration> registered;  // indexed by device
    std::optional<ObjectId> shared;        // memory object behind it, if other processes of this machine can map it
    uint32_t registrations = 1;  // registrations of the same address and length; guarded by Engine::registering_
    TaskCounts tasks;
    std::atomic<uint32_t> served{0};  // requests of peers that tcp is answering

    bool holds(uint64_t start, uint64_t bytes) const { return bytes <= length && start - address <= length - bytes; }
    bool is_used() const { return tasks.unfinished() != 0 || served.load() != 0; }
};

// Any thread may use it, and lookups share the lock. The engine serialises registrations.
class LocalMemory {
  public:
    // Returns the buffer that holds all of [address, address + length), or null. A task of `shard` begins with it, and
    // the buffer stays registered until that task is finished. `*change` is the value of change() when the buffer was
    // found.
    std::shared_ptr<LocalBuffer> acquire(uint64_t address, uint64_t length, uint8_t shard, uint64_t* change);
    // Returns the buffer for a request of a peer. It stays registered until LocalBuffer::served is counted down.
    std::shared_ptr<LocalBuffer> serve(uint64_t address, uint64_t length);
    // Returns a number that changes after each registration and each end of one. If a thread counts a task with a
    // buffer, and then sees the number with which the buffer was found, the buffer stays registered as after acquire().
    uint64_t change() const { return change_.load(); }
    // Returns the buffer of exactly this range, or null. Length 0 finds the buffer that was registered at `address`
    // last.
    std::shared_ptr<LocalBuffer> exact(uint64_t address, uint64_t length) const;
    void add(std::shared_ptr<LocalBuffer> buffer);
    // Returns false if the buffer is used; then it stays.
    bool remove_unused(const LocalBuffer& buffer);
    // Returns how many buffers have bytes in [address, address + length).
    size_t count_overlapping(uint64_t address, uint64_t length) const;
    std::vector<std::shared_ptr<LocalBuffer>> all() const;

  private:
    std::shared_ptr<LocalBuffer> find(uint64_t address, uint64_t length) const;

    mutable std::shared_mutex mutex_;
    std::atomic<uint64_t> change_{1};
    std::multimap<uint64_t, std::shared_ptr<LocalBuffer>> buffers_;  // indexed by address
};

}  // namespace rove::tent
