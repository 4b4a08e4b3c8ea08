// SPDX-License-Identifier: Apache-2.0
// The files that end a sleep. Units: nanoseconds.
//
// There are two sets, because different threads sleep on them. Only the progress thread serves control files: listening
// sockets, handshakes, and changes of an interface. A doorbell is an eventfd that a peer writes after it has published
// frames, or a socket that receives frames. It wakes the thread that waits for frames at that moment: a thread of the
// program that waits for a completion, or the progress thread.
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
    // Returns false if the process had no descriptors for the event loop.
    bool is_open() const { return control_ >= 0 && woken_ >= 0 && doorbells_ >= 0 && own_doorbell_ >= 0; }

    // Makes wait() call `ready` whenever `file` can be read. Any thread may call it.
    void add(int file, std::function<void()> ready);
    // Makes wait() call it only when the socket's peer has closed the socket, because its messages are a doorbell's
    // from now on. Any thread may call it.
    void await_end_only(int file);
    // Removes a control file. It must be called before `file` is closed, and either within a call of wait() or while no
    // wait() is running that may call `ready` for this file.
    void remove(int file);

    enum class Doorbell {
        kEventfd,  // must be read after it has rung
        kSocket,   // read by its queue
        kMessage,  // a socket that gets a message for each ring; must be read before it is full
    };
    // Makes `file` end sleeps, each time that something new can be read from it. Any thread may call it.
    void add_doorbell(int file, Doorbell kind);
    // Removes a doorbell. It must be called before `file` is closed. Any thread may call it.
    void remove_doorbell(int file);
    // Returns a file that can be read after a doorbell has rung, until take_doorbells(). Any number of threads may poll
    // it.
    int doorbells() const { return doorbells_; }
    // Clears the doorbells that have rung, so that threads can sleep on doorbells() again. Any thread may call it.
    void take_doorbells();

    // Rings a doorbell of our own, so that sleeping threads poll the ports again. Any thread may call it.
    void ring();

    // Ends the current wait(), or the next one. Any thread may call it.
    void wake();
    // Sleeps until a control file or a doorbell can be read, wake() is called, or `ns` have passed. Then it serves the
    // files that can be read. Only one thread calls wait() and wait_for_control().
    void wait(uint64_t ns) { wait(ns, true); }
    // Does the same, and ignores doorbells.
    void wait_for_control(uint64_t ns) { wait(ns, false); }
    // Closes the parent's files in a forked child. After that, wake() and ring() do nothing.
    void after_fork_in_child();

  private:
    void wait(uint64_t ns, bool doorbells);
    void serve_control();
    void close_files();

    int control_ = -1, woken_ = -1, doorbells_ = -1, own_doorbell_ = -1;
    std::mutex mutex_;
    std::map<int, std::shared_ptr<std::function<void()>>> ready_;  // keyed by control file
    struct ToRead {
        Doorbell kind;
        uint32_t most_unread = 0, unread = 0;  // number of times that it may ring, and has rung, without being read
    };
    std::map<int, ToRead> to_read_;  // doorbells that must be read
};

}  // namespace rove::datapath
