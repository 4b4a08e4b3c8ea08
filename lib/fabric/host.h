// SPDX-License-Identifier: Apache-2.0
// A host: the real protocol engine behind a NIC, with the verbs calls that experiments need, without their checks. It
// is the engine's driver and its sink (transport/engine.h). Units: the engine's clock is in nanoseconds.
//
// DESIGN NOTES
// 1. Each port has an address, and a QP belongs to one port. Ports beyond the first are nodes of their own, so that
//    routes, links and audits need not know which nodes share an engine.
// 2. A port with several cables is a bond. The NIC chooses among them by the 5-tuple, as a switch does by ECMP, and
//    accepts packets while the rings of all of them together have room.
#pragma once

#include <array>
#include <deque>
#include <memory>
#include <optional>

#include "fabric/node.h"
#include "transport/engine.h"

namespace rove::fabric {

// Receives the completions of a CQ.
class Consumer : public transport::Owner {
  public:
    virtual void complete(const ibv_wc& wc) = 0;  // may post further requests

  protected:
    ~Consumer() = default;
};

// The tables that the hosts of a network share, as the devices of one process do. A key means the same everywhere. A QP
// number is shared by 32 hosts: a table has only 65520 of them, and a host has thousands where flows do not end. The
// port of a QP, which is its host's number, tells it from another host's.
class Tables {
  public:
    transport::MemoryTable memory{Secret::of(2)};
    transport::TimeWaitTable time_wait;

    // Returns the table for one more host.
    transport::QueuePairTable& next_qps() {
        if (hosts_++ % kHostsOfATable == 0) qps_.emplace_back(Secret::of(1));
        return qps_.back();
    }

  private:
    static constexpr uint32_t kHostsOfATable = 32;
    std::deque<transport::QueuePairTable> qps_;
    uint32_t hosts_ = 0;
};

// The sizes that frames count as in queues and on links, for comparisons with another simulator.
struct CountedBytes {
    uint32_t headers;  // added to the payload of a packet
    uint32_t control;  // size of an ACK, NACK or CNP
};

struct HostConfig {
    transport::Config transport;
    std::optional<CountedBytes> counted;  // unset: frames count as on the wire
    uint32_t ring_packets = 8;            // in the NIC's queue: fewer let the link run dry, more delay ACKs behind data
    // ACK, NACK and CNP use the upper traffic class: ahead of data in every queue, never paused, marked or counted.
    bool control_class = false;
};

struct QpConfig {
    bool multipath = false;  // mp as in HostConfig::transport; otherwise rc
    uint32_t mtu = 1024;
    uint32_t depth = 64;  // depth of the send queue
    uint8_t timeout = 14, retry_cnt = 7;
    uint16_t udp_src = 0xC000;  // the path of rc
    uint32_t psn = 0;           // PSN of the first packet in both directions
    uint32_t port = 0;          // number of the port at both hosts
    uint32_t receives = 0;      // depth of the receive queue
};

// A one-sided request.
struct Request {
    ibv_wr_opcode opcode = IBV_WR_RDMA_WRITE;
    uint64_t wr_id = 0;
    ibv_sge local{};
    uint64_t remote_addr = 0;
    uint32_t rkey = 0;
    unsigned flags = IBV_SEND_SIGNALED;
};

class Host final : public Node {
  public:
    Host(World& world, uint32_t index, Tables& tables, const HostConfig& config);

    // A further port with an address of its own (note 1), made by Network::add_port(). The host itself is the first
    // port.
    class Port final : public Node {
      public:
        Port(World& world, uint32_t index, Host& host);
        bool is_destination() const override { return true; }
        void receive(Packet& packet, uint32_t) override { host_.receive_at(index(), packet); }
        void prefetch(const Packet& packet, uint32_t ahead) const override { host_.prefetch(packet, ahead); }
        void on_transmit(Packet& packet, Link& link) override { host_.on_transmit(packet, link); }

      private:
        Host& host_;
    };
    uint32_t ports() const { return static_cast<uint32_t>(more_ports_.size()) + 1; }
    const Node& port(uint32_t number) const {
        if (number == 0) return *this;
        return *more_ports_[number - 1];
    }

    // Creates an RC QP that lives as long as the host. Throws if its table has no more numbers.
    transport::QueuePair& create_qp(const QpConfig& config, Consumer& consumer);
    // Moves the QP from RESET to RTS. `peer` is the QP of the other host.
    void connect(transport::QueuePair& qp, const QpConfig& config, const Host& host, const transport::QueuePair& peer);
    // Moves the QP back to RESET, from which it can be connected again, also to another peer.
    void reset(transport::QueuePair& qp) { engine_.set_state(qp, IBV_QPS_RESET, engine_now()); }
    // Returns false if the send queue is full.
    bool post(transport::QueuePair& qp, const Request& request);
    // Posts a receive without memory for a WRITE with immediate data. It completes when that has arrived.
    void post_receive(transport::QueuePair& qp) {
        qp.rq.at(qp.rq.produced()) = {};
        qp.rq.publish(1);
    }

