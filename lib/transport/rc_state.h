// SPDX-License-Identifier: Apache-2.0
// The state of a queue pair that speaks RC or XRC as IBTA defines them, and of one that speaks UC or UD. Units:
// nanoseconds of the worker's clock (0 = not set), bytes, packets.
#pragma once

#include <algorithm>
#include <cstdint>

#include "transport/congestion/adaptive_window.h"
#include "transport/congestion/dcqcn.h"
#include "transport/counters.h"
#include "transport/queue_state.h"
#include "transport/round_trip.h"

namespace rove::transport {

// Go-back-N always resumes at `una`, so two positions describe the packets in flight and no packet list is needed.
struct RcRequester {
    Psn next_psn;          // PSN of the next packet to send
    Psn max_psn;           // one past the highest PSN ever sent
    Psn una;               // oldest PSN not acknowledged
    Psn rewound_to;        // `una` at the last rewind; NAKs and gaps at the same place do not rewind again
    bool rewound = false;  // since the last progress
    Psn resumed_at;        // the position of `una` at which sending last resumed: a READ request may start there
    Counter cause = Counter::kResentTimeout;  // cause of the last rewind
    RetryTimer retry;
    // The limit of packets in flight: the window of congestion control, or less. It is one after a timeout, until
    // something new is acknowledged, so that a slow peer does not get all unread packets once more.
    uint32_t window_packets = 1;
    uint32_t cwnd_fixed = 0;  // the window of BX-12, in 1/65536 packets
    uint32_t marked = 0;      // packets that do not widen it when they are acknowledged: a CNP counted them as marked
    uint64_t pace_ns = 0;     // a window below a packet: when the next packet may leave
    AdaptiveWindow window;
    // A loss has reduced the window, and no other does within a round trip if this packet is not acknowledged.
    Psn reduced_until;
    uint64_t reduced_ns = 0;
    struct Undo {  // the position and the window at the timeout
        uint32_t next_wqe = 0, next_packet = 0;
        Psn next_psn;
        bool valid = false;
        uint32_t cwnd_fixed = 0;
    };
    Undo undo;
    uint16_t reads_outstanding = 0;  // READ and atomic request packets without all their responses
    uint16_t since_ack_req = 0;      // packets sent since the last with AckReq
    uint8_t probes = 0;              // tail probes since the last progress
    bool probed = false;             // the packet `probe_psn` was sent as a probe, and no ACK has come since
    Psn probe_psn;
    uint64_t probe_deadline = kNever;
    uint64_t probed_ns = 0;   // time of the last probe
    uint64_t resumed_ns = 0;  // time at which packets were last sent again because nothing was heard of them
    uint64_t alive_ns = 0;    // the last sign of life of the peer
    // The round trip. One packet at a time measures it.
    uint64_t srtt_ns = 0, rttvar_ns = 0;  // 0: not measured
    LeastRoundTrip least;
    Psn sample_psn;
    uint64_t sample_ns = 0;      // time at which `sample_psn` was sent; 0: no packet measures
    uint64_t sampled_ns = 0;     // time of the last measurement
    uint64_t latest_rtt_ns = 0;  // spaces packets while the window is below one
    // The first answer came after a probe, so that it is not known which of the two packets it belongs to.
    bool is_guess = false;

    bool outstanding() const { return una != max_psn; }
    // Returns the window of BX-12 in packets.
    uint32_t cwnd() const { return std::max(cwnd_fixed >> 16, 1u); }
    // Handles a CNP of a rove host (BX-15), whose count of marks acts like that many acknowledgements with a mark. A
    // count above the window, as from an interval of many round trips, counts as the window.
    void on_marks(uint32_t marks) {
        for (uint32_t left = std::min(marks, cwnd()); left != 0; --left) cwnd_fixed = window.on_mark(cwnd_fixed);
        window_packets = std::min(window_packets, cwnd());
        marked = std::max(marked, std::min(marks, window_packets));
    }
};

struct RcJob : Job {
    Psn next;  // PSN of the next packet
    uint32_t msn = 0;
    uint32_t sent = 0;         // READ: bytes already sent
    bool started = false;      // READ: a packet was sent
    const void* pd = nullptr;  // XRC, READ: domain of the data

    uint32_t left() const { return bytes - sent; }
};

struct RcResponder {
    Psn epsn;  // expected
    uint32_t msn = 0;
    MessageInProgress message;
    bool nak_sent = false;  // a sequence or RNR NAK was sent for epsn: no other before it arrives
    bool ack_due = false;
    uint8_t ack_syndrome = wire::kSyndromeAck;
    Psn ack_psn;
    DelayedAck delay;
    Ring<RcJob> jobs;  // in the order of their responses; note 2 of responder.h explains their number
    AtomicReplay atomics;

    // Returns true if there is an answer to send, now or after its wait.
    bool has_answers() const { return !jobs.empty() || ack_due; }
    void make_room(uint32_t requests) {
        jobs.make_room(2 * requests);
        atomics.make_room(requests);
    }
};

// Both ends of DCQCN.
struct Congestion {
    Dcqcn rate;
    uint64_t last_cnp_ns = 0;                            // time of the last CNP to the peer
    uint32_t marked_requests = 0, marked_responses = 0;  // since then
    bool cnp_due = false;                                // a CNP is due that the port could not take
};

struct Rc {
    static constexpr wire::Service kService = wire::Service::kRc;

    RcRequester requester;
    RcResponder responder;
    Congestion congestion;
};

// XRC (annex A14): RC whose requests name an SRQ. The responder then acts as that SRQ, with its protection domain,
// receive requests and completion queue. An INI QP only sends requests, and a TGT QP only answers them.
struct Xrc : Rc {
    static constexpr wire::Service kService = wire::Service::kXrc;
};

struct Uc {
    Psn next_psn;  // PSN of the next packet to send
    Psn epsn;      // expected
    MessageInProgress message;
    Congestion congestion;
};

struct Ud {
    Psn next_psn;  // PSN of the next packet to send
};

}  // namespace rove::transport
