// SPDX-License-Identifier: Apache-2.0
// Makes progress while the program does not ask for any, so that failover, time-outs and completions continue. Units:
// nanoseconds.
//
// While the program drives often, this thread only checks every kWatchNapNs that it still does. When the program stops
// driving and tasks are unfinished, the thread drives, and naps after rounds in which nothing moved. It sleeps while no
// task is unfinished.
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

    // Starts the thread, which calls `tidy` about every kTidyNs.
    void start(std::function<void()> tidy);
    void stop();
    // Wakes the thread because a request was submitted. Any thread may call it. It costs nothing while this thread is
    // awake.
    void wake();

  private:
    // The last check of a shard: its time, how often the program had driven the shard until that time, and when the
    // next check is due.
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
    // A futex: 0 while the thread is awake, 1 while it sleeps until there is work. wake() exchanges it after the work
    // was published. nap() checks for work again after it announced its sleep. At least one of the two therefore sees
    // the other.
    std::atomic<uint32_t> asleep_{0};
};

}  // namespace rove::tent