    wire::Flow flow_to(const Host& peer, uint16_t udp_src, uint32_t port = 0) const;
    // Returns the NIC's link into the network, of the first port and cable.
    Link& link() const { return *links().front(); }
    // Returns the link by which packets of a flow leave.
    Link& link_of(uint64_t flow_hash, uint32_t port) const { return link_of(this->port(port), flow_hash); }
    // Returns the size that a frame counts as, given its size with FCS and its payload.
    uint32_t counted(uint32_t frame_bytes, uint32_t payload_bytes, bool control) const {
        if (!counted_) [[likely]]
            return frame_bytes;
        return control ? counted_->control : payload_bytes + counted_->headers;
    }
    uint64_t engine_now() const { return world_.events.now() / kNanosecond + kClockStart; }
    const transport::Counters& counters() const { return engine_.counters(); }
    // Returns the shared state of the QPs in mp mode, or null without such QPs.
    const transport::MultipathShared* multipath() const { return engine_.multipath(); }
    // Returns the number of frames that arrived with this error.
    uint64_t frames(wire::ParseError error) const { return frames_[static_cast<size_t>(error)]; }
    // Returns the number of frames that arrived without their payload because a switch trimmed them.
    uint64_t trimmed_frames() const { return trimmed_frames_; }

    // Implements Node.
    void attach(Link& link) override;
    bool is_destination() const override { return true; }
    void receive(Packet& packet, uint32_t) override { receive_at(index(), packet); }
    void prefetch(const Packet& packet, uint32_t ahead) const override;
    void on_transmit(Packet& packet, Link& link) override;

    // Implements the engine's sink.
    bool ready() {
        if (!one_link_) [[unlikely]]
            return any_has_room();
        blocked_ = link().queued_packets() >= ring_packets_;
        return !blocked_;
    }
    bool ready(const transport::Path& path) {
        if (!one_link_) [[unlikely]]
            return has_room(path);
        return ready();
    }
    // The upper class has a ring of its own. A QP whose data PFC holds back is still served when it can keep no more
    // acknowledgements.
    bool ready_to_acknowledge(const transport::Path& path) { return control_class_ || ready(path); }
    void send(const transport::Path& path, const wire::Headers& headers, std::span<const wire::Segment> payload);
    struct Series {  // nothing to share: most frames are never built
        Host& host;
        const transport::Path& path;
        uint32_t bytes;
        void send(const wire::Headers& headers, const void* payload) {
            const wire::Segment segment{payload, bytes};
            host.send(path, headers, {&segment, 1});
        }
    };
    Series series(const transport::Path& path, const wire::Headers&, uint32_t bytes) { return {*this, path, bytes}; }
    void suspect(const transport::Path&) {}
    void notify(transport::CompletionQueue& cq) { notified_.push_back(&cq); }
    void event(ibv_event_type, transport::QueuePair&) {}
    void event(ibv_event_type, transport::CompletionQueue&) {}
    void event(ibv_event_type, transport::SharedRecvQueue&) {}

  private:
    static constexpr uint64_t kClockStart = 1'000'000;  // ns: engines read a time of 0 as "not set"
    static constexpr uint32_t kTransmitBudget = 64;

    // Receives a packet at the port whose number in the network is `node`.
    void receive_at(uint32_t node, Packet& packet);
    wire::ParseError take(uint32_t node, Packet& packet);
    void take_trimmed(uint32_t node, Packet& packet);
    const Node& port_of(const transport::Path& path) const;
    static Link& link_of(const Node& port, uint64_t flow_hash);
    bool has_room(const Node& port) const;
    bool has_room(const transport::Path& path);
    bool any_has_room();
    void expire();
    void pump();
    bool serve_completions();
    void schedule_timer();

    Tables& tables_;
    transport::QueuePairTable& qps_;
    const std::optional<CountedBytes> counted_;
    const uint32_t ring_packets_;
    const bool control_class_;
    transport::Engine<Host> engine_;
    bool one_link_ = true;  // there is one port with one cable
    bool blocked_ = false;  // the engine was told that a port's queue is full
    bool pumping_ = false;
    Event timer_event_;
    uint64_t timer_ns_ = transport::kNever;  // time of the next call into the engine, no later than its next deadline
    std::array<uint64_t, 16> frames_{};
    uint64_t trimmed_frames_ = 0;
    std::vector<const Port*> more_ports_;
    std::vector<transport::CompletionQueue*> notified_;
    std::vector<std::unique_ptr<transport::CompletionQueue>> cqs_;
    std::vector<std::unique_ptr<transport::QueuePair>> queue_pairs_;
};

static_assert(transport::Sink<Host>);

}  // namespace rove::fabric

extern template class rove::transport::Engine<rove::fabric::Host>;
