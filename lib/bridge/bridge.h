// SPDX-License-Identifier: Apache-2.0
// A member of a mesh that forwards between the others and one port, the uplink: it connects to every member, and speaks
// at the uplink for their addresses. Units: nanoseconds, frames, bytes.
//
// DESIGN NOTES
// 1. One thread runs it to completion: a burst from the uplink, a burst from each member, and what both have made goes
//    out. A frame from the uplink is copied once, into the ring of the member that it is for; one from a member once,
//    into an mbuf or into the uplink's ring.
// 2. Nobody holds up anybody else. To a member whose ring is full frames are dropped, as a switch does. When the uplink
//    takes no more, members' frames stay in their rings: it is theirs together.
// 3. Frames to an address whose MAC is being asked for wait, a burst for each address, and a few addresses for each
//    member, so that one who tries all addresses of a subnet finds no room sooner than the others.
// 4. When nothing moves, it sleeps until a doorbell rings. A port that has none is looked at now and then.
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
        std::string folder;             // of the mesh; "": that of this user
        datapath::DeviceConfig uplink;  // its port, and a VLAN or a MAC if they are given
        std::optional<uint32_t> mtu;    // path MTU that the uplink carries; none: what its port says
        std::vector<Gateway> gateways;
        std::vector<std::string> eal_args;
    };
    // Starts EAL, whose main thread the caller becomes, opens the uplink and joins the mesh. Once in a process. Null:
    // `*error` says why.
    static std::unique_ptr<Bridge> open(const Settings& settings, std::string* error);
    ~Bridge() override;

    // Forwards until stop(), on the thread that has opened it. stop() may be called by a signal's handler.
    void run();
    void stop();
    // What else the thread shall look at.
    datapath::EventLoop& poller() { return event_loop_; }

    // What there is to see; any thread.
    struct MemberState {
        std::string name;
        wire::MacAddress mac{};
        std::vector<wire::Gid> addresses;
        uint64_t rx_frames = 0, rx_bytes = 0, rx_drops = 0;  // from it
        uint64_t tx_frames = 0, tx_bytes = 0, tx_drops = 0;  // to it
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
    // A member of the mesh: a link to it, and those that its process has to us.
    struct Peer {
        Member number = 0;
        datapath::LinkPeer peer;
        std::vector<wire::Gid> addresses;
        std::vector<datapath::RingReceiver*> receivers;
        datapath::RingSender* sender = nullptr;  // null: no link to it yet
        bool has_unpublished = false;            // it is in unpublished_
        uint64_t rx_drops = 0, tx_drops = 0;
    };
    // An address at the uplink that is asked for, and the frames that wait for its MAC.
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
    // A frame as it came: `head` is a copy of its beginning.
    struct Arrived {
        alignas(64) std::array<uint8_t, kHeadBytes> copy;
        std::span<const uint8_t> head;
        const uint8_t* data = nullptr;
        Frame frame;
        explicit Arrived(const rte_mbuf& mbuf);
    };

    explicit Bridge(const Settings& settings);
    std::string open_ports(const Settings& settings);  // "" or why not

    // datapath::LinkObserver
    std::optional<uint16_t> new_outlet() override { return 0; }  // no path of the transport's leads through us
    void free_outlet(uint16_t) override {}
    void attach(datapath::Port& port, const datapath::LinkRings& link) override;
    void detach(datapath::Port& port, const datapath::LinkRings& link) override;
    void ports_changed() override;

    // All of these under mutex_.
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
    void send_small(auto&& build);  // a frame of discovery
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

    // Drivers' callbacks come on EAL's interrupt thread, questions of what there is to see on the telemetry's.
    std::mutex control_;        // held while a driver changes its state; before
    mutable std::mutex mutex_;  // guards all that follows; held for a round
    std::optional<Forwarding> forwarding_;
    std::optional<datapath::Neighbours> neighbours_;
    std::optional<Outlet> outlet_;
    std::vector<std::unique_ptr<datapath::RxQueue>> uplink_queues_;
    std::vector<datapath::RxQueue*> uplink_rx_;  // those, or its links'
    std::vector<std::unique_ptr<Peer>> peers_;   // by number; null: free
    datapath::LinkQueues members_rx_;
    std::unordered_map<datapath::RingReceiver*, Peer*> senders_;  // whose frames each of them has
    std::vector<Peer*> unpublished_;                              // members with frames that they have not been shown
    size_t turn_ = 0;                                             // whose frames are taken first
    std::unordered_map<wire::Gid, Known, AddressHash> known_;     // at the uplink
    std::vector<Unresolved> unresolved_;
    std::vector<uint8_t> bounce_;  // of a frame for a ring with small buffers
    Counters counters_;
    uint64_t now_ns_ = 0;  // when the round began
    uint64_t forgot_ns_ = 0;
    uint64_t unresolved_ns_ = 0;    // when they are looked up again
    bool has_learnt_ = false;       // since they were
    bool member_was_full_ = false;  // in this round
};

}  // namespace rove::bridge
