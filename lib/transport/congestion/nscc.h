// SPDX-License-Identifier: Apache-2.0
// NSCC, the network-signalled congestion control of the Ultra Ethernet specification 1.0 (section 3.6.13), also known
// from SMaRTT-REPS (Bonato et al., 2024). One window reacts to marks and to queueing delay (BX-9). Units are
// nanoseconds and packets; windows named fixed are in 1/65536 packets.
//
// DESIGN NOTES
// 1. The reaction to an acknowledgement depends on its mark and on its queueing delay relative to the target:
// - no mark, short delay: proportional increase, by the distance of the delay below the target. After a window's worth
//   of ACKs without any delay, fast increase adds a quarter of a packet for each ACK.
// - no mark, long delay: fair increase, equal for every flow.
// - mark, short delay: no reaction, because the queue is new or belongs to other flows.
// - mark, long delay: multiplicative decrease, by the distance of the average above the target, at most by half, and at
//   most once in a round trip.
// A refused packet (trimmed by a switch) reduces the window by one packet. If packets were refused, or the delay was
// four times the target, and less than an eighth of the largest window arrived in a round trip, the window becomes the
// number of packets that arrived (quick adapt); marks and refusals of the earlier window are then ignored.
// 2. The specification states its constants in multiples of the MTU, scaled by BDP / 150 KB. Here they are fractions of
//    the BDP, which is the initial window (MP-3), so that small MTUs do not slow down increases. With an MTU of 4 KiB
//    both agree. The base round trip is the smallest one that the stream has measured, including refusals: a trimmed
//    header overtakes the queues.
// 3. BX-11: the specification's smallest window is one packet, and it leaves incasts that exceed a path to the
//    receiver's credits. Without these, 1023 senders with one packet each keep six times the capacity of path and queue
//    in flight, and five of six packets are refused. Therefore, with a window of one packet, each further refusal or
//    timeout doubles the time until the next packet (Swift, SIGCOMM 2020, uses windows below one packet instead), an
//    answer without a mark halves it, and an answer without delay ends it.
#pragma once

#include <cstdint>

namespace rove::transport {

class Nscc {
  public:
    // Handles an acknowledgement; `rtt_ns` is 0 if it carries no measurement. Returns the new window.
    uint32_t on_ack(uint32_t cwnd_fixed, uint32_t bdp, uint32_t max_window, uint64_t rtt_ns, bool marked,
                    uint64_t now_ns);
    // Handles a refused packet. Returns the new window.
    uint32_t on_nack(uint32_t cwnd_fixed, uint32_t max_window, uint64_t rtt_ns, uint64_t now_ns);
    // Handles a packet that was not acknowledged.
    void on_loss() { loss_ = true; }
    // Handles a timer that fires again without an acknowledgement for any of `packets`. Returns the new window.
    uint32_t on_timeout(uint32_t cwnd_fixed, uint32_t packets, uint64_t now_ns) {
        loss_ = true;
        return take_out(cwnd_fixed, packets, now_ns);
    }
    // Returns the interval between two packets, in base round trips, if the window is one packet (BX-11).
    uint32_t round_trips_apart() const { return 1u << apart_; }

    uint64_t base_rtt_ns() const { return base_rtt_ns_; }
    uint64_t target_ns() const { return base_rtt_ns_ * 3 / 4; }
    uint64_t average_delay_ns() const { return average_ns_; }

  private:
    void measure(uint64_t rtt_ns) {
        if (rtt_ns != 0 && (base_rtt_ns_ == 0 || rtt_ns < base_rtt_ns_)) base_rtt_ns_ = rtt_ns;
    }
    void average(uint64_t delay_ns);
    bool quick_adapt(uint32_t& cwnd_fixed, uint32_t max_window, bool late, bool marked, uint64_t now_ns);
    uint32_t take_out(uint32_t cwnd_fixed, uint32_t packets, uint64_t now_ns);
    uint32_t decrease(uint32_t cwnd_fixed, uint64_t now_ns);

    uint64_t base_rtt_ns_ = 0;  // 0: not measured
    uint64_t average_ns_ = 0;   // average queueing delay
    // Increase that is not applied yet: 1/65536 packets, each multiplied by an acknowledged packet.
    uint64_t increase_ = 0;
    uint64_t adjusted_ns_ = 0, decreased_ns_ = 0;
    uint64_t shrunk_ns_ = 0;       // the time when packets were last removed from the window
    uint64_t round_end_ns_ = 0;    // quick adapt: the end of the current round trip
    uint32_t round_packets_ = 0;   // quick adapt: packets that arrived in it
    uint32_t ignore_ = 0;          // answers that belong to the window before quick adapt
    uint32_t since_adjusted_ = 0;  // packets
    uint32_t without_delay_ = 0;   // consecutive packets without delay
    uint8_t apart_ = 0;            // the binary logarithm of round_trips_apart()
    bool loss_ = false;            // a loss since quick adapt was last applied
};

}  // namespace rove::transport
