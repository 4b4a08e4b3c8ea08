// SPDX-License-Identifier: Apache-2.0
// The thread of a watch. It listens to a store, and starts again one second after that has failed or ended.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>

#include "base/no_signals.h"
#include "tent/metadata/store.h"

namespace rove::tent {

class WatchThread : public StoreWatch {
  public:
    // `listen` blocks while the store reports changes. `interrupt`, which any thread may call, ends it, also a later
    // call.
    WatchThread(std::function<void()> listen, std::function<void()> interrupt)
        : listen_(std::move(listen)), interrupt_(std::move(interrupt)) {
        const NoSignals guard;
        thread_ = std::thread([this] { run(); });
    }
    ~WatchThread() override {
        {
            const std::lock_guard lock(mutex_);
            ends_ = true;
        }
        end_.notify_one();
        interrupt_();
        thread_.join();
    }

  private:
    void run() {
        std::unique_lock lock(mutex_);
        while (!ends_) {
            lock.unlock();
            listen_();
            lock.lock();
            end_.wait_for(lock, std::chrono::seconds(1), [this] { return ends_; });
        }
    }

    const std::function<void()> listen_, interrupt_;
    std::mutex mutex_;
    std::condition_variable end_;
    bool ends_ = false;
    std::thread thread_;
};

}  // namespace rove::tent
