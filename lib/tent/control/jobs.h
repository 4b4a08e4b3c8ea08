// SPDX-License-Identifier: Apache-2.0
// Threads for work that may block: setting up QPs over a rail that may be dead, or calls to a peer that may have ended.
// Each peer has its own queue and its own share of the threads, so that jobs which wait until their deadline for a dead
// peer delay no other peer. The caller of add() may hold a drive lock, and starting a thread takes up to milliseconds.
// So a thread that takes a job starts another one for the next job, if it was the last free thread. All threads but one
// end after some idle time.
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
    // Runs `job` soon. `peer` is the peer that the job waits for, as any text that is the same for all jobs of that
    // peer. After stop() the job is dropped.
    void add(const std::string& peer, std::function<void()> job);
    // Waits for the jobs that run, and drops the jobs that wait.
    void stop();

  private:
    struct Queue {
        std::deque<std::function<void()>> waiting;
        size_t running = 0;
    };

    void start_thread();  // needs mutex_
    void run(std::list<std::thread>::iterator self);
    // Returns the queue whose turn it is, or the end if no queue may run a job. The caller holds mutex_.
    std::map<std::string, Queue>::iterator next();

    std::mutex mutex_;
    std::condition_variable work_;
    std::map<std::string, Queue> queues_;  // indexed by peer; a queue with no job is erased
    std::string last_;                     // peer that had the last turn
    size_t runnable_ = 0;                  // jobs that wait only for a thread
    std::list<std::thread> threads_, ended_;
    size_t free_ = 0;  // threads that run no job
    bool stopped_ = false;
};

}  // namespace rove::tent
