// SPDX-License-Identifier: Apache-2.0
// The shared memory of the slots: what lies in it, and how a process joins.
#pragma once

#include <pthread.h>

#include <array>
#include <atomic>
#include <cstdint>

#include "tent/qos/slots.h"

namespace rove::tent {

// A process that uses the slots. Written by that process, read by all.
struct alignas(64) ProcessEntry {
    std::atomic<int32_t> pid{0};       // 0: free. Stored last (release) when it is taken
    std::atomic<uint64_t> started{0};  // start time of the process, clock ticks since boot: a pid may be used again
    std::array<std::atomic<uint64_t>, kPriorities> pending{};        // bytes under way, by priority
    std::array<std::atomic<uint64_t>, kPriorities - 1> wanted_ns{};  // HIGH, MEDIUM: when there last were any
    std::atomic<int32_t> core{-1};                                   // on which that was
    std::atomic<uint64_t> ran_ns{0};                                 // when its thread last ran
};

struct SharedSlots {
    static constexpr uint64_t kMagic = 0x53544F4C53564F52;  // "ROVSLOTS"
    static constexpr int32_t kVersion = 3;
    static constexpr uint32_t kProcesses = 64;

    // As documented.
    std::atomic<uint64_t> magic;  // stored last: what has none was left half made
    int32_t version;
    std::atomic<int32_t> current_slot;
    pthread_mutex_t global_mutex;  // robust, shared; held by the rotator as long as it lives

    uint64_t interval_ns;
    std::atomic<uint64_t> rotations, takeovers;
    std::atomic<uint32_t> used;  // entries from here on were never taken
    ProcessEntry processes[kProcesses];
};
static_assert(std::atomic<uint64_t>::is_always_lock_free && std::atomic<int32_t>::is_always_lock_free);

// CLOCK_MONOTONIC as the system tells it, to all processes alike.
uint64_t system_ns();

// Maps the memory that the configuration names, made or made anew if no living process uses it, and takes an entry.
Status join_slots(const SlotConfig& config, SharedSlots** shared, ProcessEntry** own);
void leave_slots(SharedSlots* shared, ProcessEntry* own);

// Frees the entries of processes that are gone. Pids are those of our namespace: processes of containers share slots
// only if they share pids.
void free_dead_processes(SharedSlots& shared);

}  // namespace rove::tent
