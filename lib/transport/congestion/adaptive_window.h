// SPDX-License-Identifier: Apache-2.0
// The default congestion control of rc and mp (BX-12): a window that needs nothing configured in the network. It reacts
// to ECN marks if there are any, otherwise to queueing delay, otherwise to losses. Units are nanoseconds and packets;
// windows named fixed are in 1/65536 packets.
//
// DESIGN NOTES
// 1. Marks act at once, as in MP-1. A loss acts at once if its packet left after the last reduction. Delay acts once in
//    a round trip.
// 2. A loss is a sign of congestion only if the round trip shows a queue, or if a large part of the window was lost.
//    Otherwise a cable or a path loses packets, and sending less would not help.
// 3. Delay is measured by the least round trip of a round, which a receiver that pauses does not lengthen for more than
//    one round. Even so a busy software receiver looks like a queue. So delay counts only for ten seconds after a loss
//    by congestion: in a network without marks a queue that overflowed once is kept short from then on, and where
//    nothing is ever lost (PFC, links within a machine) the window stays as large as it may be.
// 4. The window grows by one for each acknowledged packet until the first sign of congestion. Then it searches the
//    window at which the last sign came (as BIC does: Xu, Harfoush, Rhee, INFOCOM 2004): by a quarter of the distance
//    in each round trip, and beyond it by one packet, then by ever more, up to a sixteenth of the window.
// 5. A thousand flows that share a link each have room for a fraction of a packet. With a window of 1/n packet, one
//    packet leaves in n round trips (as in Swift). Below one packet the window shrinks and grows in proportion to its
//    size.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace rove::transport {

class AdaptiveWindow {
  public:
    // The measurements of a round trip that has just ended.
    struct Round {
        uint64_t least_ns;      // the least round trip in it; 0 if none was measured
        uint64_t base_ns;       // the round trip without queues
        uint64_t deviation_ns;  // the mean deviation of the round trip
    };

    // Returns the window after the acknowledgement of `packets`.
    uint32_t on_ack(uint32_t cwnd_fixed, uint32_t packets, uint32_t most_packets) {
        acked_ += packets;
        const uint64_t grown = cwnd_fixed + uint64_t{packets} * growth_;
        const uint64_t most = uint64_t{most_packets} << 16;
        return static_cast<uint32_t>(grown < most ? grown : most);
    }
    // Returns the window after an acknowledgement with a mark.
    uint32_t on_mark(uint32_t cwnd_fixed);
    // Returns the window after the loss of a packet that left after the last reduction by on_loss().
    uint32_t on_loss(uint32_t cwnd_fixed, const Round& round, uint64_t now_ns);
    // Withdraws a loss: the packet has turned out to have arrived.
    void on_false_alarm() { losses_ -= losses_ != 0; }
    // Returns the window after a round trip. `share_fixed` is the result of share().
    uint32_t end_round(uint32_t cwnd_fixed, uint32_t share_fixed, const Round& round, uint64_t now_ns);
    // Returns the window after a timer that fires again without an answer.
    uint32_t on_timeout(uint32_t cwnd_fixed);
    // Begins again after a pause: the window doubles in each round trip until it is half of the last one.
    void restart(uint32_t cwnd_fixed);

    bool starts_slowly() const { return growth_ == kOne; }

    static constexpr uint32_t kOne = 1u << 16;      // a packet
    static constexpr uint32_t kLeast = kOne / 128;  // the least window

    // Returns the share of one of `streams` streams. Without losses or marks, delay reduces no window below its share:
    // a receiver that shares its core looks like a queue, and needs this much in flight. `initial_fixed` is the share
    // of a lone stream.
    static uint32_t share(uint32_t initial_fixed, size_t streams) {
        return std::max(initial_fixed >> std::min<size_t>(std::bit_width(streams / kAlone), 16), kLeast);
    }
    // Returns the time between two packets with a window below a packet. `random` spreads it by half of its length,
    // because flows that were marked together would otherwise return together.
    static uint64_t spacing_ns(uint32_t cwnd_fixed, uint64_t srtt_ns, uint64_t random) {
        const uint64_t apart_ns = (srtt_ns << 16) / cwnd_fixed;
        return apart_ns / 2 + random % (apart_ns + 1);
    }

  private:
    static constexpr size_t kAlone = 4;  // fewer streams than this all have the share of a lone one
    static constexpr uint32_t kMarksLast = 64;

    bool marked() const { return rounds_unmarked_ < kMarksLast; }

    uint32_t cut(uint32_t cwnd_fixed, uint32_t percent);
    void plan_growth(uint32_t cwnd_fixed);

    uint32_t least_ = kOne / 8;              // the window is never smaller
    uint32_t growth_ = kOne;                 // for each acknowledged packet, in 1/65536 packets
    uint32_t quiet_rounds_ = 0;              // round trips since the last sign of congestion
    uint32_t last_most_ = ~0u;               // the window at the last sign of congestion, or the end of slow start
    uint32_t acked_ = 0, losses_ = 0;        // packets in this round trip
    uint32_t rounds_unmarked_ = kMarksLast;  // since the last mark, up to kMarksLast
    uint32_t rounds_unlost_ = 0;             // since the last loss by congestion, up to a limit
    uint64_t careful_until_ns_ = 0;          // until then delay counts
    bool careful_ = false;
    bool settling_ = false;  // the window was cut: the next round still shows the queue of the larger one
};

}  // namespace rove::transport
