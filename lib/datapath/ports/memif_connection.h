// SPDX-License-Identifier: Apache-2.0
// One memif connection over a connected SOCK_SEQPACKET socket: the handshake by which client and server come to share
// memory (memif_protocol.h), and the watch for its end.
//
// The peer is not believed. What it says is checked before it is used, no message of it can make us block, and only
// memory that it cannot shrink is mapped: a load from beyond a file's end would be a signal. What stands in the memory
// may change at any time; whoever reads it checks that. Descriptors that come are closed, whatever comes with them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "datapath/ports/memif_protocol.h"

namespace rove::datapath {

class MemifConnection {
  public:
    enum class Role : uint8_t { kClient, kServer };  // the client brings the memory
    enum class State : uint8_t { kConnecting, kConnected, kClosed };
    struct Settings {
        Role role;
        uint32_t id = 0;
        std::string name;           // told to the peer; at most 31 bytes
        std::string secret;         // at most 24 bytes; "" for a server: none is asked for
        uint8_t log2_slots = 8;     // client: of each ring, 1..14; fewer if the server wants so
        uint32_t buffer_bytes = 0;  // client: of each slot, a multiple of 64
    };
    // Mapped; it stays mapped, and does not shrink, as long as the connection object exists.
    struct Region {
        uint8_t* address;
        uint64_t bytes;
    };
    struct Ring {
        MemifRing* ring = nullptr;  // aligned to 64 bytes; header and descriptors are within one region
        uint8_t log2_slots = 0;     // 1..14
        int doorbell = -1;          // an eventfd, non-blocking
    };

    // Takes the socket and makes it non-blocking.
    MemifConnection(int socket, Settings settings);
    MemifConnection(const MemifConnection&) = delete;
    MemifConnection& operator=(const MemifConnection&) = delete;
    // Unmaps the memory and closes all descriptors.
    ~MemifConnection();

    // Reads what has come and answers it; never blocks. To be called when socket() is readable. Once connected, it
    // looks for the end: DISCONNECT, the socket's end, or a message that does not belong there.
    State advance();
    // kClosed: why, one phrase for a log line.
    const std::string& why() const { return why_; }
    // Tells the peer and closes; the memory stays mapped.
    void disconnect(std::string_view reason);

    int socket() const { return socket_; }
    // From HELLO or INIT; printable. "" until that has come.
    const std::string& peer_name() const { return peer_name_; }
    // The memory and the first pair of rings, once connected.
    const std::vector<Region>& regions() const { return regions_; }
    const Ring& to_server() const { return rings_[kToServer].front(); }  // C2S: the client fills it
    const Ring& to_client() const { return rings_[kToClient].front(); }  // S2C: the server fills it

  private:
    struct Received;
    enum class Step : uint8_t { kHello, kInit, kAddRegion, kAddToServer, kAddToClient, kConnect, kDone };
    enum Direction : uint8_t { kToServer, kToClient };

    void refuse(std::string_view reason);
    void close_with(std::string reason);

    int socket_;
    Settings settings_;
    State state_ = State::kConnecting;
    Step step_;  // what is awaited (server), or what an ACK is awaited for (client)
    std::string why_, peer_name_;
    int memory_ = -1;  // client: the memfd, until it has been sent
    std::vector<Region> regions_;
    std::vector<Ring> rings_[2];  // by direction
};

}  // namespace rove::datapath
