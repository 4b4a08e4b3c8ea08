// SPDX-License-Identifier: Apache-2.0
// What MP-RDMA's sender keeps of one stream of packets, and how it is configured.
// Units: packets, nanoseconds; windows in 1/65536 packets where named fixed.
#pragma once

#include <array>
#include <cstdint>

#include "transport/congestion/dcqcn.h"
#include "transport/congestion/nscc.h"
#include "transport/paths/entropies.h"
#include "transport/psn.h"

namespace rove::transport {

inline constexpr uint16_t kFirstVp = 0xC000;  // to 0xFFFF: IANA's dynamic ports
inline constexpr uint32_t kVps = 0x4000;

struct PathsConfig {
    enum class Recovery : uint8_t {
        kSelectiveRepeat,
        kGoBackN,
        // As IRN in ConWeave's public simulator: as soon as a packet arrives out of order, or by time, all goes again
        // that is not acknowledged, on its way or not. It ends when nothing is missing.
        kOfDisorder,
    };
    // BX-5: what says how much may be on its way.
    enum class Control : uint8_t {
        kMpRdma,  // MP-1, MP-4, MP-7
        kDcqcn,   // BX-6: a rate; no more than the initial window
        kNscc,    // BX-9: a window by marks and by delay
        kFixed,   // the initial window: with one path and a bandwidth-delay product, IRN's flow control
    };
    // BX-5: which path a packet takes.
    enum class Choice : uint8_t {
        kEcho,    // MP-3: where an ACK came from
        kReps,    // BX-7: where an ACK without a mark came from
        kRandom,  // any
    };

    Control control = Control::kMpRdma;
    Choice choice = Choice::kEcho;
    // The paths that there are: so many UDP source ports from this one on; 0: from the connection's own one on.
    uint16_t first_vp = kFirstVp;
    uint32_t vps = kVps;
    uint32_t initial_window = 32;  // MP-3: about one BDP; 1..max_window
    uint32_t max_window = 256;     // from the oldest unacknowledged to the newest; power of two, 16..4096
    uint32_t delta = 32;           // MP-4: the out-of-order degree that is tolerated; MP-RDMA 5.1
    uint32_t probe_permille = 10;  // MP-5: p; MP-RDMA 3.5
    Recovery recovery = Recovery::kSelectiveRepeat;
    bool infer_losses = true;         // BX-1
    bool explore = true;              // BX-4: what a window grows by takes a random path
    uint64_t min_rto_ns = 1'000'000;  // a peer that shares its core may be away from it that long
    // Of a stream with three packets or fewer on their way, instead; IRN's RTO_low and N (section 3.1). 0: none of its
    // own.
    uint64_t low_rto_ns = 0;
    bool repeat_early = true;    // MP-10: by time, before MP-11's timer
    bool learn_patience = true;  // paths.h, note 5: false alarms lengthen the waits. IRN knows no false alarms
    double sync_alpha = 1.0;     // MP-12; MP-RDMA 5.4
    bool count_acks = false;     // MP-2 by its letter: every ACK inflates, also of what was acknowledged before
};

// Null if usable; else the member that is not, and what it may be.
const char* invalid(const PathsConfig& config);

// A packet on its way, or of late.
struct PacketRecord {
    uint32_t order;    // of its latest transmission among all of the stream
    uint32_t sent;     // when, in units of 64 ns
    uint16_t vp;       // which way
    uint16_t lost_vp;  // which way it took when it was lost; 0: it was not. For telemetry
    uint16_t before;   // BX-1: index of the record that was sent before it on a path of the same bucket
    bool acked : 1;
    bool marked : 1;  // ... and met congestion. For telemetry
    bool lost : 1;    // known to be, and not sent again yet
    bool retransmitted : 1;
    bool withdrawn : 1;    // it was acknowledged, then refused, and has not been sent again yet
    bool false_alarm : 1;  // it was sent again, and its first transmission had arrived
    bool twice : 1;        // it is lost, and goes two times: it was repeated in vain (MP-10)
};
static_assert(sizeof(PacketRecord) == 16);

// The members are for class Paths, and for tests and telemetry to read.
struct SendStream {
    // A path on which an ACK came back: the next packet may take it (MP-3).
    struct Clock {
        uint16_t vp;
        uint8_t uses;  // packets that it let out; MP-6: two at most
    };
    // The default window, all of which may be acknowledged at once (BX-3). With 64 the rest went out on random paths:
    // in MP-RDMA's Fig. 15 a path of 9.5 Gb/s carried 5.3 instead of 9.2. With a larger window: Paths::add_clock().
    static constexpr uint32_t kClocks = 256;

