// SPDX-License-Identifier: Apache-2.0
// Makes progress while the application does not, and does housekeeping. Runs on EAL's main thread. Units: nanoseconds.
//
// With shared progress there are three states:
// - Watching: the application drives the worker itself, because it calls rove often. The thread sleeps for kWatchNapNs
//   or more and then checks again.
// - Replaced: a thread of the application sleeps on the doorbells (watch.h). While such sleeps begin and end, the
//   progress thread naps, in order to notice if the application does not return. Otherwise it sleeps until it is
//   needed.
// - Driving: the application does neither, so the thread polls, for as long as packets are processed. After kIdleNs
//   without a packet it sleeps, longer each time, but never past the transport's next deadline. If all ports have
//   doorbells and nothing has arrived for long, it sleeps until a frame rings. It does not do so earlier, because each
//   frame would then cost its sender a system call. If the application sleeps in a call that rove does not see, the
//   thread sleeps on the doorbells at once, because it may share its core with the thread that it has just woken.
//
// So two threads of a process never both spin, and an idle process costs a short round per nap. With dedicated lcores
// the thread only does housekeeping. A single worker whose ports all have doorbells sleeps until one rings if nothing
// has been processed for kRestNs (rest()). Then the first frame or post costs a wake-up, and idle processes leave their
// cores free.
#pragma once

#include <atomic>
#include <cstdint>

namespace rove::datapath {

class Runtime;

class ProgressThread {
  public:
    explicit ProgressThread(Runtime& runtime) : runtime_(runtime) {}

    void run();  // runs until stop()
    void stop();
    bool stopped() const { return stop_.load(std::memory_order_relaxed); }

    // Records a call of the application, whether or not it could drive. Concurrent threads may lose each other's
    // counts, because it matters only whether there are many.
    void on_application_call() { calls_.store(calls_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed); }
    // Makes the thread drive now, because no thread took over the work that the application posted.
    void request_drive();
    // Announces that the application is about to sleep in a call that rove does not see.
    void hand_over() {
        handed_over_.store(true, std::memory_order_seq_cst);
        if (!on_doorbells_.load(std::memory_order_seq_cst)) request_drive();
    }
    // Makes sure that no thread sleeps past this deadline, which the thread that drove the worker has left.
    void wake_by(uint64_t deadline_ns) {
        if (deadline_ns < sleeps_until_ns_.load(std::memory_order_relaxed)) [[unlikely]]
            end_sleep();
    }
    // Announces work that is due although no driving thread has left a deadline for it. Pairs with the fence in rest():
    // either the worker finds the work, or we see that it sleeps.
    void look_again() {
        std::atomic_thread_fence(std::memory_order_seq_cst);
        wake_by(0);
    }
    bool sleeps_long() const { return sleeps_until_ns_.load(std::memory_order_relaxed) != 0; }
    // Announces that a thread that watched the doorbells returns to the application, and is expected to come back.
    void expect_watcher() {
        if (sleeps_until_ns_.load(std::memory_order_seq_cst) != 0) [[unlikely]]
            request_drive();
    }
    // Makes the thread check the ports now, because a driver's callback has run.
    void schedule_port_check();

    // The time without packets after which a dedicated worker sleeps: much longer than the pauses between messages that
    // need a low latency.
    static constexpr uint64_t kRestNs = 5'000'000;
    // Sleeps until a doorbell or wake_by() ends it. Runs on the lcore of a dedicated worker, which must not hold the
    // worker.
    void rest();

  private:
    void wake();
    void end_sleep();
    void run_shared();
    bool driven_since(uint64_t time_ns);
    void nap(uint64_t ns);
    bool sleep_until_rung(uint64_t until_ns);
    void leave_to_watchers();
    void sleep_until_needed(uint64_t until_ns);
    uint64_t poll_interval_ns() const;  // between two checks of the ports
    void housekeep(uint64_t now_ns);

    Runtime& runtime_;
    std::atomic<uint32_t> calls_{0};  // relaxed: a hint
    std::atomic<bool> stop_{false};
    // Both sides use exchanges. A request_drive() that finds us awake is seen before we sleep, because it has set
    // `taken_over_` (release), which nap() reads (acquire) after it has announced its sleep.
    std::atomic<bool> asleep_{false};
    // 0 without a long sleep. Relaxed, because the drive lock orders a store before the load of a thread that leaves
    // work.
    std::atomic<uint64_t> sleeps_until_ns_{0};
    std::atomic<bool> taken_over_{false};
    std::atomic<bool> handed_over_{false};
    std::atomic<bool> on_doorbells_{false};   // set while they end our sleep; cleared before we read handed_over_
    std::atomic<bool> ports_changed_{false};  // read before each nap and round; the order of request_drive() suffices
    uint64_t housekept_ns_ = 0;
    uint64_t promised_ns_ = 0;    // when we will check the deadlines
    uint32_t watch_changes_ = 0;  // Watchers::changes() at the last check
};

}  // namespace rove::datapath
