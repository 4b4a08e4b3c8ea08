// SPDX-License-Identifier: Apache-2.0
// Tests jobs of dead peers, which wait for their deadlines, together with jobs of other peers.
#include "tent/control/jobs.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <future>
#include <string>
#include <thread>
#include <vector>

namespace rove::tent {

namespace {

// Jobs that wait until the gate lets them end.
class Gate {
  public:
    std::function<void()> job() {
        return [this] {
            running.fetch_add(1);
            open_.wait(false);
            done.fetch_add(1);
        };
    }
    void open() {
        open_.store(true);
        open_.notify_all();
    }
    std::atomic<size_t> running{0}, done{0};

  private:
    std::atomic<bool> open_{false};
};

void wait_until(const std::function<bool()>& is_so) {
    for (int i = 0; i < 5000 && !is_so(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    EXPECT_TRUE(is_so());
}

}  // namespace

TEST(Jobs, OfDeadPeersDelayNobodyElses) {
    Gate gate;
    Jobs jobs;
    constexpr size_t kDead = 16, kEach = 3 * Jobs::kMaxPerPeer;
    for (size_t i = 0; i < kDead * kEach; ++i) jobs.add("dead" + std::to_string(i % kDead), gate.job());
    for (int i = 0; i < 100; ++i) {
        std::promise<void> done;
        auto future = done.get_future();
        jobs.add("alive", [&] { done.set_value(); });
        ASSERT_EQ(future.wait_for(std::chrono::seconds(5)), std::future_status::ready) << "job " << i;
    }
    wait_until([&] { return gate.running.load() == kDead * Jobs::kMaxPerPeer; });
    gate.open();
    wait_until([&] { return gate.done.load() == kDead * kEach; });
}

TEST(Jobs, OfOnePeerGoOnInTheirOrderWhenItsShareIsTaken) {
    Gate gate;
    Jobs jobs;
    for (size_t i = 0; i < Jobs::kMaxPerPeer - 1; ++i) jobs.add("one", gate.job());
    wait_until([&] { return gate.running.load() == Jobs::kMaxPerPeer - 1; });
    std::vector<int> order;
    std::atomic<int> done{0};
    for (int i = 0; i < 1000; ++i) {
        jobs.add("one", [&, i] {
            order.push_back(i);
            done.fetch_add(1);
        });
    }
    wait_until([&] { return done.load() == 1000; });
    EXPECT_TRUE(std::is_sorted(order.begin(), order.end()));
    gate.open();
}

TEST(Jobs, WaitAtTheEndForThoseThatRunAndDropTheRest) {
    Gate gate;
    std::atomic<bool> ran{false};
    std::thread opener;
    {
        Jobs jobs;
        for (size_t i = 0; i < Jobs::kMaxPerPeer; ++i) jobs.add("one", gate.job());
        wait_until([&] { return gate.running.load() == Jobs::kMaxPerPeer; });
        jobs.add("one", [&] { ran.store(true); });
        opener = std::thread([&] {
            std::this_thread::sleep_for(std::chrono::milliseconds(50));
            gate.open();
        });
        jobs.stop();
        jobs.add("one", [&] { ran.store(true); });
    }
    EXPECT_EQ(gate.done.load(), Jobs::kMaxPerPeer);
    EXPECT_FALSE(ran.load());
    opener.join();
}

}  // namespace rove::tent
