// SPDX-License-Identifier: Apache-2.0
// Ports whose frames pass through memory that is shared with other processes. A link is a memif connection to one of
// these processes, with a ring in each direction. A port of memif.h has one link. A port of mesh.h has one to each
// neighbour that it sends to, with one ring.
//
// Links are created and ended by the progress thread, which their sockets wake. A worker has a link's rings between
// attach() and detach() of the LinkObserver.
#pragma once

#include <sys/socket.h>

#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "base/file_descriptor.h"
#include "port/event_loop.h"
#include "port/memif/memif_connection.h"
#include "port/memif/ring.h"
#include "port/port.h"
#include "port/port_environment.h"

namespace rove::datapath {

// The process at the other end of a link.
struct LinkPeer {
    wire::MacAddress mac{};  // zero if the peer may have any
    std::string name;        // name of a mesh's member (mesh_folder.h); "" if unknown
};

// The rings of a link, as a worker sees them.
struct LinkRings {
    LinkPeer peer;
    uint16_t outlet = 0;               // the sender's TX target
    RingSender* sender = nullptr;      // null if the link only receives frames
    RingReceiver* receiver = nullptr;  // null if the link only sends frames
};

// Moves the frames of links. The runtime implements it for its workers. A thread that holds a worker must not call it.
class LinkObserver {
  public:
    virtual ~LinkObserver() = default;
    // Returns the number of a new TX target, for Path::outlet, or nothing if there are too many.
    virtual std::optional<uint16_t> new_outlet() = 0;
    // Frees a number that no path has.
    virtual void free_outlet(uint16_t outlet) = 0;
    virtual void attach(Port& port, const LinkRings& rings) = 0;
    // Reads the frames that the receiver still has before it detaches the link.
    virtual void detach(Port& port, const LinkRings& rings) = 0;
    virtual void ports_changed() = 0;
};

class LinkPort : public Port {
  public:
    bool rings() const override { return true; }
    std::unique_ptr<RxQueue> make_rx_queue(uint16_t) override { return nullptr; }
    std::unique_ptr<TxQueue> make_tx_queue(uint16_t) override { return nullptr; }
    PortStatistics statistics() const override;
    bool needs_polling() const override { return false; }

  protected:
    using LinkId = uint64_t;
    struct Link {
        Link(LinkId number, int socket, const MemifConnection::Settings& settings);

        const LinkId id;
        MemifConnection connection;
        const int file;  // number of its socket, which `connection` owns
        const MemifConnection::Role role;
        const bool mesh;
        const ucred user;   // the process at the other end
        uint16_t bell = 0;  // the peer's bell, if we are a mesh's server
        uint16_t outlet = 0;
        LinkPeer peer;
        // Both are null until the link is connected.
        std::unique_ptr<RingSender> sender;
        std::unique_ptr<RingReceiver> receiver;
        bool attached = false;

        bool is_connected() const { return sender != nullptr || receiver != nullptr; }
        LinkRings rings() const { return {peer, outlet, sender.get(), receiver.get()}; }
    };
    using Lock = std::lock_guard<std::mutex>;

    LinkPort(uint16_t id, const PortEnvironment& environment);

    // The functions below are called with `mutex_` locked.
    MemifConnection::Settings settings(MemifConnection::Role role) const;
    Link& begin(int socket, const MemifConnection::Settings& settings);
    // Returns a socket to a process that has connected to `listener`, or a closed one if no process has connected or
    // this process has no descriptor for it. If there are too many unfinished handshakes, room for one is made at the
    // expense of the process that has the most: its oldest one ends.
    FileDescriptor take_connection(int listener);
    // Is called when the handshake is complete. Attaches the link, now or later. Returns false if there is no room for
    // it.
    virtual bool connected(Link& link) = 0;
    // Is called when the link is about to be destroyed.
    virtual void disconnected(Link& link) = 0;
    void attach(Link& link);
    void end(Link& link);
    void end_all();
    void close_all();

    const PortEnvironment environment_;
    mutable std::mutex mutex_;      // locked before a worker is held
    std::map<LinkId, Link> links_;  // oldest first

  private:
    void advance(LinkId id);

    LinkId next_id_ = 0;
    PortStatistics gone_;   // sum of the counters of ended links
    FileDescriptor spare_;  // spare descriptor for take_connection()
};

// Returns the process at the other end of a connected Unix socket. The process ID is 0 if the process is in another PID
// namespace, which this one does not see.
ucred peer_of(int socket);

// Raises the soft limit on descriptors if `file`, which was just opened, is near it. The limit is the program's, and so
// the program has room as well. Returns false if the hard limit is reached.
bool make_room_for_files(int file);

}  // namespace rove::datapath
