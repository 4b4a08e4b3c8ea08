// SPDX-License-Identifier: Apache-2.0
// The state of MP-RDMA's sender for one stream of packets, and its configuration. Units are packets and nanoseconds;
// windows named fixed are in 1/65536 packets.
#pragma once

#include <array>
#include <cstdint>

#include "transport/congestion/adaptive_window.h"
#include "transport/congestion/dcqcn.h"
#include "transport/congestion/nscc.h"
#include "transport/paths/destination.h"
#include "transport/paths/entropies.h"
#include "transport/psn.h"

namespace rove::transport {

inline constexpr uint16_t kFirstVp = 0xC000;  // up to 0xFFFF: IANA's dynamic ports
inline constexpr uint32_t kVps = 0x4000;

struct PathsConfig {
    enum class Recovery : uint8_t {
        kSelectiveRepeat,
        kGoBackN,
        // Models IRN in ConWeave's public simulator: as soon as a packet arrives out of order, or after a timeout,
        // every unacknowledged packet is sent again, in flight or not. Recovery ends when no packet is missing.
        kOfDisorder,
    };
    // Selects what limits the packets in flight (BX-5).
    enum class Control : uint8_t {
        kAdaptive,  // BX-12: a window that reacts to marks, delay and losses
        kMpRdma,    // MP-1, MP-4, MP-7
        kDcqcn,     // BX-6: a rate, within the initial window
        kNscc,      // BX-9: a window that reacts to marks and delay
        kFixed,     // the initial window; with one path and a bandwidth-delay product this is IRN's flow control
    };
    // Selects the path of a packet (BX-5).
    enum class Choice : uint8_t {
        kEcho,    // MP-3: the path of an ACK
        kReps,    // BX-7: the path of an ACK without a mark
        kRandom,  // a random path
    };

    Control control = Control::kAdaptive;
    Choice choice = Choice::kEcho;
    // The available paths: this many UDP source ports from `first_vp` on, or from the connection's own port if it is 0.
    uint16_t first_vp = kFirstVp;
    uint32_t vps = kVps;
    uint32_t initial_window = 32;  // MP-3: about one BDP; 1..max_window
    uint32_t max_window = 8192;    // from the oldest unacknowledged packet to the newest; a power of two, 16..8192
    uint32_t delta = 32;           // MP-4: the tolerated out-of-order degree; MP-RDMA 5.1
    uint32_t probe_permille = 10;  // MP-5: p; MP-RDMA 3.5
    Recovery recovery = Recovery::kSelectiveRepeat;
    bool infer_losses = true;         // BX-1
    bool explore = true;              // BX-4: a packet by which the window grows takes a random path
    uint64_t min_rto_ns = 1'000'000;  // a peer that shares its core may be descheduled for this long
    // Replaces min_rto_ns for a stream with at most three packets in flight; IRN's RTO_low and N (section 3.1). 0: not
    // used.
    uint64_t low_rto_ns = 0;
    bool repeat_early = true;    // MP-10: repeats packets by time, before MP-11's timer
    bool learn_patience = true;  // paths.h, note 5: false alarms lengthen the waits; IRN has no such rule
    double sync_alpha = 1.0;     // MP-12; MP-RDMA 5.4
    bool count_acks = false;     // MP-2 literally: every ACK inflates, also for a packet that was acknowledged before
};

// Returns null for a usable configuration, or else the member that is wrong and its allowed values.
const char* invalid(const PathsConfig& config);

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
    // A path from which an ACK returned: the next packet may take it (MP-3).
    struct Clock {
        uint16_t vp;
        uint8_t uses;  // packets that it let out; at most two (MP-6)
    };
    // Enough for the default window, all of which may be acknowledged at once (BX-3). With 64, the remaining packets
    // took random paths: in MP-RDMA's Fig. 15 a path of 9.5 Gb/s carried 5.3 instead of 9.2. For larger windows see
    // Paths::add_clock().
    static constexpr uint32_t kClocks = 256;

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
    // BX-12. A round ends when the packets that were in flight at its beginning are acknowledged.
    AdaptiveWindow window;
    Psn round_end;
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
    uint32_t clock_head = 0, clock_count = 0;
    std::array<Clock, kClocks> clocks;
    // The state for controls and choices other than MP-RDMA's own (BX-5), which uses clocks instead.
    Entropies entropies;
    Dcqcn rate;
    // When the next packet may leave: with BX-6, if one has asked; with BX-11 and BX-12, 0 means at once.
    uint64_t pace_ns = 0;
    uint64_t notified_ns = 0;  // BX-6: when `rate` was last told about a mark
    Nscc nscc;

    bool outstanding() const { return una != nxt; }
    uint32_t cwnd() const { return cwnd_fixed >> 16; }
    // Returns the available window (MP-2). A packet known to be lost counts as in flight until it was sent again and
    // acknowledged.
    int32_t awnd() const { return static_cast<int32_t>(cwnd() + inflate) - (nxt - una); }
};

}  // namespace rove::transport
