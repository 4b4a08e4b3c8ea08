// SPDX-License-Identifier: Apache-2.0
// Time slots that all processes of a machine share (T-12, T-13): in slot 0 only HIGH may be sent, in slot 1 MEDIUM too,
// in slot 2 all. Units: nanoseconds of CLOCK_MONOTONIC, bytes.
//
// 1. The state is a POSIX shared memory object. An flock on it makes creating, checking and joining one step; what a
//    creator that died left half done is begun anew.
// 2. Slots are counted by the system's clock, and everybody counts them: nobody depends on another process that is
//    stopped or late. Every process has a thread. The one that holds the robust mutex in the header is the rotator: it
//    writes `current_slot`, as documented, for whoever looks, and frees entries of dead processes. The others try the
//    mutex every 5 ms; once the kernel has marked it as that of a dead owner, one of them is the rotator.
// 3. Processes publish the bytes that they have under way. While nobody has anything higher, and for one interval
//    after, so that a pause between two requests of a closed loop does not let a burst in, a slot is open to lower
//    priorities too: it is not wasted. A process whose thread has not run for 100 ms is stopped, and does not count.
//    `strict` keeps to the documented slots.
// 4. Slots say what may be sent, not who has the core. On a core that processes share, a thread that polls for LOW
//    would keep it for a time slice of the scheduler's, a millisecond and more, before another's HIGH is even
//    submitted. So it leaves it (yield_core()): now and then while a process has lately wanted something higher on this
//    core, and whenever one wants it now, in a slot that is not ours. It sleeps, for the shortest time there is: what
//    sched_yield() gives, others get only if they are of the same session or cgroup.
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
    bool strict = false;               // strict_slots: slots stay closed though nobody uses them
};

class Slots {
  public:
    // Joins, creating what is missing. An empty path: `*out` is null, and all may always be sent.
    // kInvalidArgument: processes that are alive use another interval; another version or something else is there (the
    // message says what to remove); no access. kTooManyRequests: the table of processes is full.
    static Status open(const SlotConfig& config, std::unique_ptr<Slots>* out);
    ~Slots();  // leaves; the memory stays for others
    Slots(const Slots&) = delete;
    Slots& operator=(const Slots&) = delete;

    // Whether a request of this priority, as it was submitted, not as it was promoted, may be posted now. Any thread.
    bool can_send(Priority priority, uint64_t now_ns) const;

    // A request was submitted, or is done: between the two it is wanted. Any thread; each added byte is removed once.
    void add_pending(Priority priority, uint64_t bytes, uint64_t now_ns);
    void remove_pending(Priority priority, uint64_t bytes, uint64_t now_ns);

    // For who drives, often, with no lock held: leaves the core to others for a moment if one of them may be waiting
    // for it.
    void yield_core(uint64_t now_ns);

    uint32_t slot_at(uint64_t now_ns) const { return static_cast<uint32_t>(now_ns / config_.interval_ns % 3); }
    uint32_t current_slot() const;                                               // 0..2, by the clock
    bool rotating() const { return rotating_.load(std::memory_order_relaxed); }  // whether this process is the rotator
    uint64_t rotations() const;  // slots begun by any process since the memory was made
    uint64_t takeovers() const;  // rotators that died

  private:
    Slots(const SlotConfig& config, SharedSlots* shared, ProcessEntry* own);
    void touch(Priority priority, uint64_t now_ns);
    // What other processes want of our core, of a higher priority than `ours`.
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
