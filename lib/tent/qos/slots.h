// SPDX-License-Identifier: Apache-2.0
// Time slots that all processes of a machine share (T-12, T-13): in slot 0 only HIGH may be sent, in slot 1 HIGH and
// MEDIUM, in slot 2 all priorities. Units: nanoseconds of CLOCK_MONOTONIC, bytes.
//
// 1. The state is a POSIX shared memory object. An flock on it makes creating, checking and joining one step. If its
//    creator died halfway, the next process creates the state again.
// 2. Every process computes the slot from the system's clock, so none depends on another process that is stopped or
//    late. Every process has a thread. The thread that holds the robust mutex in the header is the rotator: it writes
//    `current_slot` for observers, as documented, and frees the entries of dead processes. The others try the mutex
//    every 5 ms. Once the kernel has marked its owner as dead, one of them becomes the rotator.
// 3. Processes publish the bytes that they have in flight. A slot that no process uses for higher work is not wasted:
//    it opens to lower priorities too, one interval after the last higher request, so that a pause between two requests
//    of a closed loop does not admit a burst. A process whose thread has not run for 100 ms is stopped and does not
//    count. `strict` keeps to the documented slots.
// 4. Slots decide which data may be sent, not which thread has the core. On a core that processes share, a thread that
//    polls for LOW would keep it for a time slice of the scheduler, a millisecond or more, before another process even
//    submits its HIGH request. So the thread leaves the core (yield_core()): periodically if a process has recently
//    wanted a higher priority on this core, and immediately if one wants it now while the slot is closed to this
//    process. It sleeps for the shortest possible time, because sched_yield() lets only threads of the same session or
//    cgroup run.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>

#include "rove/tent_status.h"
#include "tent/config/types.h"

namespace rove::tent {

struct SharedSlots;
struct ProcessEntry;

struct SlotConfig {
    std::string shm_path;              // shared_quota_shm_path, such as "/rove_slots"; empty: no slots
    uint64_t interval_ns = 2'000'000;  // slot_rotation_interval_ms
    bool strict = false;               // strict_slots: a slot stays closed to lower priorities even if it is unused
};

class Slots {
  public:
    // Joins the slots, and creates them if they are missing. If the path is empty, `*out` is null and all priorities
    // may always be sent. Returns kInvalidArgument if living processes use another interval, if another version or
    // other data is there (the message names the object to remove), or if access is denied. Returns kTooManyRequests if
    // the table of processes is full.
    static Status open(const SlotConfig& config, std::unique_ptr<Slots>* out);
    ~Slots();  // leaves the slots; the memory stays for others
    Slots(const Slots&) = delete;
    Slots& operator=(const Slots&) = delete;

    // Returns true if a request of this priority may be posted now. The priority is the one of submission, not of
    // promotion. Any thread may call it.
    bool can_send(Priority priority, uint64_t now_ns) const;

    // Call them when a request is submitted and when it is done: between the two it counts as wanted. Any thread may
    // call them. Each added byte is removed once.
    void add_pending(Priority priority, uint64_t bytes, uint64_t now_ns);
    void remove_pending(Priority priority, uint64_t bytes, uint64_t now_ns);

    // Leaves the core to another process for a moment if one may be waiting for it. The driving thread calls it often,
    // with no lock held.
    void yield_core(uint64_t now_ns);

    uint32_t slot_at(uint64_t now_ns) const { return static_cast<uint32_t>(now_ns / config_.interval_ns % 3); }
    uint32_t current_slot() const;                                               // 0 to 2, by the clock
    bool rotating() const { return rotating_.load(std::memory_order_relaxed); }  // true if this process is the rotator
    uint64_t rotations() const;  // slots that any process began since the memory was created
    uint64_t takeovers() const;  // times that a rotator died and another took over

  private:
    Slots(const SlotConfig& config, SharedSlots* shared, ProcessEntry* own);
    void touch(Priority priority, uint64_t now_ns);
    // The need of other processes for this core, at a higher priority than `ours`.
    enum class Need : uint8_t { kNone, kLately, kNow };
    Need others_need(uint8_t ours, uint64_t now_ns) const;
    bool is_stopped(const ProcessEntry& process, uint64_t now_ns) const;
    void run();
    void rotate();

    SlotConfig config_;
    SharedSlots* shared_;
    ProcessEntry* own_;
    std::atomic<uint64_t> left_ns_{0};  // when the core was last left to others
    std::atomic<bool> stop_{false}, rotating_{false};
    std::thread thread_;
};

}  // namespace rove::tent
