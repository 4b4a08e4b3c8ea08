// SPDX-License-Identifier: Apache-2.0
// The memory that the program registered, and memory that the engine allocated for it. Units: bytes.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <map>
#include <memory>
#include <shared_mutex>
#include <string>
#include <vector>

#include "tent/status.h"

namespace rove::tent {

struct LocalBuffer {
    uint64_t address = 0, length = 0;
    std::string location = "*";
    int numa_node = -1;  // of "cpu:N"; -1: any
    Permission permission = Permission::kGlobalReadWrite;
    std::vector<ibv_mr*> regions;  // by device
    std::string shm;               // name of the shared memory behind it, "" if it is not
    uint64_t shm_offset = 0;
    uint32_t registrations = 1;  // of the same address and length
};

// Any thread: lookups share the lock. Registering is the engine's, which serialises it.
class LocalMemory {
  public:
    // The buffer that holds all of [address, address + length), or null.
    std::shared_ptr<LocalBuffer> find(uint64_t address, uint64_t length) const;
    // The buffer of exactly this place, or null.
    std::shared_ptr<LocalBuffer> exact(uint64_t address, uint64_t length) const;
    void add(std::shared_ptr<LocalBuffer> buffer);
    void remove(const LocalBuffer& buffer);
    std::vector<std::shared_ptr<LocalBuffer>> all() const;

  private:
    mutable std::shared_mutex mutex_;
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
