// SPDX-License-Identifier: Apache-2.0
// The passive end of the tcp transport. It serves READs and WRITEs of registered memory over connections of the
// kernel's TCP, which the control server accepts. Each connection has a thread, which blocks. Requests are checked as
// an RDMA device would check them: range, registration, permission.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "tent/control/stream.h"
#include "tent/memory/memory.h"

namespace rove::tent {

// The first message of a connection that has passed the control plane's handshake: a ConnectionName. The initiator
// sends nothing more before the answer has arrived, since only then does kClose know the connection.
struct TcpHello {
    static constexpr uint32_t kMagic = 0x54434454;  // "TDCT"
    static constexpr uint32_t kVersion = 3;

    uint32_t magic = kMagic;
    uint32_t version = kVersion;
    std::array<uint8_t, 16> owner{};
    uint64_t number = 0;
};

// Requests may follow each other before any is answered. Answers arrive in the same order.
struct TcpRequest {
    enum Operation : uint32_t { kRead = 1, kWrite = 2 };

    uint32_t operation = kRead;
    uint32_t reserved = 0;
    uint64_t address = 0, length = 0;  // the bytes of a WRITE follow
};

struct TcpAnswer {
    uint32_t refused = 0;  // not 0: outside of registered memory, or not permitted
    uint32_t reserved = 0;
    // The bytes of a READ follow.
};

class TcpServer {
  public:
    static constexpr const char* kRail = "tcp";  // rail name in ConnectionName

    explicit TcpServer(LocalMemory& memory) : memory_(memory) {}
    ~TcpServer() { stop(); }

    void stop();
    // Serves a connection that has passed the handshake.
    void take(Stream stream);

    // The owner has a lease from now on and may connect.
    void admit(const std::string& owner);
    // The owner's lease has ended: closes its connections.
    void forget(const std::string& owner);
    // When it returns, that connection changes no memory any more.
    void close_connection(const std::string& owner, uint64_t number);

  private:
    struct Connection {
        explicit Connection(Stream taken) : stream(std::move(taken)) {}

        Stream stream;
        std::mutex receiving;  // held while bytes go to memory
        bool closed = false;   // protected by `receiving`
        std::atomic<bool> ended{false};
        std::thread thread;
    };
    static constexpr size_t kMaxConnections = 2048, kMaxOfOwner = 16;

    void serve(Connection& connection);
    bool greet(Connection& connection);
    bool answer(Connection& connection, const TcpRequest& request, uint64_t deadline_ns);
    bool carry(Connection& connection, const TcpRequest& request, uint64_t deadline_ns);
    static bool skip(Connection& connection, uint64_t length, uint64_t deadline_ns);
    bool receive(Connection& connection, uint8_t* to, uint64_t length);
    void close_now(Connection& connection);  // needs mutex_
    void reap();

    LocalMemory& memory_;
    std::atomic<bool> stopped_{false};
    std::mutex mutex_;
    std::map<Connection*, std::unique_ptr<Connection>> connections_;
    // Owners with a lease, and their connections by number.
    std::map<std::string, std::map<uint64_t, Connection*>> owners_;
};

}  // namespace rove::tent
