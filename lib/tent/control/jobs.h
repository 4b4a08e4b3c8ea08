// SPDX-License-Identifier: Apache-2.0
// Threads for what may block: setting up QPs over a rail that may be dead, calls to a peer that may be gone. Each peer
// has a queue and a share of threads of its own, so that jobs which wait for a dead peer's answer until their deadline
// delay nobody else's. Whoever adds a job may hold a drive lock, and starting a thread takes up to milliseconds: so a
// thread that takes a job starts another one for the next, if it was the last that had none. All but one end when there
// was nothing to do for some time.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <list>
#include <map>
#include <mutex>
#include <string>
#include <thread>

namespace rove::tent {

class Jobs {
  public:
    static constexpr size_t kMaxPerPeer = 16;  // threads; a rail has one job at a time
    static constexpr size_t kMaxThreads = 1024;

    ~Jobs() { stop(); }
    // Runs `job` soon; `peer`: whom it waits for, any text that is the same for jobs of the same peer. After stop() it
    // is dropped.
    void add(const std::string& peer, std::function<void()> job);
    // Waits for jobs that run, drops those that wait.
    void stop();

  private:
    struct Queue {
        std::deque<std::function<void()>> waiting;
        size_t running = 0;
    };

    void start_thread();  // with mutex_
    void run(std::list<std::thread>::iterator self);
    // The queue whose turn it is, or the end if there is none that may run a job. With mutex_.
    std::map<std::string, Queue>::iterator next();

    std::mutex mutex_;
    std::condition_variable work_;
    std::map<std::string, Queue> queues_;  // by peer; one that is empty and runs nothing is not there
    std::string last_;                     // whose turn it was
    size_t runnable_ = 0;                  // jobs that wait for nothing but a thread
    std::list<std::thread> threads_, ended_;
    size_t free_ = 0;  // threads that run no job
    bool stopped_ = false;
};

}  // namespace rove::tent
