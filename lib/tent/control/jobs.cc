// SPDX-License-Identifier: Apache-2.0
// See jobs.h.
#include "tent/control/jobs.h"

#include <utility>

namespace rove::tent {

void Jobs::add(std::function<void()> job) {
    const std::lock_guard lock(mutex_);
    if (stopped_) return;
    waiting_.push_back(std::move(job));
    if (idle_ < waiting_.size() && threads_.size() < kMaxThreads) threads_.emplace_back([this] { run(); });
    work_.notify_one();
}

void Jobs::stop() {
    std::vector<std::thread> threads;
    {
        const std::lock_guard lock(mutex_);
        stopped_ = true;
        waiting_.clear();
        threads.swap(threads_);
    }
    work_.notify_all();
    for (std::thread& thread : threads) thread.join();
}

void Jobs::run() {
    std::unique_lock lock(mutex_);
    while (true) {
        ++idle_;
        work_.wait(lock, [this] { return stopped_ || !waiting_.empty(); });
        --idle_;
        if (stopped_) return;
        const std::function<void()> job = std::move(waiting_.front());
        waiting_.pop_front();
        lock.unlock();
        job();
        lock.lock();
    }
}

}  // namespace rove::tent
