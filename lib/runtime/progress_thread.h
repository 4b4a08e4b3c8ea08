// SPDX-License-Identifier: Apache-2.0
// Progress while the application is elsewhere, and housekeeping. Runs on EAL's main thread. Units: nanoseconds.
//
// With shared progress there are three states:
//
//     watching  The application drives the worker itself, because it calls in often. The thread sleeps for kWatchNapNs
//     or
//               more, and looks again.
//     replaced  A thread of the application sleeps on the doorbells (watch.h). While such sleeps begin and end the
//     thread
//               naps, in order to notice when the application does not come back. Otherwise it sleeps until it is
//               needed.
//     driving   The application does neither, so the thread polls. While packets move it polls on; after kIdleNs
//     without
//               any it sleeps, longer each time, but never past the transport's next deadline. Where all ports have
//               doorbells, and nothing has come for long, it sleeps until a frame rings: before, each frame would cost
//               its sender a system call. If the application sleeps in a call that rove does not see, the thread sleeps
//               on the doorbells at once: it may share its core with the thread that it has just woken.
//
// So two threads of a process never both spin, and an idle process costs a short round per nap.
// With dedicated lcores the thread only keeps house. A worker that is alone, and whose ports all have doorbells, sleeps
// until one rings when nothing has moved for kRestNs (rest()). Then the first frame or post costs a wake-up, and idle
// processes have their cores free.
#pragma once

#include <atomic>
#include <cstdint>

namespace rove::datapath {

class Runtime;

class ProgressThread {
  public:
    explicit ProgressThread(Runtime& runtime) : runtime_(runtime) {}

    void run();  // until stop()
    void stop();
    bool stopped() const { return stop_.load(std::memory_order_relaxed); }

    // The application called in, whether or not it could drive. Several threads may lose each other's counts: only
    // whether there are many matters.
    void on_application_call() { calls_.store(calls_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed); }
    // Makes the thread drive now, because no thread took the work that the application posted.
    void request_drive();
    // The application goes to sleep in a call that rove does not see.
    void hand_over() {
        handed_over_.store(true, std::memory_order_seq_cst);
        if (!on_doorbells_.load(std::memory_order_seq_cst)) request_drive();
    }
    // The thread that drove the worker has left it this deadline: no thread must sleep past it.
    void wake_by(uint64_t deadline_ns) {
        if (deadline_ns < sleeps_until_ns_.load(std::memory_order_relaxed)) [[unlikely]]
            end_sleep();
    }
    // Something is due that no thread which drives has left as a deadline. Pairs with the fence in rest(): either the
    // worker finds that, or we see that it sleeps.
    void look_again() {
        std::atomic_thread_fence(std::memory_order_seq_cst);
        wake_by(0);
    }
    bool sleeps_long() const { return sleeps_until_ns_.load(std::memory_order_relaxed) != 0; }
    // A thread that watched the doorbells returns to the application, and is expected back.
    void expect_watcher() {
        if (sleeps_until_ns_.load(std::memory_order_seq_cst) != 0) [[unlikely]]
            request_drive();
    }
    // A driver's callback ran: look after the ports now.
    void schedule_port_check();

    // How long nothing moves before a dedicated worker sleeps: much longer than the pauses between messages that have
    // to be fast.
    static constexpr uint64_t kRestNs = 5'000'000;
    // On the lcore of a dedicated worker, which does not hold it: sleeps until a doorbell or wake_by() ends it.
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
    uint64_t poll_interval_ns() const;  // between two looks at the ports
    void housekeep(uint64_t now_ns);

    Runtime& runtime_;
    std::atomic<uint32_t> calls_{0};  // relaxed: a hint
    std::atomic<bool> stop_{false};
    // Exchanges on both sides: a request_drive() that finds us awake is seen before we sleep, because it left
    // `taken_over_` (release) which nap() reads (acquire) after it announced its sleep.
    std::atomic<bool> asleep_{false};
    // 0: not for long. Relaxed: the drive lock is between its being set and whoever leaves work.
    std::atomic<uint64_t> sleeps_until_ns_{0};
    std::atomic<bool> taken_over_{false};
    std::atomic<bool> handed_over_{false};
    std::atomic<bool> on_doorbells_{false};   // they end our sleep; taken back before we look at handed_over_
    std::atomic<bool> ports_changed_{false};  // read before each nap and round; request_drive()'s order suffices
    uint64_t housekept_ns_ = 0;
    uint64_t promised_ns_ = 0;    // when we look at the deadlines
    uint32_t watch_changes_ = 0;  // Watchers::changes() at the last look
};

}  // namespace rove::datapath
