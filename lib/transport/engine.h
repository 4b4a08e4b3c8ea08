// SPDX-License-Identifier: Apache-2.0
// The protocol of one worker: its QPs, what they have to send, and when. No ports, threads, clocks or sockets: packets
// and the time come in, packets and completions go out through a sink. lib/datapath's worker and the tests' virtual
// network are drivers of it.
//
// A driver
//   1. gives every parsed packet to receive(),
//   2. calls doorbell() for a QP to which work was posted,
//   3. calls expire() when next_deadline() has passed,
//   4. calls transmit() after any of these, and again whenever the sink has room, until it returns 0.
//
// Units: nanoseconds of the driver's monotonic clock; bytes; packets.
#pragma once

#include <concepts>
#include <span>

#include "transport/counters.h"
#include "transport/deadline_heap.h"
#include "transport/memory.h"
#include "transport/queue_pair.h"
#include "wire/frame.h"

namespace rove::transport {

struct Config {
    uint32_t window_packets = 256;          // a QP's packets on their way; more overruns a port's rings, less starves it
    uint32_t ack_interval_packets = 32;     // AckReq at least this often, so that the window moves
    uint32_t quantum_packets = 32;          // a QP's turn among the active ones
    uint64_t min_probe_ns = 1'000'000;      // tail loss probe: not before; several naps of a shared-mode peer
    DcqcnConfig dcqcn;
};

// What the engine needs from a driver. All calls come from within the engine's own functions, on the same thread.
template <class S>
concept Sink = requires(S sink, const Path& path, const wire::Headers& headers, std::span<const wire::Segment> payload,
                        CompletionQueue& cq, QueuePair& qp, SharedRecvQueue& srq, ibv_event_type event) {
    // Whether one more packet can be taken. False: the engine stops, and goes on at the next transmit().
    { sink.ready() } -> std::same_as<bool>;
    // Takes a packet; ready() was true. The payload is copied before the call returns.
    { sink.send(path, headers, payload) } -> std::same_as<void>;
    // A CQ that was armed has a completion: its channel gets an event.
    { sink.notify(cq) } -> std::same_as<void>;
    // Asynchronous events, as ibv_get_async_event gives them.
    { sink.event(event, qp) } -> std::same_as<void>;
    { sink.event(event, cq) } -> std::same_as<void>;
    { sink.event(event, srq) } -> std::same_as<void>;
};

template <class S>
class Engine {
  public:
    Engine(const Config& config, QueuePairTable& qps, MemoryTable& memory, S& sink)
        : config_(config), qps_(qps), memory_(memory), sink_(sink) {}

    // A packet for a QP of this engine (or for a multicast group), parsed, its ICRC verified. `qp` is what
    // find() gave for it, so that the driver can look first who owns the QP. Null: counted and dropped.
    void receive(const wire::ParsedFrame& frame, QueuePair* qp, uint16_t port, uint64_t now_ns);

    // Work was posted to `qp`'s send queue.
    void doorbell(QueuePair& qp) { activate(qp); }

    // Sends what may be sent, at most about `budget` packets. Returns the packets handed to the sink; less than the
    // budget means that nothing more can be sent before the next event.
    uint32_t transmit(uint64_t now_ns, uint32_t budget);

    // Runs the timers that have passed.
    void expire(uint64_t now_ns);
    uint64_t next_deadline() const { return deadlines_.earliest(); }

    // Control calls; the driver makes sure that none of the above runs meanwhile.
    // Enters `state`; attributes in `qp` were set before. RTR/RTS start from qp.responder.epsn / qp.requester.next_psn as
    // start_receiving/start_sending left them. ERR flushes. RESET empties all queues.
    void set_state(QueuePair& qp, ibv_qp_state state, uint64_t now_ns);
    static void start_receiving(QueuePair& qp, uint32_t rq_psn);    // before RTR
    static void start_sending(QueuePair& qp, uint32_t sq_psn);      // before RTS
    // Forgets the QP: nothing of it remains in lists and timers.
    void remove(QueuePair& qp);
    // Whether anything is posted or on its way (for SQ drain and tests).
    static bool idle(const QueuePair& qp);
    // After posting to a QP in ERR: completes what was posted with FLUSH_ERR.
    void flush(QueuePair& qp);

    const Counters& counters() const { return counters_; }
    Counters& counters() { return counters_; }
    const Config& config() const { return config_; }

  private:
    friend struct RequesterLogic;
    friend struct ResponderLogic;

    void activate(QueuePair& qp);

    Config config_;
    QueuePairTable& qps_;
    MemoryTable& memory_;
    S& sink_;
    Counters counters_;
    DeadlineHeap deadlines_;
};

}  // namespace rove::transport
