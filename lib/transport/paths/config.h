// SPDX-License-Identifier: Apache-2.0
// The configuration of mp's sender.
#pragma once

#include <cstdint>

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

}  // namespace rove::transport
