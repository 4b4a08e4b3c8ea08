// SPDX-License-Identifier: Apache-2.0
// Progress while the program does not ask for any: failover, time-outs and completions go on. Units: nanoseconds.
//
// While the program drives often, this thread only looks every kWatchNapNs whether it still does. When it does not, and
// something is under way, it drives, with naps between rounds in which nothing moved. When nothing is under way it
// sleeps until something is.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <thread>

#include "tent/engine/core.h"

namespace rove::tent {

class Background {
  public:
    explicit Background(Core& core) : core_(core) {}
    ~Background() { stop(); }

    // `tidy` is called every kTidyNs or so.
    void start(std::function<void()> tidy);
    void stop();
    // Something was submitted. Any thread; costs nothing while the thread is awake.
    void wake();

  private:
    // Of a shard: when it was last looked at, how often the program had driven it by then, and when to look again.
    struct Look {
        uint64_t drives = 0, looked_ns = 0;
        uint64_t nap_ns = 0, due_ns = 0;
        bool is_driven = false, had_nothing = false;
    };

    void run();
    void look_after(Shard& shard, Look& look, uint64_t now_ns);
    void nap(uint64_t ns, bool until_woken);

    Core& core_;
    std::function<void()> tidy_;
    std::thread thread_;
    std::atomic<bool> stop_{false};
    // 0 awake, 1 asleep until there is work; the futex. wake() exchanges it after the work was published, nap() after
    // it announced its sleep looks for work again: one of both sees the other.
    std::atomic<uint32_t> asleep_{0};
};

}  // namespace rove::tent
