// SPDX-License-Identifier: Apache-2.0
// One memif connection over a connected SOCK_SEQPACKET socket: the handshake after which client and server share memory
// (memif_protocol.h), and the detection of its end.
//
// The peer is not trusted. Its messages are checked before they are used, no message can make us block, and only memory
// that the peer cannot shrink is mapped, because a load beyond a file's end would raise a signal. The content of the
// memory may change at any time, and its readers have to check it. Every file descriptor that arrives is closed in the
// end, whatever message it came with.
//
// One attack cannot be excluded. The file of a doorbell is shared together with its flags, and Linux has no write to an
// eventfd that never blocks. A malicious peer can make it blocking and full, and a thread that rings it then waits
// until the peer dies. The links of a mesh have no eventfds (bells.h).
//
// A mesh uses a variant (docs/protocol/mesh.md): frames are sent from the client to the server only, ADD_RING brings no
// descriptor, and CONNECTED brings the page of bells.
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
    enum class Role : uint8_t { kClient, kServer };  // the client provides the memory
    enum class State : uint8_t { kConnecting, kConnected, kClosed };
    struct Settings {
        Role role;
        uint32_t id = 0;
        std::string name;           // sent to the peer; at most 31 bytes
        std::string secret;         // at most 24 bytes; a server without a secret requires none
        uint8_t log2_slots = 8;     // for a client: size of each ring, 1..14; fewer if the server allows fewer
        uint32_t buffer_bytes = 0;  // for a client: size of each slot's buffer, a multiple of 64
        bool mesh = false;          // the variant of a mesh
        // For a mesh's server: its page of bells for the client's user, which the caller owns, and the client's bell.
        int bell_file = -1;
        BellPage* bells = nullptr;
        uint16_t bell = 0;
    };
    // A mapped region. It stays mapped, and does not shrink, as long as the connection object exists.
    struct Region {
        uint8_t* address;
        uint64_t bytes;
    };
    struct Ring {
        MemifRing* ring = nullptr;  // aligned to 64 bytes; header and descriptors are within one region
        uint8_t log2_slots = 0;     // 1..14
        int doorbell = -1;          // a non-blocking eventfd; socket() for a mesh's client
        BellPage* bells = nullptr;  // for a mesh only: the server's page
        uint16_t bell = 0;
        // For a client, the buffer of slot N is at buffers + N * buffer_bytes. Null if the peer's descriptors say where
        // the buffers are.
        uint8_t* buffers = nullptr;
        uint32_t first_buffer = 0;  // offset in the region, bytes
        uint32_t buffer_bytes = 0;
    };

    // Takes ownership of the socket and makes it non-blocking.
    MemifConnection(int socket, Settings settings);
    MemifConnection(const MemifConnection&) = delete;
    MemifConnection& operator=(const MemifConnection&) = delete;
    // Unmaps the memory and closes all descriptors.
    ~MemifConnection();

    // Reads and answers the messages that have arrived; never blocks. It has to be called when socket() is readable.
    // Once connected, it detects the end: DISCONNECT, the end of the socket, or an unexpected message.
    State advance();
    // Returns why the connection was closed, as one phrase for a log line.
    const std::string& why() const { return why_; }
    // Returns the errno of the resource (files, memory) for want of which this process closed the connection, or 0 if
    // there was another reason.
    int lacked() const { return lacked_; }
    // Notifies the peer and closes the connection. The memory stays mapped.
    void disconnect(std::string_view reason);

    int socket() const { return socket_.get(); }
    // Returns the peer's name from HELLO or INIT, printable, or "" before that message.
    const std::string& peer_name() const { return peer_name_; }
    // Returns the memory. to_server() and to_client() return the first pair of rings. All of them are valid once
    // connected. A mesh's link has no ring to the client.
    const std::vector<Region>& regions() const { return regions_; }
    const Ring& to_server() const { return rings_[kToServer].front(); }  // C2S, which the client fills
    const Ring& to_client() const { return rings_[kToClient].front(); }  // S2C, which the server fills

  private:
    // The step of the handshake, named after the awaited message. A server waits for INIT, and then for the messages
    // that describe the memory, until CONNECT. A client waits for HELLO, and then for the answer to the message that it
    // sent last.
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

    // The handshake of a client.
    void hello(const MemifHello& hello);
    bool make_memory(uint8_t log2_slots);
    void send_ring(Direction direction);
    void send_next();
    void connected(const MemifConnected& said, const FileDescriptor& bells);
    // The handshake of a server.
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
    FileDescriptor memory_;  // for a client, until it is connected
    SharedMapping bells_;    // for a mesh's client
    std::vector<SharedMapping> mappings_;
    std::vector<Region> regions_;  // the mapped ones
    std::vector<Ring> rings_[2];   // for each direction; the first ones are used
};

}  // namespace rove::datapath
