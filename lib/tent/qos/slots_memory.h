// SPDX-License-Identifier: Apache-2.0
// The layout of the slots' shared memory, and the functions by which a process joins and leaves.
#pragma once

#include <pthread.h>

#include <array>
#include <atomic>
#include <cstdint>

#include "tent/qos/slots.h"

namespace rove::tent {

// A process that uses the slots. That process writes the entry, and all read it.
struct alignas(64) ProcessEntry {
    std::atomic<int32_t> pid{0};  // 0: free; stored last (release) when the entry is taken
    // Start time of the process in clock ticks since boot, since a pid may be used again.
    std::atomic<uint64_t> started{0};
    std::array<std::atomic<uint64_t>, kPriorities> pending{};        // bytes in flight, by priority
    std::array<std::atomic<uint64_t>, kPriorities - 1> wanted_ns{};  // HIGH and MEDIUM: when there were bytes last
    std::atomic<int32_t> core{-1};                                   // core on which that was
    std::atomic<uint64_t> ran_ns{0};                                 // when its thread last ran
};

struct SharedSlots {
    static constexpr uint64_t kMagic = 0x53544F4C53564F52;  // "ROVSLOTS"
    static constexpr int32_t kVersion = 3;
    static constexpr uint32_t kProcesses = 64;

    // The next four members are the documented header.
    std::atomic<uint64_t> magic;  // stored last; memory without it was left half made
    int32_t version;
    std::atomic<int32_t> current_slot;
    pthread_mutex_t global_mutex;  // robust and shared; the rotator holds it as long as it lives

    uint64_t interval_ns;
    std::atomic<uint64_t> rotations, takeovers;
    std::atomic<uint32_t> used;  // entries from this index on were never taken
    ProcessEntry processes[kProcesses];
};
static_assert(std::atomic<uint64_t>::is_always_lock_free && std::atomic<int32_t>::is_always_lock_free);

// Returns the system's CLOCK_MONOTONIC, which is the same for all processes.
uint64_t system_ns();

// Maps the memory that the configuration names and takes an entry. If no living process uses the memory, initializes it
// first.
Status join_slots(const SlotConfig& config, SharedSlots** shared, ProcessEntry** own);
void leave_slots(SharedSlots* shared, ProcessEntry* own);

// Frees the entries of dead processes. Pids belong to the caller's namespace: processes in containers can share slots
// only if they share pids.
void free_dead_processes(SharedSlots& shared);

}  // namespace rove::tent
