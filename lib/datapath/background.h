// SPDX-License-Identifier: Apache-2.0
// Progress while the application is elsewhere, and housekeeping. Runs on EAL's main thread. Units: nanoseconds.
//
// With shared progress there are two states:
//
//     watching  the application drives the worker itself, it calls in often: we sleep for kWatchNapNs or more, and look
//     driving   it does not: we poll. While packets move we poll on; after kIdleNs without any we sleep, longer each
//               time, but never past the transport's next deadline. When the application calls often again, we leave
//               it the worker
//
// So of two threads of a process never both spin, and an idle process costs a short round per nap.
// With dedicated lcores only the housekeeping is done.
#pragma once

#include <atomic>
#include <cstdint>

namespace rove::datapath {

class Runtime;

class Background {
  public:
    explicit Background(Runtime& runtime) : runtime_(runtime) {}

    void run();  // until stop()
    void stop();
    bool stopped() const { return stop_.load(std::memory_order_relaxed); }

    // The application called in, whether or not it could drive. Several threads may lose each other's counts: only
    // whether there are many matters.
    void called() { calls_.store(calls_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed); }
    // Drive now: the application goes to sleep, or posted work that nobody took.
    void take_over();
    // A driver's callback ran: look after the ports now.
    void look_after_ports();

  private:
    void share();
    bool driven_since(uint64_t time_ns);
    void nap(uint64_t ns);
    void housekeep(uint64_t now_ns);

    Runtime& runtime_;
    std::atomic<uint32_t> calls_{0};  // relaxed: a hint
    std::atomic<bool> stop_{false};
    // 0 awake, 1 asleep; the futex. Exchanges on both sides: a take_over() that finds us awake is seen before we sleep,
    // because it left `taken_over_` (release) which nap() reads (acquire) after it announced its sleep.
    std::atomic<uint32_t> asleep_{0};
    std::atomic<bool> taken_over_{false};
    std::atomic<bool> ports_changed_{false};  // read before each nap and round; take_over()'s order suffices
    uint64_t housekept_ns_ = 0;
};

}  // namespace rove::datapath
