// SPDX-License-Identifier: Apache-2.0
// A host: the real protocol engine behind a NIC with one port, and the verbs calls that experiments need, without their
// checks. It is the engine's driver and its sink (transport/engine.h). Units: the engine's clock is in nanoseconds.
#pragma once

#include <array>
#include <memory>

#include "fabric/node.h"
#include "transport/engine.h"

namespace rove::fabric {

// Who is told of a CQ's completions.
class Consumer : public transport::Owner {
  public:
    virtual void complete(const ibv_wc& wc) = 0;  // may post more

  protected:
    ~Consumer() = default;
};

// Tables that all hosts of a network share, as the devices of one process do: a QP number or a key means the same
// everywhere, and a QP is told from another host's by its port, which is its host's number.
struct Tables {
    transport::QueuePairTable qps{transport::Secret::of(1)};
    transport::MemoryTable memory{transport::Secret::of(2)};
    transport::TimeWaitTable time_wait;
};

struct HostConfig {
    transport::Config transport;
    uint32_t ring_packets = 8;  // in the NIC's queue: less lets the link run dry, more delays ACKs behind data
    // ACK, NACK and CNP go in the upper traffic class: before data in every queue, never paused, marked or counted.
    bool control_class = false;
};

struct QpConfig {
    bool multipath = false;  // mp, as HostConfig::transport says; else rc
    uint32_t mtu = 1024;
    uint32_t depth = 64;  // of the send queue
    uint8_t timeout = 14, retry_cnt = 7;
    uint16_t udp_src = 0xC000;  // rc's path
    uint32_t psn = 0;           // of the first packet, both ways
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

    // Verbs. An RC QP, which stays as long as the host. Throws when there are no more numbers: 65520 in a network.
    transport::QueuePair& create_qp(const QpConfig& config, Consumer& consumer);
    // RESET to RTS. `peer` is the other host's QP.
    void connect(transport::QueuePair& qp, const QpConfig& config, const Host& host, const transport::QueuePair& peer);
    // Back to RESET: it can be connected again, to another peer too.
    void reset(transport::QueuePair& qp) { engine_.set_state(qp, IBV_QPS_RESET, engine_now()); }
    // Returns false when the send queue is full.
    bool post(transport::QueuePair& qp, const Request& request);

    wire::Flow flow_to(const Host& peer, uint16_t udp_src) const;
    // The NIC's link into the network.
    Link& link() const { return *links().front(); }
    uint64_t engine_now() const { return world_.events.now() / kNanosecond + kClockStart; }
    const transport::Counters& counters() const { return engine_.counters(); }
    // Of the QPs in mp mode; null while there is none.
    const transport::MultipathShared* multipath() const { return engine_.multipath(); }
    // Frames that arrived, by what was found wrong with them.
    uint64_t frames(wire::ParseError error) const { return frames_[static_cast<size_t>(error)]; }
    // Headers whose payload a switch has cut off.
    uint64_t trimmed_frames() const { return trimmed_frames_; }

    // Node.
    bool is_destination() const override { return true; }
    void receive(Packet& packet, uint32_t port) override;
    void foresee(const Packet& packet, uint32_t ahead) const override;
    void departs(Packet& packet, Link& link) override;

    // The engine's sink.
    bool ready();
    bool ready(const transport::Path&) { return ready(); }
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

    wire::ParseError take(Packet& packet);
    void take_trimmed(Packet& packet);
    void expire();
    void pump();
    bool serve_completions();
    void schedule_timer();

    Tables& tables_;
    const uint32_t ring_packets_;
    const bool control_class_;
    transport::Engine<Host> engine_;
    bool blocked_ = false;  // the engine was told that the NIC's queue is full
    bool pumping_ = false;
    Event timer_event_;
    uint64_t timer_ns_ = transport::kNever;  // when the engine will be looked at, no later than its next deadline
    std::array<uint64_t, 16> frames_{};
    uint64_t trimmed_frames_ = 0;
    std::vector<transport::CompletionQueue*> notified_;
    std::vector<std::unique_ptr<transport::CompletionQueue>> cqs_;
    std::vector<std::unique_ptr<transport::QueuePair>> queue_pairs_;
};

static_assert(transport::Sink<Host>);

}  // namespace rove::fabric

extern template class rove::transport::Engine<rove::fabric::Host>;
