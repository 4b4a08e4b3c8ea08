// SPDX-License-Identifier: Apache-2.0
// Forwards frames between the members of a mesh and one port, the uplink. The bridge connects to every member, and
// answers for the members' addresses at the uplink. Units are nanoseconds, frames and bytes.
//
// DESIGN NOTES
// 1. One thread runs to completion: it takes a burst from the uplink and a burst from each member, and sends the
//    result. A frame from the uplink is copied once, into the ring of the member that it is for. A frame from a member
//    is copied once, into an mbuf or into the uplink's ring.
// 2. No member can hold up another. Frames for a member whose ring is full are dropped, like in a switch. When the
//    uplink is full, members' frames stay in their rings, because all members share the uplink.
// 3. Frames wait while the MAC of their next hop is resolved: up to a burst for each address, and a few addresses for
//    each member, so that a member that scans a whole subnet takes no room from the others.
// 4. When no frame arrives, the thread sleeps until a doorbell rings. A port without a doorbell is polled at intervals.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "bridge/forwarding.h"
#include "bridge/outlet.h"
#include "link/neighbour.h"
#include "port/event_loop.h"
#include "port/factory/port_claim.h"
#include "port/memif/link_port.h"
#include "port/memif/link_queues.h"
#include "port/mesh/mesh.h"
#include "runtime/clock.h"
#include "runtime/config.h"

namespace rove::bridge {

class Bridge final : private datapath::LinkObserver {
  public:
    struct Settings {
        std::string folder;             // the folder of the mesh; "" for the user's default
        datapath::DeviceConfig uplink;  // the uplink's port, with a VLAN and a MAC if they are given
        std::optional<uint32_t> mtu;    // path MTU that the uplink carries; by default the port's
        std::vector<Gateway> gateways;
        std::vector<std::string> eal_args;
    };
    // Starts EAL with the caller as its main thread, opens the uplink and joins the mesh. A process may do this once.
    // Returns null and sets `*error` on failure.
    static std::unique_ptr<Bridge> open(const Settings& settings, std::string* error);
    ~Bridge() override;

    // Forwards until stop(), on the thread that called open(). A signal handler may call stop().
    void run();
    void stop();
    // Returns the loop, for further descriptors that the thread should watch.
    datapath::EventLoop& poller() { return event_loop_; }

    // Statistics; any thread may read them.
    struct MemberState {
        std::string name;
        wire::MacAddress mac{};
        std::vector<wire::Gid> addresses;
        uint64_t rx_frames = 0, rx_bytes = 0, rx_drops = 0;  // from the member
        uint64_t tx_frames = 0, tx_bytes = 0, tx_drops = 0;  // to the member
    };
    std::vector<MemberState> members() const;
    Counters counters() const;
    datapath::PortStatistics uplink_statistics() const { return uplink_->statistics(); }
    datapath::PortStatistics mesh_statistics() const { return mesh_->statistics(); }
    const std::string& uplink_name() const { return config_.devices.front().port; }
    bool uplink_ready() const { return uplink_->ready(); }
    const wire::MacAddress& mac() const { return forwarding_->settings().mac; }
    uint32_t path_mtu() const { return path_mtu_; }
    const datapath::Neighbours& neighbours() const { return *neighbours_; }

  private:
    using Member = Forwarding::Member;
    // A member of the mesh, with our link to it and its process's links to us.
    struct Peer {
        Member number = 0;
        datapath::LinkPeer peer;
        std::vector<wire::Gid> addresses;
        std::vector<datapath::RingReceiver*> receivers;
        datapath::RingSender* sender = nullptr;  // null until there is a link to it
        bool has_unpublished = false;            // true if it is in unpublished_
        uint64_t rx_drops = 0, tx_drops = 0;
    };
    // An address at the uplink that is being resolved, and the frames that wait for its MAC.
    struct Unresolved {
        wire::Gid next_hop{};
        Member asker = 0;
        uint64_t ask_ns = 0, until_ns = 0;
        std::vector<rte_mbuf*> frames;
        void free_frames() { rte_pktmbuf_free_bulk(frames.data(), static_cast<unsigned>(frames.size())); }
    };
    struct Known {
        std::shared_ptr<const transport::NextHop> next_hop;
        uint64_t used_ns = 0;
    };
    // A received frame. `head` is a copy of its first bytes.
    struct Arrived {
        alignas(64) std::array<uint8_t, kHeadBytes> copy;
        std::span<const uint8_t> head;
        const uint8_t* data = nullptr;
        Frame frame;
        explicit Arrived(const rte_mbuf& mbuf);
    };

