// SPDX-License-Identifier: Apache-2.0
// The memory that the program registered, and memory that the engine allocated for it. Units: bytes.
#pragma once

#include <infiniband/verbs.h>

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <shared_mutex>
#include <string>
#include <vector>

#include "tent/status.h"
#include "tent/task_count.h"

namespace rove::tent {

struct LocalBuffer {
    uint64_t address = 0, length = 0;
    std::string location = "*";
    int numa_node = -1;  // of "cpu:N", or where its pages are; -1: not known
    Permission permission = Permission::kGlobalReadWrite;
    std::vector<ibv_mr*> regions;  // by device
    std::string shm;               // name of the shared memory behind it, "" if it is not
    uint64_t shm_offset = 0;
    uint32_t registrations = 1;  // of the same address and length
    TaskCount tasks;
    std::atomic<uint32_t> served{0};  // requests of peers that are being answered by tcp

    bool holds(uint64_t start, uint64_t bytes) const {
        return bytes <= length && start - address <= length - bytes;
    }
    bool is_used() const { return tasks.unfinished() != 0 || served.load() != 0; }
};

// Any thread: lookups share the lock. Registering is the engine's, which serialises it.
class LocalMemory {
  public:
    // The buffer that holds all of [address, address + length), or null. `*change` is change() when it did.
    std::shared_ptr<LocalBuffer> find(uint64_t address, uint64_t length, uint64_t* change = nullptr) const;
    // Another number after each registration and its end: while it is the same, what was found is there.
    uint64_t change() const { return change_.load(std::memory_order_acquire); }
    // The buffer of exactly this place, or null. Length 0: what was registered at `address` last.
    std::shared_ptr<LocalBuffer> exact(uint64_t address, uint64_t length) const;
    void add(std::shared_ptr<LocalBuffer> buffer);
    void remove(const LocalBuffer& buffer);
    std::vector<std::shared_ptr<LocalBuffer>> all() const;

  private:
    mutable std::shared_mutex mutex_;
    std::atomic<uint64_t> change_{1};
    std::multimap<uint64_t, std::shared_ptr<LocalBuffer>> buffers_;  // by address
};

// Memory that other processes of this machine can map: POSIX shared memory under a name of its own.
struct SharedMemory {
    std::string name;  // of shm_open
    void* address = nullptr;
    uint64_t length = 0;

    // kInternalError: no room in /dev/shm, or no right to it.
    static Status create(uint64_t length, SharedMemory* out);
    void destroy();
};

// Removes what processes that were killed have left in /dev/shm.
void remove_stale_memory();

}  // namespace rove::tent
