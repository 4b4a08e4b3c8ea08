// SPDX-License-Identifier: Apache-2.0
// Ports whose frames go through memory that is shared with other processes: a link is a memif connection to one of
// them, with a ring each way. memif.h has one link, mesh.h one to each neighbour that it talks to.
//
// Links come and go on the background thread, which the sockets wake. What a worker has of a link, it has between
// attach() and detach() of the port's user.
#pragma once

#include <list>
#include <memory>
#include <mutex>
#include <string>

#include "datapath/poller.h"
#include "datapath/ports/file_descriptor.h"
#include "datapath/ports/memif_connection.h"
#include "datapath/ports/port.h"
#include "datapath/ports/ring.h"

namespace rove::datapath {

// The outlet of a link that only brings frames.
inline constexpr uint16_t kNoOutlet = UINT16_MAX;

// Who is at the other end of a link.
struct LinkPeer {
    wire::MacAddress mac{};  // zero: it may have any
    std::string name;        // of a mesh's member (mesh_folder.h); "": not known
};

// Whoever moves the frames of links: the runtime, for its workers. Not while a worker is held.
class LinkUser {
  public:
    virtual ~LinkUser() = default;
    // Where frames to one neighbour go, in Path::outlet. Once given it stays.
    virtual uint16_t new_outlet() = 0;
    virtual void attach(Port& port, uint16_t outlet, const LinkPeer& peer, RingSender& sender,
                        RingReceiver& receiver) = 0;
    // Takes what the receiver still has, first.
    virtual void detach(Port& port, uint16_t outlet, RingReceiver& receiver) = 0;
    virtual void ports_changed() = 0;
};

class LinkPort : public Port {
  public:
    struct Environment {
        Poller& poller;
        LinkUser& user;
        rte_mempool* pool;
        uint32_t frame_bytes;  // that a frame of the port can have
        bool for_bridge = false;  // its addresses are those of others, and ARP and ND are the bridge's (interface.h)
        transport::GracePeriod& grace = transport::NoReaders::instance();  // of the workers
    };

    bool rings() const override { return true; }
    std::unique_ptr<RxQueue> make_rx_queue(uint16_t) override { return nullptr; }
    std::unique_ptr<TxQueue> make_tx_queue(uint16_t) override { return nullptr; }
    PortStatistics statistics() const override;
    // In a forked child: the peers see our end, and not the child's.
    void after_fork_in_child() override;
    bool wants_care() const override { return false; }

  protected:
    struct Link {
        Link(int socket, const MemifConnection::Settings& settings)
            : connection(socket, settings), file(socket), role(settings.role) {}

        MemifConnection connection;
        const int file;  // its socket; open as long as it is no other's
        const MemifConnection::Role role;
        uint16_t outlet = 0;
        LinkPeer peer;
        // Null until it is connected.
        std::unique_ptr<RingSender> sender;
        std::unique_ptr<RingReceiver> receiver;
    };
    using Lock = std::lock_guard<std::mutex>;

    LinkPort(uint16_t id, const Environment& environment);

    // All of these under `mutex_`.
    MemifConnection::Settings settings(MemifConnection::Role role) const;
    Link& begin(int socket, const MemifConnection::Settings& settings);
    // Begins with whoever has connected to `listener`, if a descriptor is left for him. Of many who say nothing then,
    // the oldest make room.
    void accept(int listener, const MemifConnection::Settings& settings);
    // The handshake has ended: whether there is room for it, and where its frames go. And the link is about to be
    // forgotten.
    virtual bool has_place() const { return true; }
    virtual void connected(Link& link) = 0;
    virtual void disconnected(Link& link) = 0;
    void end(Link& link);
    void close_all();

    const Environment environment_;
    mutable std::mutex mutex_;  // taken before a worker is held
    std::list<Link> links_;

  private:
    void advance(Link& link);

    PortStatistics gone_;   // what the links that have gone had counted
    FileDescriptor spare_;  // for accept()
};

}  // namespace rove::datapath