    explicit Bridge(const Settings& settings);
    std::string open_ports(const Settings& settings);  // returns "" or an error message

    // These functions implement datapath::LinkObserver.
    std::optional<uint16_t> new_outlet() override { return 0; }  // no path of the transport uses the bridge
    void free_outlet(uint16_t) override {}
    void attach(datapath::Port& port, const datapath::LinkRings& link) override;
    void detach(datapath::Port& port, const datapath::LinkRings& link) override;
    void ports_changed() override;

    // The caller of these functions holds mutex_.
    std::vector<std::unique_ptr<Peer>>::iterator peer_of(const std::string& name);
    void add_member(const datapath::LinkRings& link);
    void members_changed();
    uint32_t round();
    uint32_t receive_from_uplink();
    uint32_t receive_from_members();
    uint16_t receive_from(Peer& member, datapath::RingReceiver& receiver);
    void take_from_uplink(rte_mbuf& mbuf);
    void take_from_member(Peer& from, const rte_mbuf& mbuf);
    void deliver(Peer& to, const Arrived& arrived, Counter counter);
    void send_to_uplink(Peer& from, const Arrived& arrived, const wire::Gid& next_hop);
    void discover(const rte_mbuf& mbuf);
    std::shared_ptr<const transport::NextHop> resolve(const wire::Gid& next_hop);
    const transport::NextHop* find(const wire::Gid& next_hop);
    Unresolved* place_to_wait(Member asker, const wire::Gid& next_hop);
    void look_up_unresolved();
    void send_questions();
    void announce(const std::vector<wire::Gid>& addresses);
    void send_small(auto&& build);  // a frame of ARP or ND
    void forget_unused();
    void drop(Counter why) { ++counters_[why]; }
    void publish();
    uint64_t deadline_ns() const;
    bool arm();
    void disarm();

    void schedule_port_check();
    void sleep(uint64_t nap_ns);

    datapath::Config config_;
    datapath::Clock clock_;
    std::optional<datapath::PortClaim> claim_;
    rte_mempool* pool_ = nullptr;
    datapath::EventLoop event_loop_;
    std::unique_ptr<datapath::Port> uplink_;
    std::unique_ptr<datapath::MeshPort> mesh_;
    uint32_t path_mtu_ = 0;
    bool eal_started_ = false;
    std::atomic<bool> stopped_{false}, ports_changed_{false};
    uint64_t looked_after_ns_ = 0, restarted_ns_ = 0;

    // Drivers' callbacks arrive on EAL's interrupt thread, and queries for statistics on the thread of DPDK's
    // telemetry.
    std::mutex control_;        // held while a driver changes its state; locked before mutex_
    mutable std::mutex mutex_;  // guards all members below; held for a round
    std::optional<Forwarding> forwarding_;
    std::optional<datapath::Neighbours> neighbours_;
    std::optional<Outlet> outlet_;
    std::vector<std::unique_ptr<datapath::RxQueue>> uplink_queues_;
    std::vector<datapath::RxQueue*> uplink_rx_;  // points to uplink_queues_ or to the queues of the uplink's links
    std::vector<std::unique_ptr<Peer>> peers_;   // indexed by number; null: free
    datapath::LinkQueues members_rx_;
    std::unordered_map<datapath::RingReceiver*, Peer*> senders_;  // the member that fills each receiver
    std::vector<Peer*> unpublished_;  // members with frames in their ring that are not published yet
    size_t turn_ = 0;                 // the member that is served first
    std::unordered_map<wire::Gid, Known, AddressHash> known_;  // hosts at the uplink
    std::vector<Unresolved> unresolved_;
    std::vector<uint8_t> bounce_;  // a frame for a ring with small buffers
    Counters counters_;
    uint64_t now_ns_ = 0;  // the time at which the round began
    uint64_t forgot_ns_ = 0;
    uint64_t unresolved_ns_ = 0;    // the time of the next lookup
    bool has_learnt_ = false;       // true if a MAC was learnt since the last lookup
    bool member_was_full_ = false;  // true if a member's ring was full in this round
};

}  // namespace rove::bridge
