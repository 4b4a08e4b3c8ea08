// SPDX-License-Identifier: Apache-2.0
#include "fabric/host.h"

#include <algorithm>
#include <cassert>
#include <stdexcept>

#include "fabric/forwarding.h"

template class rove::transport::Engine<rove::fabric::Host>;

namespace rove::fabric {
namespace {

// The payload that the receiver sees where payloads are not carried.
constexpr std::array<uint8_t, 4096> kZeros{};

// Returns the node's address in 10.0.0.0/8.
wire::Gid address(uint32_t index) {
    wire::Gid gid{};
    gid[10] = gid[11] = 0xFF;
    gid[12] = 10;
    for (int i = 0; i < 3; ++i) gid[15 - i] = static_cast<uint8_t>(index >> 8 * i);
    return gid;
}

uint32_t index_of(const wire::Gid& gid) {
    return uint32_t{gid[13]} << 16 | uint32_t{gid[14]} << 8 | gid[15];
}

wire::MacAddress mac(uint32_t index) {
    return {2, 0, 0, static_cast<uint8_t>(index >> 16), static_cast<uint8_t>(index >> 8), static_cast<uint8_t>(index)};
}

// Returns true for ACKs and NACKs of rc and mp, and for CNPs.
bool is_control(uint8_t opcode) {
    return wire::op_of(opcode) == wire::Op::kAck || opcode == wire::kOpcodeCnp;
}

// Returns the bytes of the message from this packet on, which every packet of a WRITE in mp carries. Returns 0 for
// other packets.
uint32_t remaining_bytes(const wire::Headers& headers) {
    const wire::Op op = wire::op_of(headers.bth.opcode);
    const bool write = op >= wire::Op::kWriteFirst && op <= wire::Op::kWriteOnlyImm;
    return write && wire::service_of(headers.bth.opcode) == wire::Service::kMp ? headers.reth.length : 0;
}

}  // namespace

Host::Host(World& world, uint32_t index, Tables& tables, const HostConfig& config)
    : Node(world, index),
      tables_(tables),
      qps_(tables.next_qps()),
      counted_(config.counted),
      ring_packets_(config.ring_packets),
      control_class_(config.control_class),
      engine_(config.transport, qps_, tables.memory, tables.time_wait, *this),
      timer_event_(Event::of<&Host::expire>(*this)) {}

Host::Port::Port(World& world, uint32_t index, Host& host) : Node(world, index), host_(host) {
    host.more_ports_.push_back(this);
    host.one_link_ = false;
}

void Host::attach(Link& link) {
    Node::attach(link);
    one_link_ = links().size() == 1 && more_ports_.empty();
}

transport::QueuePair& Host::create_qp(const QpConfig& config, Consumer& consumer) {
    transport::CompletionQueue& cq = *cqs_.emplace_back(std::make_unique<transport::CompletionQueue>());
    transport::QueuePair& qp = *queue_pairs_.emplace_back(std::make_unique<transport::QueuePair>());
    qp.type = IBV_QPT_RC;
    qp.pd = qp.recv_pd = &tables_;
    qp.send_cq = qp.recv_cq = &cq;
    qp.max_recv_sge = 1;
    qp.slot.sges = std::make_unique<ibv_sge[]>(1);
    cq.owner = &consumer;
    if (!cq.init(2 * config.depth + config.receives) || !qp.sq.init(config.depth, 1, 0) ||
        !qp.rq.init(std::max(config.receives, 1u), 1) || !qps_.insert(qp)) {
        throw std::runtime_error("fabric: no memory or no number for one more QP");
    }
    cq.arm(false);
    return qp;
}

void Host::connect(transport::QueuePair& qp, const QpConfig& config, const Host& host,
                   const transport::QueuePair& peer) {
    constexpr uint8_t kReads = 16;
    qp.access = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
    engine_.set_state(qp, IBV_QPS_INIT, engine_now());
    qp.mtu = config.mtu;
    qp.remote_qpn = peer.qpn;
    qp.port = static_cast<uint16_t>(port(config.port).index());
    qp.path.flow = flow_to(host, config.udp_src, config.port);
    qp.path.headers = wire::make_template(qp.path.flow);
    qp.path.port = qp.port;
    qp.max_dest_rd_atomic = qp.max_rd_atomic = kReads;
    engine_.start_receiving(qp, config.psn, config.multipath);
    engine_.set_state(qp, IBV_QPS_RTR, engine_now());
    qp.timeout = config.timeout;
    qp.retry_cnt = config.retry_cnt;
    engine_.start_sending(qp, config.psn);
    engine_.set_state(qp, IBV_QPS_RTS, engine_now());
}

bool Host::post(transport::QueuePair& qp, const Request& request) {
    if (qp.sq.room() == 0) return false;
    transport::SendWqe& wqe = qp.sq.at(qp.sq.produced());
    wqe = {};
    wqe.wr_id = request.wr_id;
    wqe.remote_addr = request.remote_addr;
    wqe.rkey = request.rkey;
    wqe.opcode = static_cast<uint8_t>(request.opcode);
    wqe.send_flags = static_cast<uint8_t>(request.flags);
    wqe.num_sge = 1;
    wqe.sges()[0] = request.local;
    wqe.length = request.local.length;
    qp.sq.publish(1);
    engine_.doorbell(qp);
    pump();
    return true;
}

wire::Flow Host::flow_to(const Host& peer, uint16_t udp_src, uint32_t port) const {
    const uint32_t from = this->port(port).index(), to = peer.port(port).index();
    wire::Flow flow;
    flow.src_mac = mac(from);
    flow.dst_mac = mac(to);
    flow.src = address(from);
    flow.dst = address(to);
    flow.traffic_class = wire::kEcnEct0;
    flow.udp_src = udp_src;
    return flow;
}

const Node& Host::port_of(const transport::Path& path) const {
    for (const Port* const port : more_ports_) {
        if (port->index() == path.port) return *port;
    }
    return *this;
}

// Returns one of the links that are up, since the NIC of a bond sees the carrier.
Link& Host::link_of(const Node& port, uint64_t flow_hash) {
    const auto count = static_cast<uint32_t>(port.links().size());
    uint32_t chosen = ecmp(flow_hash, port.index(), count);
    for (uint32_t i = 0; i < count && !port.links()[chosen]->up(); ++i) chosen = (chosen + 1) % count;
    return *port.links()[chosen];
}

bool Host::has_room(const Node& port) const {
    size_t queued = 0;
    for (const Link* const link : port.links()) queued += link->queued_packets();
    return queued < ring_packets_ * port.links().size();
}

bool Host::has_room(const transport::Path& path) {
    const bool room = has_room(port_of(path));
    blocked_ |= !room;
    return room;
}

bool Host::any_has_room() {
    bool room = has_room(*this);
    for (const Port* const port : more_ports_) room |= has_room(*port);
    blocked_ |= !room;
    return room;
}

void Host::send(const transport::Path& path, const wire::Headers& headers, std::span<const wire::Segment> payload) {
    uint32_t payload_bytes = 0;
    for (const wire::Segment& segment : payload) payload_bytes += segment.bytes;
    const size_t bytes = wire::frame_bytes(path.headers, headers.bth.opcode, payload_bytes);
    Packet& packet = world_.packets.take();
    wire::ParsedFrame& frame = packet.frame;
    if (world_.carry == Carry::kBytes) {
        packet.content.resize(bytes);
        wire::build_frame(packet.content.data(), path.headers, headers, payload);
        // The network sees the same bytes as the wire.
        [[maybe_unused]] const wire::ParseError error = wire::parse_headers(packet.content, frame);
        assert(error == wire::ParseError::kNone);
    } else {
        assert(payload_bytes <= kZeros.size());
        frame.flow = path.flow;
        frame.headers = headers;
        frame.payload = kZeros.data();
        if (wire::service_of(headers.bth.opcode) == wire::Service::kMp) {
            frame.flow.udp_src = headers.vp;
            // BX-3: the entries of an acknowledgement are read by the receiver.
            if (wire::op_of(headers.bth.opcode) == wire::Op::kAck && payload_bytes != 0) {
                const auto* entries = static_cast<const uint8_t*>(payload.front().data);
                packet.entries.assign(entries, entries + payload_bytes);
                frame.payload = packet.entries.data();
            }
        }
        frame.payload_bytes = payload_bytes;
        frame.verified = true;
    }
    const bool control = is_control(frame.headers.bth.opcode);
    const uint32_t frame_bytes = std::max(static_cast<uint32_t>(bytes) + kFcsBytes, kMinFrameBytes);
    packet.begin(counted(frame_bytes, payload_bytes, control), index_of(frame.flow.dst), flow_hash(frame.flow));
    packet.control = control;
    packet.urgent = packet.control && control_class_;
    if (!packet.control) packet.remaining = remaining_bytes(headers);
    Link& out = one_link_ ? link() : link_of(port_of(path), packet.flow_hash);
    out.enqueue(packet);
}

void Host::receive_at(uint32_t node, Packet& packet) {
    if (packet.trimmed) [[unlikely]] {
        take_trimmed(node, packet);
    } else {
        ++frames_[static_cast<size_t>(take(node, packet))];
    }
    world_.packets.give_back(packet);
    pump();
}

void Host::prefetch(const Packet& packet, uint32_t ahead) const {
    if (ahead == 3) {
        for (size_t at = 64; at < sizeof packet; at += 64)
            __builtin_prefetch(reinterpret_cast<const char*>(&packet) + at);
    } else if (ahead == 2) {
        qps_.prefetch(packet.frame.headers.bth.dest_qpn);
    } else {
        qps_.prefetch_object(packet.frame.headers.bth.dest_qpn);
        link().prefetch();
    }
}

wire::ParseError Host::take(uint32_t node, Packet& packet) {
    if (world_.carry == Carry::kBytes) {
        const wire::ParseError error = wire::parse_headers(packet.content, packet.frame);
        if (error != wire::ParseError::kNone) return error;
    } else if (packet.damaged) {
        return wire::ParseError::kIcrc;
    }
    transport::QueuePair* const qp = qps_.find(packet.frame.headers.bth.dest_qpn);
    const bool intact = engine_.receive(packet.frame, qp, static_cast<uint16_t>(node), engine_now());
    return intact ? wire::ParseError::kNone : wire::ParseError::kIcrc;
}

// Refills the ring when half of it is empty. A few packets at once cost little more than one.
void Host::on_transmit(Packet&, Link& link) {
    if (!blocked_ || link.queued_packets() > ring_packets_ / 2) return;
    blocked_ = false;
    pump();
}

// Passes on the headers of a trimmed frame, which are as they were sent. Its ICRC cannot be verified.
void Host::take_trimmed(uint32_t node, Packet& packet) {
    ++trimmed_frames_;
    if (packet.damaged) return;
    transport::QueuePair* const qp = qps_.find(packet.frame.headers.bth.dest_qpn);
    engine_.receive_trimmed(packet.frame, qp, static_cast<uint16_t>(node), engine_now());
}

void Host::expire() {
    timer_ns_ = transport::kNever;
    engine_.expire(engine_now());
    pump();
}

// Lets the engine send and its users handle completions, until neither has anything to do.
void Host::pump() {
    if (pumping_) return;  // a consumer has posted: the loop below continues
    pumping_ = true;
    do {
        while (engine_.has_active() && engine_.transmit(engine_now(), kTransmitBudget) > 0) {
        }
    } while (serve_completions());
    pumping_ = false;
    schedule_timer();
}

// Returns true if there were completions.
bool Host::serve_completions() {
    if (notified_.empty()) return false;
    while (!notified_.empty()) {
        transport::CompletionQueue& cq = *notified_.back();
        notified_.pop_back();
        std::array<ibv_wc, 16> wcs;
        while (const int count = cq.poll(wcs.data(), wcs.size())) {
            for (int i = 0; i < count; ++i) static_cast<Consumer*>(cq.owner)->complete(wcs[static_cast<size_t>(i)]);
        }
        cq.arm(false);
    }
    return true;
}

// Sets the timer. A timer that fires early does no harm and is set again.
void Host::schedule_timer() {
    const uint64_t deadline = engine_.next_deadline();
    if (deadline >= timer_ns_) return;
    timer_ns_ = deadline;
    world_.events.schedule(timer_event_, (deadline - std::min(deadline, kClockStart)) * kNanosecond);
}

}  // namespace rove::fabric
