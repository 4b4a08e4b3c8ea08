// SPDX-License-Identifier: Apache-2.0
// The files that end a sleep. Units: nanoseconds.
//
// There are two sets, because different threads sleep on them. Control files (listening sockets, handshakes, the
// changes of an interface) are served by the background thread alone. Doorbells (the eventfd that a peer writes after
// it has published frames, or a socket that frames come from) wake the thread that watches for frames at that moment: a
// thread of the program that waits for a completion, or the background thread.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>

namespace rove::datapath {

class EventLoop {
  public:
    EventLoop();
    ~EventLoop();
    EventLoop(const EventLoop&) = delete;
    EventLoop& operator=(const EventLoop&) = delete;
    // Returns false if the process had no descriptors for it.
    bool is_open() const { return control_ >= 0 && woken_ >= 0 && doorbells_ >= 0 && own_doorbell_ >= 0; }

    // Calls `ready` from wait() whenever `file` can be read, from now on. Any thread.
    void add(int file, std::function<void()> ready);
    // From now on calls it only when the socket's peer has closed it: what comes is a doorbell's. Any thread.
    void await_end_only(int file);
    // Ends that. Must be called before `file` is closed, and either within a call of wait() or while no wait() is under
    // way that may call `ready` for this file.
    void remove(int file);

    enum class Doorbell {
        kEventfd,  // has to be read after it has rung
        kSocket,   // is read by its queue
        kMessage,  // a socket that a message comes from when it rings; these have to be read before it is full
    };
    // Lets `file` end sleeps, each time that something new can be read from it. Any thread.
    void add_doorbell(int file, Doorbell kind);
    // Ends that. Must be called before `file` is closed. Any thread.
    void remove_doorbell(int file);
    // Returns a file that can be read after a doorbell has rung, until take_doorbells(). Any number of threads may poll
    // it.
    int doorbells() const { return doorbells_; }
    // Forgets the doorbells that have rung, so that doorbells() can be slept on again. Any thread.
    void take_doorbells();

    // Rings a doorbell of our own: the threads that sleep look at the ports again. Any thread.
    void ring();

    // Ends the wait() that is under way, or the next one. Any thread.
    void wake();
    // Sleeps until a control file or a doorbell can be read, wake() is called, or `ns` have passed, and serves what can
    // be read. Only one thread calls wait() and wait_for_control().
    void wait(uint64_t ns) { wait(ns, true); }
    // Does the same, and ignores doorbells.
    void wait_for_control(uint64_t ns) { wait(ns, false); }
    // In a forked child: closes what the parent sleeps on. wake() and ring() do nothing from then on.
    void after_fork_in_child();

  private:
    void wait(uint64_t ns, bool doorbells);
    void serve_control();
    void close_files();

    int control_ = -1, woken_ = -1, doorbells_ = -1, own_doorbell_ = -1;
    std::mutex mutex_;
    std::map<int, std::shared_ptr<std::function<void()>>> ready_;  // by control file
    struct ToRead {
        Doorbell kind;
        uint32_t most_unread = 0, unread = 0;  // times that it may ring, and has rung, without being read
    };
    std::map<int, ToRead> to_read_;  // the doorbells that have to be read
};

}  // namespace rove::datapath
