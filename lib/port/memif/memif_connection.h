// SPDX-License-Identifier: Apache-2.0
// One memif connection over a connected SOCK_SEQPACKET socket: the handshake by which client and server come to share
// memory (memif_protocol.h), and the watch for its end.
//
// The peer is not believed. What it says is checked before it is used, no message of it can make us block, and only
// memory that it cannot shrink is mapped: a load from beyond a file's end would be a signal. What stands in the memory
// may change at any time; whoever reads it checks that. Every file descriptor that comes is closed in the end, whatever
// message it came with.
//
// One thing cannot be excluded: a doorbell's file is shared with its flags, and Linux has no write to an eventfd that
// never blocks. A peer that means harm can make it blocking and full; a thread that rings then waits until the peer
// dies. The links of a mesh have no eventfds (bells.h).
//
// A mesh speaks a variant (docs/protocol/mesh.md): frames are sent from the client to the server only, ADD_RING brings
// no descriptor, and CONNECTED brings the page of bells.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/file_descriptor.h"
#include "port/memif/bells.h"
#include "port/memif/memif_protocol.h"
#include "port/memif/shared_memory.h"

namespace rove::datapath {

class MemifConnection {
  public:
    enum class Role : uint8_t { kClient, kServer };  // the client brings the memory
    enum class State : uint8_t { kConnecting, kConnected, kClosed };
    struct Settings {
        Role role;
        uint32_t id = 0;
        std::string name;           // told to the peer; at most 31 bytes
        std::string secret;         // at most 24 bytes; a server without one asks for none
        uint8_t log2_slots = 8;     // client: of each ring, 1..14; fewer if the server allows fewer
        uint32_t buffer_bytes = 0;  // client: of each slot, a multiple of 64
        bool mesh = false;          // the variant that a mesh speaks
        // A mesh's server: its page of bells for the client's user, which stays the caller's, and the client's bell.
        int bell_file = -1;
        BellPage* bells = nullptr;
        uint16_t bell = 0;
    };
    // Mapped; it stays so, and does not shrink, as long as the connection object exists.
    struct Region {
        uint8_t* address;
        uint64_t bytes;
    };
    struct Ring {
        MemifRing* ring = nullptr;  // aligned to 64 bytes; header and descriptors are within one region
        uint8_t log2_slots = 0;     // 1..14
        int doorbell = -1;          // an eventfd, non-blocking; a mesh's client: socket()
        BellPage* bells = nullptr;  // a mesh's: the server's page
        uint16_t bell = 0;
        // A client's: slot N's buffer is at buffers + N * buffer_bytes. Null: the peer's descriptors say where.
        uint8_t* buffers = nullptr;
        uint32_t first_buffer = 0;  // its offset in the region, bytes
        uint32_t buffer_bytes = 0;
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
    // Returns the errno of the resource that this process lacked (files, memory) when it closed; 0 for another reason.
    int lacked() const { return lacked_; }
    // Tells the peer, and closes; the memory stays mapped.
    void disconnect(std::string_view reason);

    int socket() const { return socket_.get(); }
    // From HELLO or INIT; printable. "" until that has come.
    const std::string& peer_name() const { return peer_name_; }
    // The memory and the first pair of rings, once connected. A mesh's link has no ring to the client.
    const std::vector<Region>& regions() const { return regions_; }
    const Ring& to_server() const { return rings_[kToServer].front(); }  // C2S: the client fills it
    const Ring& to_client() const { return rings_[kToClient].front(); }  // S2C: the server fills it

  private:
    // What is awaited. A server awaits INIT, and then what describes the memory, until CONNECT. A client awaits HELLO,
    // and then the answer to what it sent last.
    enum class Step : uint8_t { kHello, kInit, kAddRegion, kAddRingToServer, kAddRingToClient, kConnect, kDone };
    enum Direction : uint8_t { kToServer, kToClient };
    struct Received {
        MemifMessage message{};
        std::vector<FileDescriptor> files;
    };

    bool receive(Received* received);
    void handle(Received received);
    bool brings_file(MemifType type) const;
    void handle_as_client(const MemifMessage& message, FileDescriptor file);
    void handle_as_server(const MemifMessage& message, FileDescriptor file);
    bool send(MemifMessage message, int file = -1);
    void close_with(std::string why);
    void lack(std::string_view what, int error);

    // Client.
    void hello(const MemifHello& hello);
    bool make_memory(uint8_t log2_slots);
    void send_ring(Direction direction);
    void send_next();
    void connected(const MemifConnected& said, const FileDescriptor& bells);
    // Server.
    void init(const MemifInit& init);
    void add_region(const MemifAddRegion& said, const FileDescriptor& memory);
    void add_ring(const MemifAddRing& said, FileDescriptor doorbell);
    void connect();

    FileDescriptor socket_;
    Settings settings_;
    State state_ = State::kConnecting;
    Step step_;
    std::string why_, peer_name_;
    int lacked_ = 0;
    FileDescriptor memory_;  // client, until it is connected
    SharedMapping bells_;    // a mesh's client
    std::vector<SharedMapping> mappings_;
    std::vector<Region> regions_;  // the mapped ones
    std::vector<Ring> rings_[2];   // of each direction; the first ones are used
};

}  // namespace rove::datapath