    Psn una;                      // the oldest packet that is not acknowledged in order (AACK)
    Psn oldest;                   // ... or at all; una or later
    Psn nxt;                      // the next new one
    Psn recorded;                 // the oldest of which there is a record; una or earlier
    Psn ooh;                      // MP-4: one past the highest that was acknowledged
    Psn retx, recovery;           // MP-9: the next to be sent again, and where that ends
    uint32_t recovery_order = 0;  // of the first transmission since then
    bool recovering = false;
    bool started = false;
    uint16_t first_vp = kFirstVp;  // of its paths
    bool grown = false;            // BX-4: by a packet, which is to take a random path
    bool starved = false;          // there was something to send, and a window, and no ACK to clock it out
    bool satisfied = false;        // there was a window, and nothing to send: it need not grow
    uint8_t backoff = 0;           // times the timer has fired since the last progress
    uint8_t tail_probes = 0;       // MP-10: times the tail timer has fired since the last ACK
    uint8_t patience = 0;          // note 5: every wait for an ACK is 2^patience as long
    uint8_t real_losses = 0;       // repetitions in a row that were needed
    uint32_t cwnd_fixed = 0;
    uint32_t inflate = 0;  // MP-2: acknowledged packets behind una
    uint32_t lost = 0;     // records of which that is known, and which were not sent again
    uint32_t credits = 0;  // packets that may leave on random paths: initial window, timers
    uint32_t order = 0;
    uint32_t latest_sent = 0;         // of the packets that were acknowledged, as PacketRecord::sent
    uint64_t srtt_ns = 0;             // 0: nothing measured yet
    uint64_t rttvar_ns = 0;           // its mean deviation
    uint64_t timer_ns = 0;            // 0: not running
    uint64_t burst_ns = 0;            // MP-6: 0: not running
    uint64_t probe_ns = 0;            // MP-5: when the next probe may be drawn
    uint64_t early_ns = 0;            // MP-10: when the next packet is overdue; 0: not known of any
    uint64_t scan_ns = 0;             // no search for overdue packets before this time
    uint64_t sent_ns = 0;             // last transmission
    uint64_t last_ack_ns = 0;         // 0: none, or the stream has restarted since
    uint64_t false_alarm_ns = 0;      // when `patience` grew last
    PacketRecord* records = nullptr;  // a ring of max_window while packets are on their way
    uint32_t clock_head = 0, clock_count = 0;
    std::array<Clock, kClocks> clocks;
    // Of other controls and choices than MP-RDMA's own (BX-5), which has clocks instead.
    Entropies entropies;
    Dcqcn rate;
    uint64_t pace_ns = 0;      // when the next packet may leave: BX-6: if one has asked; BX-11: 0: at once
    uint64_t notified_ns = 0;  // BX-6: when `rate` was last told of a mark
    Nscc nscc;

    bool outstanding() const { return una != nxt; }
    uint32_t cwnd() const { return cwnd_fixed >> 16; }
    // MP-2. What is known to be lost counts until it was sent again and acknowledged.
    int32_t awnd() const { return static_cast<int32_t>(cwnd() + inflate) - (nxt - una); }
};

}  // namespace rove::transport
