// SPDX-License-Identifier: Apache-2.0
// Ports whose frames go through memory that is shared with other processes: a link is a memif connection to one of
// them, with a ring each way. memif.h has one link; mesh.h has one to each neighbour that it sends to, with one ring.
//
// Links come and go on the background thread, which the sockets wake. A worker has a link's rings between attach() and
// detach() of the port's user.
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

namespace rove::datapath {

// Who is at the other end of a link.
struct LinkPeer {
    wire::MacAddress mac{};  // zero: it may have any
    std::string name;        // of a mesh's member (mesh_folder.h); "": not known
};

// A link's rings, as a worker has them.
struct LinkRings {
    LinkPeer peer;
    uint16_t outlet = 0;               // the sender's
    RingSender* sender = nullptr;      // null: the link only brings frames
    RingReceiver* receiver = nullptr;  // null: the link only takes frames
};

// Whoever moves the frames of links: the runtime, for its workers. Not while a worker is held.
class LinkObserver {
  public:
    virtual ~LinkObserver() = default;
    // Returns the number of a new outlet, for Path::outlet; nothing if there are too many.
    virtual std::optional<uint16_t> new_outlet() = 0;
    // Takes a number back that no path has.
    virtual void free_outlet(uint16_t outlet) = 0;
    virtual void attach(Port& port, const LinkRings& rings) = 0;
    // Takes what the receiver still has, first.
    virtual void detach(Port& port, const LinkRings& rings) = 0;
    virtual void ports_changed() = 0;
};

class LinkPort : public Port {
  public:
    struct Environment {
        EventLoop& poller;
        LinkObserver& user;
        rte_mempool* pool;
        uint32_t frame_bytes;     // that a frame of the port can have
        bool for_bridge = false;  // its addresses are those of others, and ARP and ND are the bridge's (interface.h)
        transport::GracePeriod& grace = transport::NoReaders::instance();  // of the workers
    };

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
        const int file;  // its socket; open as long as it is no other's
        const MemifConnection::Role role;
        const bool mesh;
        const ucred user;   // the process at the other end
        uint16_t bell = 0;  // a mesh's server: the peer's
        uint16_t outlet = 0;
        LinkPeer peer;
        // Null until it is connected.
        std::unique_ptr<RingSender> sender;
        std::unique_ptr<RingReceiver> receiver;
        bool attached = false;

        bool is_connected() const { return sender != nullptr || receiver != nullptr; }
        LinkRings rings() const { return {peer, outlet, sender.get(), receiver.get()}; }
    };
    using Lock = std::lock_guard<std::mutex>;

    LinkPort(uint16_t id, const Environment& environment);

    // All of these under `mutex_`.
    MemifConnection::Settings settings(MemifConnection::Role role) const;
    Link& begin(int socket, const MemifConnection::Settings& settings);
    // Returns a socket to a process that has connected to `listener`, or a closed one if none has connected or this
    // process has no descriptor for it. Room is made for its handshake: at the expense of the process with the most
    // handshakes that are not finished, and there of the oldest.
    FileDescriptor take_connection(int listener);
    // The handshake has ended. Attaches the link, now or later. Returns false if there is no room for it.
    virtual bool connected(Link& link) = 0;
    // The link is about to be forgotten.
    virtual void disconnected(Link& link) = 0;
    void attach(Link& link);
    void end(Link& link);
    void end_all();
    void close_all();

    const Environment environment_;
    mutable std::mutex mutex_;      // taken before a worker is held
    std::map<LinkId, Link> links_;  // the oldest first

  private:
    void advance(LinkId id);

    LinkId next_id_ = 0;
    PortStatistics gone_;   // what the links that have gone had counted
    FileDescriptor spare_;  // for take_connection()
};

// Returns the process at the other end of a connected Unix socket. Its process ID is 0 if it is in another PID
// namespace that this one does not see.
ucred peer_of(int socket);

// Raises the soft limit on descriptors if `file`, which was just opened, is near it. Then the program itself, whose
// limit it is, has room as well. Returns false if the hard limit is reached.
bool make_room_for_files(int file);

}  // namespace rove::datapath
