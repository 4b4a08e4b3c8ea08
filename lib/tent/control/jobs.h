// SPDX-License-Identifier: Apache-2.0
// Threads for what may block: setting up QPs over a rail that may be dead, calls to a peer that may be gone. They start
// when all others are busy, so that a job which waits out its deadline delays no other, and sleep when there is nothing
// to do.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace rove::tent {

class Jobs {
  public:
    static constexpr size_t kMaxThreads = 32;

    ~Jobs() { stop(); }
    // Runs `job` soon. After stop() it is dropped.
    void add(std::function<void()> job);
    // Waits for jobs that run, drops those that wait.
    void stop();

  private:
    void run();

    std::mutex mutex_;
    std::condition_variable work_;
    std::deque<std::function<void()>> waiting_;
    std::vector<std::thread> threads_;
    size_t idle_ = 0;
    bool stopped_ = false;
};

}  // namespace rove::tent
