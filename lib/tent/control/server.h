// SPDX-License-Identifier: Apache-2.0
// The server of the control plane: one thread that blocks in epoll. Answers that may take long are made by a job. The
// server also accepts the connections of the tcp transport, which it hands on after the handshake. It watches the
// connections that this engine has made to its peers, to learn at once that a peer has ended.
//
// No host can keep others out. A connection must finish the handshake, complete a message, and read an answer in time.
// When there are too many connections, the host with the most, leases excepted, loses one: the oldest one in the
// handshake, or else the one that was idle longest. Leases are kept, but their number is limited for each host. Hosts
// take turns with their questions, a millisecond each, however many connections they use.
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
        // Returns the answer to a message. Called on the server's thread, for kConnect on the thread of a job.
        std::function<Json(MessageType, const Json&)> answer;
        // Called with the kLease message when the connection on which it came is closed, on the server's thread.
        std::function<void(const Json&)> ended;
        // Accepts a connection of the tcp transport.
        std::function<void(Stream)> take_data;
    };

    static constexpr size_t kMaxConnections = 16384;  // or half of the files that may be open, if that is less
    static constexpr size_t kMaxProving = 256;        // connections in the handshake
    static constexpr size_t kMaxLeases = 1024;        // leases of one host; half of all connections, if that is less

    ControlServer(Jobs& jobs, const Credentials& credentials, Callbacks callbacks)
        : jobs_(jobs), credentials_(credentials), callbacks_(std::move(callbacks)) {}
    ~ControlServer();

    // Listens on these addresses, without the ones that this host does not have. Port 0 chooses a port in 15000..16999
    // that is free on all of them. Returns "" or the error.
    std::string listen(const std::vector<SocketAddress>& addresses, uint16_t port);
    // Begins to answer. Called after listen().
    void start();
    // Stops the thread. Jobs that the server started may still run after this call, and threads may still call watch(),
    // but neither may happen during the destructor.
    void stop();

    uint16_t port() const { return port_; }

    // Calls `lost` once, on the server's thread, when the other side closes the socket. The server owns the socket, and
    // closes it at once if it has stopped.
    void watch(int fd, std::function<void()> lost);

  private:
    struct Host {
        size_t connections = 0, proving = 0, leases = 0;
        uint64_t turn = 0, used_ns = 0;  // last turn in which it asked, and the time that its answers took in that turn
    };
    struct Connection {
        explicit Connection(const Secret& secret) : acceptor(secret) {}

        int fd = -1;
        uint64_t id = 0;
        std::string address;              // key of its host in hosts_
        Host* host = nullptr;             // null if this engine made the connection
        std::unique_ptr<TlsSession> tls;  // null without TLS; `in` is decrypted, `out` is encrypted
        Acceptor acceptor;
        bool is_proving = false;
        std::string in, out;
        bool answering = false;  // a job is answering; no further message is read meanwhile
        // Its host has used up its time, and questions wait; no further message is read meanwhile.
        bool waits_turn = false;
        uint64_t deadline_ns = 0;    // deadline of the handshake or message in progress; 0 if there is no deadline
        uint64_t used_ns = 0;        // time of the last received bytes
        std::function<void()> lost;  // callback of a watched connection or of a lease
    };

    void run();
    void listen_for(uint32_t events);
    void accept_all(int listener);
    void accepted(int fd, const SocketAddress& from);
    // Closes a connection that can be spared. Returns false if there is no such connection.
    bool make_room(bool proving_only);
    void end_late(uint64_t now_ns);
    void readable(Connection& connection);
    // take_in(), advance(), take_questions() and flush() return false if the connection must be closed.
    bool take_in(Connection& connection, std::string_view came);
    bool advance(Connection& connection);
    void say(Connection& connection, std::string_view plain);
    bool take_questions(Connection& connection);
    bool has_time(Host& host) const;  // true if it has time left in this turn
    void take_turns();
    bool flush(Connection& connection);
    void handle(Connection& connection, const FrameHeader& header, const Json& body);
    bool take_lease(Connection& connection, const Json& body);
    void wake();
    void take_posted();
    void drop(uint64_t id);
    // Removes the connection from the server without closing it.
    Stream release(uint64_t id);
    std::unique_ptr<Connection> forget(uint64_t id);
    void set_deadline(Connection& connection, uint64_t deadline_ns);

    Jobs& jobs_;
    const Credentials& credentials_;
    const Callbacks callbacks_;
    std::vector<int> listeners_;
    int epoll_ = -1;
    int event_ = -1;  // stays open until the end, so that a late wake() does not write to another file
    uint16_t port_ = 0;
    size_t most_ = kMaxConnections;
    std::thread thread_;
    std::atomic<bool> stopped_{false};

    // Members of the server's thread:
    std::map<uint64_t, std::unique_ptr<Connection>> connections_;  // indexed by id
    std::map<std::string, Host> hosts_;
    // Numbers of connections that were accepted, that are in the handshake, and that have a deadline.
    size_t accepted_ = 0, proving_ = 0, timed_ = 0;
    uint64_t next_id_ = 1024;  // smaller ids are the event's and the listeners'
    uint64_t resume_ns_ = 0;   // when accepting continues after descriptors ran out; 0 if it does not pause
    uint64_t looked_ns_ = 0;
    uint64_t turn_ = 1;
    std::vector<uint64_t> turns_;  // connections that wait for their host's turn

    std::mutex mutex_;  // guards the lists that other threads fill
    std::vector<std::pair<uint64_t, std::string>> replies_;
    std::vector<std::unique_ptr<Connection>> watched_;
};

}  // namespace rove::tent
