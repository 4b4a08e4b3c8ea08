// SPDX-License-Identifier: Apache-2.0
// The passive end of the tcp transport: READs and WRITEs of registered memory, asked for over connections of the
// kernel's TCP. A thread a connection, which blocks. What comes is checked as an RDMA device would: range,
// registration, permission.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <utility>

#include "tent/control/frame.h"
#include "tent/memory.h"

namespace rove::tent {

struct TcpHello {
    static constexpr uint32_t kMagic = 0x54434454;  // "TDCT"

    uint32_t magic = kMagic;
    uint32_t version = 1;
    uint64_t instance = 0, number = 0;  // ConnectionName
};

struct TcpRequest {
    enum Operation : uint32_t { kRead = 1, kWrite = 2 };

    uint32_t operation = kRead;
    uint32_t reserved = 0;
    uint64_t address = 0, length = 0;  // a WRITE's bytes follow
};

struct TcpAnswer {
    uint32_t refused = 0;  // not 0: outside of registered memory, or not permitted
    uint32_t reserved = 0;
    // A READ's bytes follow.
};

class TcpServer {
  public:
    static constexpr const char* kRail = "tcp";  // in ConnectionName

    explicit TcpServer(const LocalMemory& memory) : memory_(memory) {}
    ~TcpServer() { stop(); }

    // On any port of `host` (empty: of all addresses). Returns "" or what went wrong.
    std::string start(const std::string& host);
    void stop();
    uint16_t port() const { return port_; }

    // When it returns, nothing of that connection changes memory any more, though it should come to be only later.
    void close_connection(uint64_t instance, uint64_t number);
    void forget(uint64_t instance);

  private:
    struct Connection {
        int fd = -1;
        std::mutex receiving;  // held while bytes go to memory
        bool closed = false;   // under `receiving`
        std::atomic<bool> ended{false};
        std::thread thread;
    };
    static constexpr size_t kMaxConnections = 512;

    void accept_all();
    void serve(Connection& connection);
    bool greet(Connection& connection);
    bool answer(Connection& connection, const TcpRequest& request);
    bool carry(Connection& connection, const TcpRequest& request, uint64_t deadline_ns);
    bool receive(Connection& connection, uint8_t* to, uint64_t length);
    void reap();

    const LocalMemory& memory_;
    int listener_ = -1;
    uint16_t port_ = 0;
    std::thread thread_;
    std::atomic<bool> stopped_{false};
    std::mutex mutex_;
    std::map<Connection*, std::unique_ptr<Connection>> connections_;
    std::map<std::pair<uint64_t, uint64_t>, Connection*> named_;
    std::set<std::pair<uint64_t, uint64_t>> closed_;  // before they came
};

}  // namespace rove::tent
