// SPDX-License-Identifier: Apache-2.0
// See jobs.h.
#include "tent/control/jobs.h"

#include <chrono>
#include <utility>

#include "base/no_signals.h"

namespace rove::tent {

namespace {

constexpr std::chrono::seconds kIdle{5};  // idle time after which a thread ends

}  // namespace

void Jobs::add(const std::string& peer, std::function<void()> job) {
    const std::lock_guard lock(mutex_);
    if (stopped_) return;
    Queue& queue = queues_[peer];
    queue.waiting.push_back(std::move(job));
    if (queue.running + queue.waiting.size() > kMaxPerPeer) return;  // it runs after another job of its peer
    ++runnable_;
    if (threads_.empty()) start_thread();
    work_.notify_one();
}

void Jobs::start_thread() {
    const auto self = threads_.emplace(threads_.end());
    const NoSignals guard;
    *self = std::thread([this, self] { run(self); });  // run() first waits for the lock
    ++free_;
}

void Jobs::stop() {
    std::list<std::thread> threads;
    {
        const std::lock_guard lock(mutex_);
        stopped_ = true;
        for (auto& [peer, queue] : queues_) queue.waiting.clear();
        threads.swap(threads_);
        threads.splice(threads.end(), ended_);
    }
    work_.notify_all();
    for (std::thread& thread : threads) thread.join();
}

std::map<std::string, Jobs::Queue>::iterator Jobs::next() {
    auto at = queues_.upper_bound(last_);
    for (size_t looked = 0; looked < queues_.size(); ++looked, ++at) {
        if (at == queues_.end()) at = queues_.begin();
        if (!at->second.waiting.empty() && at->second.running < kMaxPerPeer) return at;
    }
    return queues_.end();
}

void Jobs::run(std::list<std::thread>::iterator self) {
    std::unique_lock lock(mutex_);
    while (!stopped_) {
        const auto at = next();
        if (at == queues_.end()) {
            const bool woken = work_.wait_for(lock, kIdle, [this] { return stopped_ || runnable_ != 0; });
            if (woken || free_ == 1) continue;
            --free_;
            ended_.splice(ended_.end(), threads_, self);
            return;
        }
        last_ = at->first;
        Queue& queue = at->second;
        std::function<void()> job = std::move(queue.waiting.front());
        queue.waiting.pop_front();
        ++queue.running;
        --runnable_;
        --free_;
        if (free_ == 0 && threads_.size() < kMaxThreads) start_thread();
        std::list<std::thread> ended;
        ended.swap(ended_);
        lock.unlock();
        for (std::thread& thread : ended) thread.join();
        job();
        job = nullptr;  // destroys its captures here and not under the lock
        lock.lock();
        ++free_;
        --queue.running;
        if (queue.running + queue.waiting.size() >= kMaxPerPeer) ++runnable_;
        if (queue.running == 0 && queue.waiting.empty()) queues_.erase(at);
    }
}

}  // namespace rove::tent
