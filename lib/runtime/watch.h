// SPDX-License-Identifier: Apache-2.0
// Threads of the program that sleep until a completion comes. Units: nanoseconds of the runtime's clock.
//
// DESIGN NOTES
// 1. With shared progress no core belongs to the datapath. If a thread that waits for a completion left the frames to
// the
//    background thread, each message would wake that thread, which would wake the program: two wake-ups where kernel
//    TCP has one. So the thread that waits receives the frames: it makes rounds, and when nothing comes it unmasks the
//    doorbells and sleeps on them and on its own file, an eventfd or whatever the program polls.
// 2. One thread at a time watches the doorbells. Others sleep on their own files, which the watcher's rounds make
// readable.
// 3. A watcher that returns to the program usually comes back within microseconds, so no thread is woken to replace it.
// The
//    background thread, which naps while watches begin and end, notices if it does not come back: it makes another
//    thread the watcher, or drives the datapath itself. Until then frames wait as they do for a program that polls and
//    stops.
// 4. The transport's deadlines are the background thread's as well, so that they may be a nap late while a thread
// watches.
//    A watcher that slept no longer than until the next one would set a timer with each message, which in a virtual
//    machine costs as much as its wake-up.
// 5. Where messages come faster than a sleep and a wake-up take, the watcher spins for a while before it sleeps, as a
//    hypervisor's halt polling does: the window grows while sleeps are short, and closes after a long one. A core that
//    something else wants is never spun on: a thread that lost its core while it spun, or whose peer answered only once
//    it slept, stops spinning for a time that doubles.
#pragma once

#include <poll.h>

#include <atomic>
#include <csignal>
#include <cstddef>
#include <cstdint>

namespace rove::datapath {

class Runtime;

// How long a thread spins before it sleeps (design note 5). One for each thread that waits.
class SpinWindow {
  public:
    static constexpr uint64_t kFirstNs = 10'000;
    static constexpr uint64_t kMaxNs = 100'000;        // more than two wake-ups on an idle host
    static constexpr uint64_t kPreemptedNs = 300'000;  // between two turns of the loop: another thread had the core
    static constexpr uint64_t kFirstBarNs = 100'000'000, kMaxBarNs = 3'200'000'000;

    // Returns how long to spin now.
    uint64_t window_ns(uint64_t now_ns) const { return now_ns < barred_until_ns_ ? 0 : window_ns_; }
    // The thread has slept for `ns` before something came.
    void slept(uint64_t ns, uint64_t now_ns);
    // It has spun, and what it waited for has come, or has not.
    void spun(bool came, uint64_t now_ns);
    // It lost its core while it spun.
    void preempted(uint64_t now_ns);

  private:
    void bar(uint64_t now_ns);

    uint64_t window_ns_ = 0;
    uint64_t barred_until_ns_ = 0;
    uint64_t bar_ns_ = kFirstBarNs;
    bool spun_in_vain_ = false;  // before the sleep that is under way
};

// The state that the waiting threads of a runtime share: which of them watches.
class Watchers {
  public:
    Watchers();
    ~Watchers();
    Watchers(const Watchers&) = delete;
    Watchers& operator=(const Watchers&) = delete;

    // True while a thread sleeps with the doorbells unmasked.
    bool is_watched() const { return watched_.load(std::memory_order_seq_cst); }
    // True while a thread of the program waits, whether or not it watches.
    bool has_threads() const { return threads_.load(std::memory_order_relaxed) != 0; }
    // Changes whenever a sleep begins or ends.
    uint32_t changes() const { return changes_.load(std::memory_order_relaxed); }
    // Returns true if threads of the program that wait make it unnecessary that the background thread drives, or did so
    // after changes() was `seen_changes`.
    bool replace(uint32_t seen_changes) const { return is_watched() || has_threads() || changes() != seen_changes; }
    // Ends the sleep of a thread that does not watch, so that it becomes the watcher.
    void promote();
    // Closes the file, in a child that has none of the threads.
    void after_fork_in_child();

  private:
    friend class Watch;

    std::atomic<bool> watched_{false};
    std::atomic<uint32_t> threads_{0};
    std::atomic<uint32_t> changes_{0};
    int promoted_;  // an eventfd
};

// One wait of the calling thread, from when it finds nothing to do until it returns to the program.
class Watch {
  public:
    explicit Watch(Runtime& runtime);
    ~Watch();
    Watch(const Watch&) = delete;
    Watch& operator=(const Watch&) = delete;

    // Makes rounds until `has_come()`, which is asked after each, or until it is better to sleep. Returns the last
    // answer.
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

    // Sleeps until one of the first `count` of `files` is ready, a doorbell has rung and its frames are received, a
    // signal's handler ran, or `until_ns`, and is a cancellation point. `files` has room for one more, which is
    // written. `mask` is ppoll()'s, and may be null. Returns how many of the files are ready, or -1 and errno. The
    // caller looks at what it waits for, and calls again.
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
    // The last round moved something, so that a socket, which rings once for each frame, may have more. Or it was left
    // to another thread, which may have begun its round before work was posted.
    bool owes_round_ = true;
    uint64_t nap_ns_;  // the next sleep where something is left to send that no doorbell tells of
};

}  // namespace rove::datapath
