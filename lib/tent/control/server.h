// SPDX-License-Identifier: Apache-2.0
// The control plane's server: one thread that blocks in epoll. Answers that may take long are made by a job. It accepts
// the connections of the tcp transport too, which it hands on when they have proved themselves, and watches those that
// we keep to our peers, to learn at once that one of them is gone.
//
// Nobody can keep others out. A connection has to prove itself, to end a message and to take an answer in time. When
// there are too many, the host that has the most, but for leases, loses one of its own: of those that have not proved
// themselves the oldest, else the one that was idle for longest. Leases are kept, but a host may have only so many.
// Hosts take turns with their questions, a millisecond each, however many connections they ask on.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "tent/control/address.h"
#include "tent/control/frame.h"
#include "tent/control/handshake.h"
#include "tent/control/jobs.h"

namespace rove::tent {

class ControlServer {
  public:
    struct Callbacks {
        // The answer to a message. Called on the server's thread, for kConnect on a job's.
        std::function<Json(MessageType, const Json&)> answer;
        // The connection on which a kLease had come is closed; with that message, on the server's thread.
        std::function<void(const Json&)> ended;
        // Takes a connection of the tcp transport.
        std::function<void(Stream)> take_data;
    };

    static constexpr size_t kMaxConnections = 16384;  // or half as many as files may be open
    static constexpr size_t kMaxProving = 256;        // connections that have not proved themselves
    static constexpr size_t kMaxLeases = 1024;        // of one host, or half as many as all connections

    ControlServer(Jobs& jobs, const Credentials& credentials, Callbacks callbacks)
        : jobs_(jobs), credentials_(credentials), callbacks_(std::move(callbacks)) {}
    ~ControlServer();

    // Listens on these addresses of ours, of which those count that there are; port 0: one of 15000..16999 that is free
    // on all of them. Returns "" or what went wrong.
    std::string listen(const std::vector<SocketAddress>& addresses, uint16_t port);
    // Begins to answer, after listen().
    void start();
    // Jobs that it has begun may still run behind this, and threads call watch(), but none in the destructor.
    void stop();

    uint16_t port() const { return port_; }

    // Calls `lost` once, on the server's thread, when the other side of the socket closes it. Takes the socket, which
    // is closed at once when the server has stopped.
    void watch(int fd, std::function<void()> lost);

  private:
    struct Host {
        size_t connections = 0, proving = 0, leases = 0;
        uint64_t turn = 0, used_ns = 0;  // the last one in which it asked, and how long its answers took then
    };
    struct Connection {
        explicit Connection(const Secret& secret) : acceptor(secret) {}

        int fd = -1;
        uint64_t id = 0;
        std::string address;              // of its host
        Host* host = nullptr;             // null: we connected it
        std::unique_ptr<TlsSession> tls;  // null: none; `in` is what it says, `out` is sealed
        Acceptor acceptor;
        bool is_proving = false;
        std::string in, out;
        bool answering = false;      // by a job: no further message is read meanwhile
        bool waits_turn = false;     // nor while there are questions, for which its host has no time left in this turn
        uint64_t deadline_ns = 0;    // when what has begun must be done; 0: nothing has
        uint64_t used_ns = 0;        // when something came last
        std::function<void()> lost;  // of a connection that we only watch, or that is a lease
    };

    void run();
    void listen_for(uint32_t events);
    void accept_all(int listener);
    void accepted(int fd, const SocketAddress& from);
    // Closes a connection that can be spared. False: there is none.
    bool make_room(bool proving_only);
    void end_late(uint64_t now_ns);
    void readable(Connection& connection);
    // False: the connection is to be closed.
    bool take_in(Connection& connection, std::string_view came);
    bool advance(Connection& connection);
    void say(Connection& connection, std::string_view plain);
    bool take_questions(Connection& connection);
    bool has_time(Host& host) const;  // left in this turn
    void take_turns();
    bool flush(Connection& connection);
    void handle(Connection& connection, const FrameHeader& header, const Json& body);
    bool take_lease(Connection& connection, const Json& body);
    void wake();
    void take_posted();
    void drop(uint64_t id);
    // It is not ours any more.
    Stream release(uint64_t id);
    std::unique_ptr<Connection> forget(uint64_t id);
    void set_deadline(Connection& connection, uint64_t deadline_ns);

    Jobs& jobs_;
    const Credentials& credentials_;
    const Callbacks callbacks_;
    std::vector<int> listeners_;
    int epoll_ = -1;
    int event_ = -1;  // open until the end: whoever wakes a server that has stopped must not write to another file
    uint16_t port_ = 0;
    size_t most_ = kMaxConnections;
    std::thread thread_;
    std::atomic<bool> stopped_{false};

    // Of the thread.
    std::map<uint64_t, std::unique_ptr<Connection>> connections_;  // by id
    std::map<std::string, Host> hosts_;
    size_t accepted_ = 0, proving_ = 0, timed_ = 0;  // of connections_: that came, ..., that have a deadline
    uint64_t next_id_ = 1024;                        // smaller ones are the event's and the listeners'
    uint64_t resume_ns_ = 0;  // when connections are accepted again: there were no descriptors; 0: they are
    uint64_t looked_ns_ = 0;
    uint64_t turn_ = 1;
    std::vector<uint64_t> turns_;  // connections that wait for one

    std::mutex mutex_;  // of what others post
    std::vector<std::pair<uint64_t, std::string>> replies_;
    std::vector<std::unique_ptr<Connection>> watched_;
};

}  // namespace rove::tent
