// SPDX-License-Identifier: Apache-2.0
// The sleep of the program's threads until a completion arrives. Units: nanoseconds of the runtime's clock.
//
// DESIGN NOTES
// 1. With shared progress no core belongs to the datapath. If a waiting thread left the frames to the progress thread,
//    each message would wake the progress thread, which would wake the program: two wake-ups where kernel TCP has one.
//    So the thread that waits for a completion receives the frames. It makes rounds, and when nothing arrives it
//    unmasks the doorbells and sleeps on them and on its own file, an eventfd or whatever the program polls.
// 2. One thread at a time watches the doorbells. Others sleep on their own files, which the watcher's rounds make
//    readable.
// 3. A watcher that returns to the program usually comes back within microseconds, so no thread is woken to replace it.
//    The progress thread, which naps while watches begin and end, notices if the watcher does not come back. It then
//    makes another thread the watcher, or drives the datapath itself. Until then frames wait as they do for a program
//    that polls and stops.
// 4. The progress thread also handles the transport's deadlines, so these may be a nap late while a thread watches. If
//    a watcher slept only until the next deadline, it would set a timer for each message, which in a virtual machine
//    costs as much as its wake-up.
// 5. If messages arrive faster than a sleep and a wake-up take, the watcher spins for a while before it sleeps, as a
//    hypervisor's halt polling does. The window grows while sleeps are short, and closes after a long one. No thread
//    spins on a core that others need: a thread that lost its core while it spun, or whose peer answered only after it
//    slept, stops spinning for a time that doubles.
#pragma once

#include <poll.h>

#include <atomic>
#include <csignal>
#include <cstddef>
#include <cstdint>

namespace rove::datapath {

class Runtime;

// How long a thread spins before it sleeps (design note 5). Each waiting thread has its own.
class SpinWindow {
  public:
    static constexpr uint64_t kFirstNs = 10'000;
    static constexpr uint64_t kMaxNs = 100'000;        // more than two wake-ups on an idle host
    static constexpr uint64_t kPreemptedNs = 300'000;  // in one iteration of the loop: another thread had the core
    static constexpr uint64_t kFirstBarNs = 100'000'000, kMaxBarNs = 3'200'000'000;

    // Returns the time for which to spin now.
    uint64_t window_ns(uint64_t now_ns) const { return now_ns < barred_until_ns_ ? 0 : window_ns_; }
    // Records that the thread has slept for `ns` before something arrived.
    void slept(uint64_t ns, uint64_t now_ns);
    // Records that it has spun, and whether it was successful.
    void spun(bool came, uint64_t now_ns);
    // Records that it lost its core while it spun.
    void preempted(uint64_t now_ns);

  private:
    void bar(uint64_t now_ns);

    uint64_t window_ns_ = 0;
    uint64_t barred_until_ns_ = 0;
    uint64_t bar_ns_ = kFirstBarNs;
    bool spun_in_vain_ = false;  // before the current sleep
};

// The state shared by the waiting threads of a runtime: which of them watches.
class Watchers {
  public:
    Watchers();
    ~Watchers();
    Watchers(const Watchers&) = delete;
    Watchers& operator=(const Watchers&) = delete;

    // Returns true while a thread sleeps with the doorbells unmasked.
    bool is_watched() const { return watched_.load(std::memory_order_seq_cst); }
    // Returns true while a thread of the program waits, whether or not it watches.
    bool has_threads() const { return threads_.load(std::memory_order_relaxed) != 0; }
    // Returns a number that changes whenever a sleep begins or ends.
    uint32_t changes() const { return changes_.load(std::memory_order_relaxed); }
    // Returns true if waiting threads of the program make it unnecessary that the progress thread drives, or did so
    // after changes() was `seen_changes`.
    bool replace(uint32_t seen_changes) const { return is_watched() || has_threads() || changes() != seen_changes; }
    // Ends the sleep of a thread that does not watch, so that it becomes the watcher.
    void promote();
    // Closes the file in a forked child, where the threads do not exist.
    void after_fork_in_child();

  private:
    friend class Watch;

    std::atomic<bool> watched_{false};
    std::atomic<uint32_t> threads_{0};
    std::atomic<uint32_t> changes_{0};
    int promoted_;  // an eventfd
};

// One wait of the calling thread, from the moment when it finds nothing to do until it returns to the program.
class Watch {
  public:
    explicit Watch(Runtime& runtime);
    ~Watch();
    Watch(const Watch&) = delete;
    Watch& operator=(const Watch&) = delete;

    // Makes rounds until `has_come()`, which is called after each, returns true, or until it is better to sleep.
    // Returns the last result of `has_come()`.
    template <class HasCome>
    bool spin(HasCome&& has_come) {
        round();
        if (has_come()) return true;
        uint64_t now_ns = this->now_ns();
        const uint64_t until_ns = now_ns + window_.window_ns(now_ns);
        if (until_ns == now_ns) return false;
        bool came = false;
        while (!came && now_ns < until_ns) {
            const uint64_t before_ns = now_ns;
            round();
            came = has_come();
            now_ns = this->now_ns();
            if (now_ns - before_ns >= SpinWindow::kPreemptedNs) {
                window_.preempted(now_ns);
                return came;
            }
        }
        window_.spun(came, now_ns);
        return came;
    }

    // Sleeps until one of the first `count` of `files` is ready, a doorbell has rung and its frames have been received,
    // a signal handler has run, or `until_ns` is reached. It is a cancellation point. `files` has room for one more
    // entry, which is overwritten. `mask` is that of ppoll(), and may be null. Returns the number of files that are
    // ready, or -1 and sets errno. The caller then checks its condition and calls again if it is not met.
    int sleep(pollfd* files, nfds_t count, uint64_t until_ns, const sigset_t* mask);

    uint64_t now_ns() const;

  private:
    // Makes a round, unless another thread drives.
    void round();
    // Unmasks the doorbells. Returns false if this thread cannot be the watcher.
    bool begin_watch(uint64_t* until_ns, bool* has_frames);
    void end_watch(uint64_t rested_ns);

    Runtime& runtime_;
    SpinWindow& window_;
    bool has_watched_ = false;
    // Set if the last round processed something, because a socket, which rings once for each frame, may then have more.
    // Also set if the round was left to another thread, which may have begun it before work was posted.
    bool owes_round_ = true;
    uint64_t nap_ns_;  // duration of the next sleep if something is left to send that no doorbell announces
};

}  // namespace rove::datapath
