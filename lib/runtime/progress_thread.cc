// SPDX-License-Identifier: Apache-2.0
#include "runtime/progress_thread.h"

#include <poll.h>
#include <rte_pause.h>
#include <sched.h>
#include <sys/prctl.h>

#include <algorithm>

#include "runtime/runtime.h"
#include "runtime/worker_core.h"

namespace rove::datapath {

namespace {

// The bounds of the time for which packets may wait when the application stops driving. Within them it is a fraction of
// the time for which the application has driven. Waking up each millisecond takes 3 % from an application on the same
// core, for little information about an application that always polls.
constexpr uint64_t kWatchNapNs = 1'000'000, kLongWatchNapNs = 4'000'000;
constexpr uint64_t kWatchPart = 32;
constexpr uint64_t kIdleNs = 50'000;            // several round trips to a peer on the same host
constexpr uint64_t kFirstNapNs = 20'000;        // the shortest sleep that is worth its two system calls
constexpr uint64_t kLastNapNs = 500'000;        // an idle process then costs less than 1 % of a core
constexpr uint64_t kWindowNs = 20'000;          // kBusyCalls within this time mean that the application polls
constexpr uint32_t kBusyCalls = 16;             // also in a watch nap: with fewer calls the application no longer polls
constexpr uint64_t kSteadyNs = 10 * kWindowNs;  // it must poll this long after it called hand_over()
constexpr uint64_t kRecentNs = 1'000'000;       // an application that last received longer ago does not poll
constexpr uint64_t kHousekeepingNs = 50'000'000;  // for link changes of ports whose driver reports none
constexpr uint64_t kSeldomNs = 1'000'000'000;     // if there are no such ports

}  // namespace

void ProgressThread::stop() {
    stop_.store(true, std::memory_order_relaxed);
    request_drive();
    runtime_.poller().ring();
}

void ProgressThread::request_drive() {
    taken_over_.store(true, std::memory_order_seq_cst);
    wake();
}

void ProgressThread::wake() {
    if (asleep_.exchange(false, std::memory_order_seq_cst)) runtime_.poller().wake();
}

void ProgressThread::end_sleep() {
    if (runtime_.config().progress == Progress::kShared)
        wake();
    else
        runtime_.poller().ring();
}

void ProgressThread::rest() {
    Worker& worker = *runtime_.workers().front();
    sleeps_until_ns_.store(UINT64_MAX, std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_seq_cst);
    bool armed = false;
    uint64_t until_ns = 0;
    if (const Worker::Drive drive(worker); drive) {
        WorkerCore& core = worker.core(drive);
        if (core.round() == 0) {
            until_ns = core.next_wakeup_ns();
            armed = until_ns > runtime_.now_ns() && core.arm();
            // A thread that drives later leaves a deadline of its own.
            sleeps_until_ns_.store(until_ns, std::memory_order_relaxed);
        }
    }
    const uint64_t now_ns = runtime_.now_ns();
    uint64_t rested_ns = 0;
    if (armed && now_ns < until_ns && !stopped()) {
        EventLoop& poller = runtime_.poller();
        const uint64_t ns = until_ns - now_ns;
        const timespec time{static_cast<time_t>(ns / 1'000'000'000), static_cast<long>(ns % 1'000'000'000)};
        pollfd doorbells{.fd = poller.doorbells(), .events = POLLIN, .revents = 0};
        if (ppoll(&doorbells, 1, until_ns == UINT64_MAX ? nullptr : &time, nullptr) > 0) poller.take_doorbells();
        rested_ns = std::min(runtime_.now_ns(), until_ns) - now_ns;
    }
    sleeps_until_ns_.store(0, std::memory_order_relaxed);
    if (!armed) return;
    const Worker::Hold hold(worker);
    worker.core(hold).disarm(rested_ns);
}

void ProgressThread::schedule_port_check() {
    ports_changed_.store(true, std::memory_order_relaxed);
    request_drive();
}

void ProgressThread::nap(uint64_t ns) {
    const uint64_t until_ns = runtime_.now_ns() + ns;
    asleep_.store(true, std::memory_order_seq_cst);
    // Pairs with request_drive(): either it sees us asleep and wakes us, or we see its request.
    if (!taken_over_.load(std::memory_order_seq_cst))
        for (uint64_t now_ns = until_ns - ns; now_ns < until_ns && asleep_.load(std::memory_order_relaxed);
             now_ns = runtime_.now_ns())
            runtime_.poller().wait_for_control(until_ns - now_ns);
    asleep_.store(false, std::memory_order_seq_cst);
}

// Sleeps until a frame rings or wake_by() brings an earlier deadline. Returns true if we may have consumed a doorbell.
// Then the frames are our task, because a thread that has begun to watch meanwhile does not wake up for it.
bool ProgressThread::sleep_until_rung(uint64_t until_ns) {
    Worker& worker = *runtime_.workers().front();
    // Keeps an earlier time in the future, even if its deadline no longer exists. Otherwise the next post, which has a
    // later deadline, would wake us.
    if (promised_ns_ > runtime_.now_ns()) until_ns = std::min(until_ns, promised_ns_);
    promised_ns_ = until_ns;
    sleeps_until_ns_.store(until_ns, std::memory_order_relaxed);
    asleep_.store(true, std::memory_order_seq_cst);
    bool armed = false;
    {
        // A thread that drove before has left its deadline, and one that drives later sees that we sleep.
        const Worker::Drive drive(worker);
        armed = drive && worker.core(drive).next_wakeup_ns() >= until_ns && worker.core(drive).arm();
    }
    const uint64_t now_ns = runtime_.now_ns();
    uint64_t rested_ns = 0;
    on_doorbells_.store(armed, std::memory_order_seq_cst);
    if (armed && now_ns < until_ns && !taken_over_.load(std::memory_order_seq_cst)) {
        runtime_.poller().wait(until_ns - now_ns);
        rested_ns = std::min(runtime_.now_ns(), until_ns) - now_ns;
    }
    on_doorbells_.store(false, std::memory_order_seq_cst);
    asleep_.store(false, std::memory_order_seq_cst);
    sleeps_until_ns_.store(0, std::memory_order_relaxed);
    if (!armed) return false;
    const Worker::Hold hold(worker);
    worker.core(hold).disarm(rested_ns);
    return true;
}

// Sleeps until a thread that watched returns to the application, or until a deadline. It only naps if something is due
// already: frames that a full port holds are the watcher's task, and a deadline of a stopped protocol clock does not
// expire.
void ProgressThread::sleep_until_needed(uint64_t until_ns) {
    sleeps_until_ns_.store(until_ns, std::memory_order_seq_cst);
    asleep_.store(true, std::memory_order_seq_cst);
    const uint64_t now_ns = runtime_.now_ns();
    bool is_due = false;
    {
        // A thread that drove before has left its deadline, and one that drives later sees that we sleep.
        Worker& worker = *runtime_.workers().front();
        if (const Worker::Drive drive(worker); drive) {
            const uint64_t wanted_ns = worker.core(drive).next_wakeup_ns();
            is_due = wanted_ns <= now_ns;
            until_ns = std::min(until_ns, wanted_ns);
            // Our own release of the worker must not wake us.
            sleeps_until_ns_.store(is_due ? 0 : until_ns, std::memory_order_seq_cst);
        }
    }
    // Pairs with expect_watcher() and request_drive(): either they see us asleep, or we see their request.
    if (!is_due && runtime_.watchers().is_watched() && !taken_over_.load(std::memory_order_seq_cst))
        runtime_.poller().wait_for_control(until_ns - now_ns);
    asleep_.store(false, std::memory_order_seq_cst);
    sleeps_until_ns_.store(0, std::memory_order_relaxed);
    if (is_due) nap(kLastNapNs);
}

// Makes one check in the state "replaced".
void ProgressThread::leave_to_watchers() {
    Watchers& watchers = runtime_.watchers();
    const uint64_t now_ns = runtime_.now_ns();
    const uint32_t changes = watchers.changes();
    const bool active = changes != watch_changes_;
    watch_changes_ = changes;
    if (const Worker::Drive drive(*runtime_.workers().front()); drive) {
        WorkerCore& core = runtime_.workers().front()->core(drive);
        // The rest of a round (0) is left to the application's next call if it makes calls.
        const uint64_t wanted_ns = core.next_wakeup_ns();
        if (wanted_ns <= now_ns && !(active && wanted_ns == 0)) core.background_round();
    }
    if (!active && !watchers.is_watched()) watchers.promote();
    if (active || !watchers.is_watched())
        nap(kWatchNapNs);
    else
        sleep_until_needed(now_ns + poll_interval_ns());
}

uint64_t ProgressThread::poll_interval_ns() const {
    return runtime_.needs_polling() ? kHousekeepingNs : kSeldomNs;
}

void ProgressThread::housekeep(uint64_t now_ns) {
    if (now_ns - housekept_ns_ < poll_interval_ns() && !ports_changed_.load(std::memory_order_relaxed)) return;
    ports_changed_.store(false, std::memory_order_relaxed);
    housekept_ns_ = now_ns;
    runtime_.housekeeping();
}

void ProgressThread::run() {
    prctl(PR_SET_TIMERSLACK, 1);  // ns; the default of 50 us would double our shorter naps
    if (runtime_.config().progress == Progress::kShared) {
        run_shared();
        return;
    }
    while (!stopped()) {
        housekeep(runtime_.now_ns());
        nap(poll_interval_ns());
        taken_over_.store(false, std::memory_order_relaxed);
    }
}

bool ProgressThread::driven_since(uint64_t time_ns) {
    Worker& worker = *runtime_.workers().front();
    const Worker::Drive drive(worker);
    return !drive || worker.core(drive).received_ns() > time_ns;
}

void ProgressThread::run_shared() {
    Worker& worker = *runtime_.workers().front();
    bool watching = false;
    bool handed_over = false;  // the application sleeps, so no other thread will notice a frame
    bool owes_round = false;   // to a thread that posted work and could not drive, or because of a doorbell
    uint32_t seen = calls_.load(std::memory_order_relaxed);
    uint64_t window_ns = 0, idle_since_ns = 0, watching_since_ns = 0, nap_ns = kFirstNapNs;
    while (!stopped()) {
        const uint64_t now_ns = runtime_.now_ns();
        housekeep(now_ns);
        const uint32_t calls = calls_.load(std::memory_order_relaxed);
        if (handed_over_.load(std::memory_order_relaxed) && handed_over_.exchange(false, std::memory_order_seq_cst)) {
            handed_over = true;
            seen = calls;
            window_ns = now_ns;
        }
        const uint64_t look_ns = handed_over ? kSteadyNs : kWindowNs;
        if (taken_over_.load(std::memory_order_relaxed) && taken_over_.exchange(false, std::memory_order_seq_cst)) {
            watching = false;
            owes_round = true;
            idle_since_ns = window_ns = now_ns;
            nap_ns = kFirstNapNs;
        } else if (!owes_round && runtime_.watchers().replace(watch_changes_)) {
            watching = handed_over = false;
            seen = calls;
            leave_to_watchers();
            idle_since_ns = window_ns = runtime_.now_ns();
            nap_ns = kFirstNapNs;
            continue;
        } else {
            const uint64_t busy_calls = handed_over ? (now_ns - window_ns) / kWindowNs * kBusyCalls : kBusyCalls;
            const bool busy = calls - seen >= busy_calls && (!handed_over || now_ns - window_ns >= kSteadyNs) &&
                              (!watching || driven_since(now_ns - kRecentNs));
            if (watching && !busy) idle_since_ns = now_ns;
            if (busy && !watching) watching_since_ns = now_ns;
            watching = busy;
            handed_over &= !busy;
        }
        if (watching || now_ns - window_ns >= look_ns) {
            seen = calls;
            window_ns = now_ns;
        }
        if (watching) {
            nap(std::clamp((now_ns - watching_since_ns) / kWatchPart, kWatchNapNs, kLongWatchNapNs));
            continue;
        }
        uint32_t moved = 0;
        uint64_t deadline_ns = 0;
        bool has_left = false;
        {
            const Worker::Drive drive(worker);
            if (!drive) {  // an application thread or a control call has the worker
                sched_yield();
                continue;
            }
            moved = worker.core(drive).background_round();
            // A watcher that is awake makes a round before it sleeps.
            owes_round &= moved != 0 && runtime_.watchers().is_watched();
            deadline_ns = worker.core(drive).next_deadline();
            has_left = worker.core(drive).next_wakeup_ns() == 0;
        }
        if (moved != 0) {
            idle_since_ns = now_ns;
            nap_ns = kFirstNapNs;
        } else if (now_ns - idle_since_ns >= (handed_over && runtime_.all_ring() ? 0 : kIdleNs)) {
            const bool may_ring = !has_left && (handed_over || nap_ns == kLastNapNs);
            if (deadline_ns > now_ns && runtime_.all_ring() && may_ring)
                owes_round = sleep_until_rung(std::min(now_ns + poll_interval_ns(), deadline_ns));
            else if (deadline_ns > now_ns)
                nap(std::min(nap_ns, deadline_ns - now_ns));
            nap_ns = std::min(nap_ns * 2, kLastNapNs);
        } else {
            rte_pause();
        }
        if (runtime_.is_oversubscribed()) runtime_.yield();
    }
}

}  // namespace rove::datapath
