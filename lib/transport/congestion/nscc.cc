// SPDX-License-Identifier: Apache-2.0
#include "transport/congestion/nscc.h"

#include <algorithm>

namespace rove::transport {
namespace {

constexpr uint64_t kOnePacket = 1u << 16;
// Parts of the BDP, in 1/65536: 5, 3 and 0.15 packets of 4 KiB of 150 KB.
constexpr uint64_t kFair = 8948;          // of fair increase, a round trip
constexpr uint64_t kProportional = 5369;  // ... of proportional increase without delay; alpha with a target of 9 us
constexpr uint64_t kLeast = 268;          // eta: each round trip, whatever was said
constexpr uint32_t kAdjustPackets = 8;    // increases are applied after so many
constexpr uint32_t kAverage = 80;         // weight of the delay's average: 0.0125
constexpr uint32_t kQuickShare = 8;       // quick adapt: less than such a part of the window arrived
constexpr uint64_t kFastSlackShare = 8;   // of the base round trip: less delay than that is none, of fast increase

}  // namespace

uint32_t Nscc::on_ack(uint32_t cwnd_fixed, uint32_t bdp, uint32_t max_window, uint64_t rtt_ns, bool marked,
                      uint64_t now_ns) {
    const uint32_t most = max_window << 16;
    if (rtt_ns != 0) base_rtt_ns_ = base_rtt_ns_ == 0 ? rtt_ns : std::min(base_rtt_ns_, rtt_ns);
    if (base_rtt_ns_ == 0) return cwnd_fixed;
    if (round_end_ns_ == 0) round_end_ns_ = now_ns + base_rtt_ns_ + target_ns();
    ++round_packets_;
    if (now_ns >= round_end_ns_) {  // quick adapt
        const uint32_t arrived = std::max(round_packets_, 1u);
        if (loss_ && arrived < (cwnd_fixed >> 16) / kQuickShare) {
            ignore_ = cwnd_fixed >> 16;
            cwnd_fixed = arrived << 16;
            increase_ = 0;
            decreased_ns_ = now_ns;
        }
        loss_ = false;
        round_packets_ = 0;
        round_end_ns_ = now_ns + base_rtt_ns_ + target_ns();
    }
    if (ignore_ != 0) {
        --ignore_;
        return cwnd_fixed;
    }
    if (rtt_ns == 0) return marked ? decrease(cwnd_fixed, now_ns) : cwnd_fixed;
    const uint64_t delay_ns = rtt_ns - base_rtt_ns_, target = std::max<uint64_t>(target_ns(), 1);
    average_ns_ = (average_ns_ * (kAverage - 1) + delay_ns) / kAverage;
    ++since_adjusted_;
    without_delay_ = !marked && delay_ns < base_rtt_ns_ / kFastSlackShare ? without_delay_ + 1 : 0;
    if (without_delay_ > cwnd_fixed >> 16) return std::min<uint32_t>(cwnd_fixed + kOnePacket / 4, most);
    if (!marked) {
        increase_ += delay_ns < target ? bdp * kProportional * (target - delay_ns) / target : bdp * kFair;
    } else if (delay_ns >= target) {
        cwnd_fixed = decrease(cwnd_fixed, now_ns);
    }
    const bool round_passed = now_ns - adjusted_ns_ > base_rtt_ns_;
    if (since_adjusted_ < kAdjustPackets && !round_passed) return cwnd_fixed;
    const uint64_t by = (increase_ << 16) / std::max<uint64_t>(cwnd_fixed, kOnePacket);
    cwnd_fixed = static_cast<uint32_t>(std::min<uint64_t>(cwnd_fixed + by + (round_passed ? bdp * kLeast : 0), most));
    if (round_passed) adjusted_ns_ = now_ns;
    increase_ = since_adjusted_ = 0;
    return cwnd_fixed;
}

// gamma is 0.8.
uint32_t Nscc::decrease(uint32_t cwnd_fixed, uint64_t now_ns) {
    const uint64_t target = target_ns();
    if (average_ns_ <= target || now_ns - decreased_ns_ < base_rtt_ns_) return cwnd_fixed;
    decreased_ns_ = now_ns;
    const uint64_t by = std::min<uint64_t>(cwnd_fixed * (average_ns_ - target) / average_ns_ * 4 / 5, cwnd_fixed / 2);
    return static_cast<uint32_t>(std::max<uint64_t>(cwnd_fixed - by, kOnePacket));
}

}  // namespace rove::transport
