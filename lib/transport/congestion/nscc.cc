// SPDX-License-Identifier: Apache-2.0
#include "transport/congestion/nscc.h"

#include <algorithm>

namespace rove::transport {
namespace {

constexpr uint64_t kOnePacket = 1u << 16;
// Fractions of the BDP in 1/65536: 5, 3 and 0.15 packets of 4 KiB in 150 KB.
constexpr uint64_t kFair = 8948;          // fair increase in a round trip
constexpr uint64_t kProportional = 5369;  // proportional increase without delay; alpha with a target of 9 us
constexpr uint64_t kLeast = 268;          // eta: the increase in each round trip, whatever the answers
constexpr uint32_t kAdjustPackets = 8;    // increases are applied after this many packets
constexpr uint32_t kAverage = 80;         // weight 0.0125 of a new sample in the average delay
constexpr uint32_t kQuickShare = 8;       // quick adapt: less than this part of the largest window arrived
constexpr uint64_t kQuickTargets = 4;     // quick adapt: and a packet was lost, or late by this many targets
constexpr uint8_t kMaxApart = 4;          // 16 base round trips
constexpr uint64_t kFastSlackShare = 8;   // 1/8 of the base round trip: fast increase counts a smaller delay as none

}  // namespace

uint32_t Nscc::on_ack(uint32_t cwnd_fixed, uint32_t bdp, uint32_t max_window, uint64_t rtt_ns, bool marked,
                      uint64_t now_ns) {
    const uint32_t most = max_window << 16;
    measure(rtt_ns);
    if (base_rtt_ns_ == 0) return cwnd_fixed;
    ++round_packets_;
    const uint64_t delay_ns = rtt_ns != 0 ? rtt_ns - base_rtt_ns_ : average_ns_;
    const uint64_t target = std::max<uint64_t>(target_ns(), 1);
    // A long delay without a mark belongs to a queue that is about to be empty.
    if (rtt_ns != 0) average(!marked && delay_ns > target ? base_rtt_ns_ / 4 : delay_ns);
    if (cwnd_fixed <= kOnePacket && apart_ != 0) {
        if (!marked) apart_ = delay_ns < target ? 0 : apart_ - 1;
        return cwnd_fixed;
    }
    if (quick_adapt(cwnd_fixed, max_window, delay_ns > kQuickTargets * target, marked, now_ns)) return cwnd_fixed;
    if (rtt_ns == 0) return marked ? decrease(cwnd_fixed, now_ns) : cwnd_fixed;
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

uint32_t Nscc::on_nack(uint32_t cwnd_fixed, uint32_t max_window, uint64_t rtt_ns, uint64_t now_ns) {
    measure(rtt_ns);
    loss_ = true;
    if (base_rtt_ns_ != 0) {
        average(base_rtt_ns_);  // a full queue takes a base round trip to drain
        if (cwnd_fixed > kOnePacket && quick_adapt(cwnd_fixed, max_window, false, true, now_ns)) return cwnd_fixed;
    }
    return take_out(cwnd_fixed, 1, now_ns);
}

uint32_t Nscc::take_out(uint32_t cwnd_fixed, uint32_t packets, uint64_t now_ns) {
    if (cwnd_fixed > kOnePacket) {
        apart_ = 0;
        shrunk_ns_ = now_ns;
        return static_cast<uint32_t>(cwnd_fixed - std::min<uint64_t>(packets * kOnePacket, cwnd_fixed - kOnePacket));
    }
    // Doubles the interval once for each packet that departed with it; packets of the earlier, larger window are
    // answered later as well.
    if (apart_ < kMaxApart && now_ns - shrunk_ns_ >= base_rtt_ns_ << apart_) {
        ++apart_;
        shrunk_ns_ = now_ns;
    }
    return cwnd_fixed;
}

void Nscc::average(uint64_t delay_ns) {
    average_ns_ = (average_ns_ * (kAverage - 1) + delay_ns) / kAverage;
}

// Returns true if this answer has no other effect.
bool Nscc::quick_adapt(uint32_t& cwnd_fixed, uint32_t max_window, bool late, bool marked, uint64_t now_ns) {
    if (ignore_ != 0) {
        --ignore_;
        if (marked) return true;
    }
    if (now_ns < round_end_ns_) return false;
    const bool adapts = round_end_ns_ != 0 && (loss_ || late) && round_packets_ < max_window / kQuickShare;
    if (adapts) {
        ignore_ = cwnd_fixed >> 16;
        cwnd_fixed = std::min(cwnd_fixed, std::max(round_packets_, 1u) << 16);
        loss_ = false;
        increase_ = since_adjusted_ = 0;
    }
    round_packets_ = 0;
    round_end_ns_ = now_ns + base_rtt_ns_ + target_ns();
    return adapts;
}

// Decreases multiplicatively, with gamma = 0.8.
uint32_t Nscc::decrease(uint32_t cwnd_fixed, uint64_t now_ns) {
    const uint64_t target = target_ns();
    if (average_ns_ <= target || now_ns - decreased_ns_ < base_rtt_ns_) return cwnd_fixed;
    decreased_ns_ = now_ns;
    const uint64_t by = std::min<uint64_t>(cwnd_fixed * (average_ns_ - target) / average_ns_ * 4 / 5, cwnd_fixed / 2);
    return static_cast<uint32_t>(std::max<uint64_t>(cwnd_fixed - by, kOnePacket));
}

}  // namespace rove::transport
