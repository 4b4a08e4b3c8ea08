// SPDX-License-Identifier: Apache-2.0
#include "runtime/watch.h"

#include <rte_pause.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "base/libc.h"
#include "runtime/progress_thread.h"
#include "runtime/runtime.h"
#include "runtime/worker_core.h"

namespace rove::datapath {

namespace {

constexpr uint64_t kFirstNapNs = 20'000;  // the shortest sleep that is worth its two system calls
constexpr uint64_t kLastNapNs = 500'000;
constexpr uint32_t kDriveTries = 64;  // about 1 us: a round of another thread

SpinWindow& window_of_thread() {
    thread_local SpinWindow window;
    return window;
}

}  // namespace

void SpinWindow::slept(uint64_t ns, uint64_t now_ns) {
    if (ns >= kMaxNs) {
        window_ns_ = 0;
    } else if (spun_in_vain_) {
        bar(now_ns);  // the peer needed this core
    } else {
        window_ns_ = std::clamp(2 * window_ns_, kFirstNs, kMaxNs);
    }
    spun_in_vain_ = false;
}

void SpinWindow::spun(bool came, uint64_t now_ns) {
    spun_in_vain_ = !came && window_ns_ == kMaxNs;
    if (came && now_ns - barred_until_ns_ > 10 * kMaxBarNs) bar_ns_ = kFirstBarNs;
}

void SpinWindow::preempted(uint64_t now_ns) {
    bar(now_ns);
}

void SpinWindow::bar(uint64_t now_ns) {
    barred_until_ns_ = now_ns + bar_ns_;
    bar_ns_ = std::min(2 * bar_ns_, kMaxBarNs);
    window_ns_ = 0;
}

Watchers::Watchers() : promoted_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {}

Watchers::~Watchers() {
    if (promoted_ >= 0) close(promoted_);
}

void Watchers::after_fork_in_child() {
    if (promoted_ >= 0) close(std::exchange(promoted_, -1));
}

void Watchers::promote() {
    eventfd_write(promoted_, 1);
}

Watch::Watch(Runtime& runtime) : runtime_(runtime), window_(window_of_thread()), nap_ns_(kFirstNapNs) {
    runtime_.watchers().threads_.fetch_add(1, std::memory_order_relaxed);
}

Watch::~Watch() {
    runtime_.watchers().threads_.fetch_sub(1, std::memory_order_relaxed);
    if (has_watched_) runtime_.background().expect_watcher();
}

uint64_t Watch::now_ns() const {
    return runtime_.now_ns();
}

void Watch::round() {
    Worker& worker = *runtime_.workers().front();
    if (const Worker::Drive drive(worker); drive) {
        owes_round_ = worker.core(drive).round() != 0;
    } else {
        rte_pause();
        owes_round_ = true;
    }
}

bool Watch::begin_watch(uint64_t* until_ns, bool* has_frames) {
    Watchers& watchers = runtime_.watchers();
    *has_frames = false;
    if (watchers.watched_.exchange(true, std::memory_order_seq_cst)) return false;
    Worker& worker = *runtime_.workers().front();
    for (uint32_t tries = 0; tries < kDriveTries; ++tries) {
        const Worker::Drive drive(worker);
        if (!drive) {
            rte_pause();
            continue;
        }
        WorkerCore& core = worker.core(drive);
        if (owes_round_) owes_round_ = core.round() != 0;
        *has_frames = owes_round_ || !core.arm();
        if (*has_frames) break;
        *until_ns = std::min(*until_ns, core.next_release());
        if (core.next_wakeup_ns() == 0) {
            *until_ns = std::min(*until_ns, now_ns() + nap_ns_);
            nap_ns_ = std::min(2 * nap_ns_, kLastNapNs);
        } else {
            nap_ns_ = kFirstNapNs;
        }
        has_watched_ = true;
        return true;
    }
    watchers.watched_.store(false, std::memory_order_seq_cst);
    return false;
}

void Watch::end_watch(uint64_t rested_ns) {
    Worker& worker = *runtime_.workers().front();
    {
        const Worker::Hold hold(worker);
        worker.core(hold).disarm(rested_ns);
        worker.core(hold).round();
    }
    runtime_.watchers().watched_.store(false, std::memory_order_seq_cst);
}

int Watch::sleep(pollfd* files, nfds_t count, uint64_t until_ns, const sigset_t* mask) {
    Watchers& watchers = runtime_.watchers();
    EventLoop& poller = runtime_.poller();
    bool has_frames = false;
    const bool watches = begin_watch(&until_ns, &has_frames);
    if (has_frames) return 0;
    watchers.changes_.fetch_add(1, std::memory_order_relaxed);
    // If the thread is cancelled in ppoll(), this ends the sleep.
    class Ends {
      public:
        Ends(Watch& watch, bool watches) : watch_(watch), watches_(watches), begun_ns_(watch.now_ns()) {}
        ~Ends() {
            const uint64_t now_ns = watch_.now_ns(), ns = now_ns - begun_ns_;
            watch_.window_.slept(ns, now_ns);
            if (watches_) watch_.end_watch(ns);
            watch_.runtime_.watchers().changes_.fetch_add(1, std::memory_order_relaxed);
        }

      private:
        Watch& watch_;
        const bool watches_;
        const uint64_t begun_ns_;
    } const ends(*this, watches);

    files[count] = {.fd = watches ? poller.doorbells() : watchers.promoted_, .events = POLLIN, .revents = 0};
    const uint64_t now_ns = this->now_ns(), ns = until_ns > now_ns ? until_ns - now_ns : 0;
    const timespec time{static_cast<time_t>(ns / 1'000'000'000), static_cast<long>(ns % 1'000'000'000)};
    int ready = libc::blocking_ppoll(files, count + 1, until_ns == UINT64_MAX ? nullptr : &time, mask);
    if (ready > 0 && files[count].revents != 0) {
        --ready;
        eventfd_t times;
        if (watches)
            poller.take_doorbells();
        else
            eventfd_read(watchers.promoted_, &times);
    }
    return ready;
}

}  // namespace rove::datapath
