// SPDX-License-Identifier: Apache-2.0
// The files that the background thread waits for when it sleeps: sockets, doorbells of rings. Units: nanoseconds.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>

namespace rove::datapath {

class Poller {
  public:
    Poller();
    ~Poller();
    Poller(const Poller&) = delete;
    Poller& operator=(const Poller&) = delete;

    // Any thread: from now on wait() calls `ready` when `file` can be read.
    void add(int file, std::function<void()> ready);
    // Before `file` is closed. Within a call of wait(), or while none is under way that may call for this file.
    void remove(int file);
    // Any thread: ends the wait that is under way, or the next one.
    void wake();
    // Sleeps until a file can be read, wake() is called, or `ns` have passed, and calls for what can be read.
    void wait(uint64_t ns);

  private:
    int epoll_ = -1, woken_ = -1;
    std::mutex mutex_;
    std::map<int, std::shared_ptr<std::function<void()>>> ready_;  // by file
};

}  // namespace rove::datapath
