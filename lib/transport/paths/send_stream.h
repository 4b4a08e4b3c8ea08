// SPDX-License-Identifier: Apache-2.0
// The state of MP-RDMA's sender for one stream of packets. Units are packets and nanoseconds; windows named fixed are
// in 1/65536 packets.
#pragma once

#include <cstdint>
#include <memory>

#include "transport/paths/config.h"
#include "transport/paths/congestion_control.h"
#include "transport/paths/destination.h"
#include "transport/paths/entropies.h"
#include "transport/paths/unused_acks.h"
#include "transport/psn.h"

namespace rove::transport {

// Describes a packet that is, or recently was, in flight.
struct PacketRecord {
    uint32_t order;    // number of its latest transmission within the stream
    uint32_t sent;     // time of that transmission in units of 64 ns
    uint16_t vp;       // its path
    uint16_t lost_vp;  // the path on which it was lost last, or 0; for telemetry
    uint16_t before;   // BX-1: index of the previous record on a path of the same bucket
    bool acked : 1;
    bool marked : 1;  // its ACK reported congestion; for telemetry
    bool lost : 1;    // known to be lost, and not sent again yet
    bool retransmitted : 1;
    bool withdrawn : 1;    // it was acknowledged, then refused, and has not been sent again yet
    bool false_alarm : 1;  // it was repeated although its first transmission had arrived
    bool twice : 1;        // lost, and due to be sent twice: its repetition was lost too (MP-10)
};
static_assert(sizeof(PacketRecord) == 16);

// Only class Paths writes the members. Tests and telemetry may read them.
struct SendStream {
    Psn una;                      // the oldest packet that is not acknowledged in order (AACK)
    Psn oldest;                   // the oldest packet that is not acknowledged at all; una or later
    Psn nxt;                      // the next new packet
    Psn recorded;                 // the oldest packet with a record; una or earlier
    Psn ooh;                      // MP-4: one past the highest acknowledged packet
    Psn retx, recovery;           // MP-9: the next packet to send again, and the end of recovery
    uint32_t recovery_order = 0;  // number of the first transmission since recovery began
    bool recovering = false;
    bool started = false;
    bool busy = false;             // has packets in flight, or waits for its turn with a window below a packet
    uint16_t first_vp = kFirstVp;  // the first of its paths
    bool grown = false;            // BX-4: the window grew by a packet, which will take a random path
    bool starved = false;          // data and window were available, but no ACK let a packet out
    bool satisfied = false;        // window was available but no data, so the window need not grow
    uint8_t backoff = 0;           // expirations of the timer since the last progress
    uint8_t tail_probes = 0;       // MP-10: expirations of the tail timer since the last ACK
    uint8_t patience = 0;          // note 5: every wait for an ACK is multiplied by 2^patience
    uint8_t real_losses = 0;       // consecutive repetitions that were needed
    uint32_t cwnd_fixed = 0;
    uint32_t inflate = 0;  // MP-2: acknowledged packets after una
    uint32_t lost = 0;     // records that are known to be lost and were not sent again
    uint32_t credits = 0;  // packets that may leave on random paths: initial window, timers
    uint32_t order = 0;
    uint32_t latest_sent = 0;            // the latest PacketRecord::sent of the acknowledged packets
    uint64_t srtt_ns = 0;                // 0: not measured yet
    uint64_t rttvar_ns = 0;              // its mean deviation
    uint64_t timer_ns = 0;               // 0: not running
    uint64_t burst_ns = 0;               // MP-6: 0: not running
    uint64_t probe_ns = 0;               // MP-5: when the next probe may be drawn
    uint64_t early_ns = 0;               // MP-10: when the next packet is overdue; 0: unknown
    uint64_t scan_ns = 0;                // no search for overdue packets before this time
    uint64_t sent_ns = 0;                // time of the last transmission
    uint64_t last_ack_ns = 0;            // 0: none since the stream started or restarted
    uint64_t false_alarm_ns = 0;         // the time when `patience` last grew
    uint64_t busy_ns = 0;                // the time when the stream last had nothing in flight, and sent
    Destination* destination = nullptr;  // set while it is started
    Psn round_end;  // a round trip ends when the packets that were in flight at its beginning are acknowledged
    // The least round trips in it and in the one before, in the unit of PacketRecord::sent.
    uint32_t round_least = UINT32_MAX, round_before = UINT32_MAX;
    uint32_t reduced_order = 0;       // number of the first transmission since a loss reduced the window
    uint64_t moved_ns = 0;            // BX-13: when an ACK last let a packet out on another path than its own
    uint32_t reach = 0;               // BX-14: packets from `una` on that the receiver takes
    uint32_t probe_order = 0;         // number of the transmission that last tried a path after a failure
    uint32_t front_rtt = 0;           // BX-13: the round trip of the packet that set `latest_sent`, in that unit
    uint32_t undo_fixed = 0;          // the window before the timer reduced it; 0: it did not
    PacketRecord* records = nullptr;  // a ring of `ring` records while packets are on their way
    uint32_t ring = 0;                // a power of two, at most max_window; grows with the window
    int32_t most_behind = 0;          // an ACK of a packet further behind the latest shows a slow path (MP-4)
    UnusedAcks acks;
    ControlState control;  // written by the worker's congestion control
    // When the next packet may leave; 0: at once (BX-6, BX-11, BX-12).
    uint64_t pace_ns = 0;
    std::unique_ptr<Entropies> entropies;  // BX-7; null with ACK clocking, and with random paths

    bool outstanding() const { return una != nxt; }
    uint32_t cwnd() const { return cwnd_fixed >> 16; }
    // Returns the available window (MP-2). A packet known to be lost counts as in flight until it was sent again and
    // acknowledged.
    int32_t awnd() const { return static_cast<int32_t>(cwnd() + inflate) - (nxt - una); }
};

}  // namespace rove::transport
