// SPDX-License-Identifier: Apache-2.0
// NSCC, the network-signalled congestion control of the Ultra Ethernet specification 1.0 (section 3.6.13), which is
// SMaRTT-REPS's (Bonato et al., 2024): one window, by marks and by how long packets stood in queues (BX-9).
// Units: nanoseconds, packets; windows in 1/65536 packets where named fixed.
//
// DESIGN NOTES
// 1. What an acknowledgement means depends on its mark and on its queueing delay, compared with the target:
//      no mark, short delay   proportional increase: by how far the delay is below the target; and after a window's
//                             worth of ACKs without any delay, fast increase: a quarter of a packet for each
//      no mark, long delay    fair increase: the same for every flow
//      mark, short delay      nothing: the queue is new, or not ours
//      mark, long delay       multiplicative decrease, by how far the average is above the target, at most by half, and
//                             at most once in a round trip
//    A refused packet (a switch has trimmed it) takes itself out of the window. When there were any, or a delay of four
//    times the target, and less than an eighth of the largest window arrived in a round trip, the window becomes what
//    arrived (quick adapt); marks and refusals of the window before it are then of no account.
// 2. The specification's constants are multiples of the MTU, scaled by BDP / 150 KB. Here they are parts of the BDP,
//    which is what an initial window is (MP-3), so that small MTUs do not make increases slow. With an MTU of 4 KiB it
//    is the same. The base round trip is the least that the stream has measured, also by refusals: a trimmed header
//    overtakes the queues.
// 3. BX-11: the specification's least window is a packet, and leaves incasts that are larger than a path to the
//    receiver's credits. Without those 1023 senders of a packet each keep six times of what path and queue hold on its
//    way, and five of six packets are refused. So with a window of one packet each further refusal or timeout doubles
//    the time until the next one (Swift, SIGCOMM 2020, has windows of less than a packet in the same place), an answer
//    without a mark halves it, and one without delay ends it.
#pragma once

#include <cstdint>

namespace rove::transport {

class Nscc {
  public:
    // An acknowledgement; `rtt_ns` is 0 if it says nothing of that. Returns the new window.
    uint32_t on_ack(uint32_t cwnd_fixed, uint32_t bdp, uint32_t max_window, uint64_t rtt_ns, bool marked,
                    uint64_t now_ns);
    // A packet was refused. Returns the new window.
    uint32_t on_nack(uint32_t cwnd_fixed, uint32_t max_window, uint64_t rtt_ns, uint64_t now_ns);
    // No acknowledgement came for a packet.
    void on_loss() { loss_ = true; }
    // ... nor for any of `packets` when the timer fired again. Returns the new window.
    uint32_t on_timeout(uint32_t cwnd_fixed, uint32_t packets, uint64_t now_ns) {
        loss_ = true;
        return take_out(cwnd_fixed, packets, now_ns);
    }
    // With a window of one packet, how many base round trips lie between that and the next (BX-11).
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
    uint64_t average_ns_ = 0;   // of the queueing delay
    uint64_t increase_ = 0;     // not applied yet: 1/65536 packets, each times a packet that was acknowledged
    uint64_t adjusted_ns_ = 0, decreased_ns_ = 0;
    uint64_t shrunk_ns_ = 0;       // when packets were taken out last
    uint64_t round_end_ns_ = 0;    // quick adapt: of the present round trip
    uint32_t round_packets_ = 0;   // ... that arrived in it
    uint32_t ignore_ = 0;          // answers that belong to the window before quick adapt
    uint32_t since_adjusted_ = 0;  // packets
    uint32_t without_delay_ = 0;   // ... in a row
    uint8_t apart_ = 0;            // round_trips_apart(), as a power of two
    bool loss_ = false;            // since quick adapt was last applied
};

}  // namespace rove::transport
