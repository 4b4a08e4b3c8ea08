// SPDX-License-Identifier: Apache-2.0
#include "transport/congestion/adaptive_window.h"

#include <algorithm>
#include <cmath>

namespace rove::transport {
namespace {

constexpr uint64_t kShortQueueNs = 20'000;       // a shorter delay than this, or a quarter of the base, is no queue
constexpr uint64_t kTargetNs = 100'000;          // the queueing delay of a window of 16 packets that is congestion
constexpr uint32_t kLeastOfTarget = 1 << 13;     // the target is not longer for smaller windows, 1/65536 packets
constexpr uint64_t kNoise = 4;                   // deviations of the round trip that hide a queue
constexpr uint64_t kCarefulNs = 10'000'000'000;  // how long delay counts after a loss by congestion
// A few losses, if they are more than a third of the packets of a round trip, are congestion in any case.
constexpr uint32_t kLossShare = 3, kFewLosses = 8;
constexpr uint32_t kLossLasts = 16;  // round trips after a loss by congestion in which delay may cut below a packet
constexpr uint32_t kLarge = 256;     // a window of more packets grows only with reason
constexpr uint32_t kUsedShare = 4;   // it counts as used if a quarter of it left in the last round trip
constexpr uint32_t kAfterLoss = 70, kAfterDelay = 85;  // percent of the window that remain
// A small window grows by an eighth in each of the two round trips between two cuts, so it loses more.
constexpr uint32_t kSmall = 4 << 16, kAfterDelayIfSmall = 70;

// Returns the queueing delay that a round trip shows.
uint64_t delay_of(const AdaptiveWindow::Round& round) {
    return round.least_ns > round.base_ns ? round.least_ns - round.base_ns : 0;
}

// Returns the queueing delay that counts as congestion. It is longer for a small window (as in Swift: Kumar et al.,
// SIGCOMM 2020): many flows need a longer queue, and of two flows that measure slightly different delays, the one with
// the larger window yields.
uint64_t target_ns(uint32_t cwnd_fixed, uint64_t base_ns) {
    const double packets = std::max(cwnd_fixed, kLeastOfTarget) / 65536.0;
    return std::max(kTargetNs, base_ns / 2) / 2 + static_cast<uint64_t>(2 * kTargetNs / std::sqrt(packets));
}

}  // namespace

// From here the window grows by one packet in a round trip.
uint32_t AdaptiveWindow::on_mark(uint32_t cwnd_fixed) {
    rounds_unmarked_ = 0;
    const uint32_t left =
        cwnd_fixed > kOne ? std::max(cwnd_fixed - kOne / 2, kOne / 2) : std::max(cwnd_fixed / 2, least_);
    last_most_ = left;
    quiet_rounds_ = 0;
    if (starts_slowly()) plan_growth(left);
    return left;
}

uint32_t AdaptiveWindow::on_loss(uint32_t cwnd_fixed, const Round& round, uint64_t now_ns) {
    ++losses_;
    if (marked()) return cwnd_fixed;
    const bool is_known = round.least_ns != 0 && round.base_ns != UINT64_MAX;
    const bool is_queue = !is_known || delay_of(round) > std::max(round.base_ns / 4, kShortQueueNs);
    if (!is_queue && (losses_ < kFewLosses || losses_ * kLossShare <= std::max(acked_, cwnd_fixed >> 16)))
        return cwnd_fixed;
    acked_ = losses_ = 0;
    careful_until_ns_ = now_ns + kCarefulNs;
    careful_ = true;
    rounds_unlost_ = 0;
    return cut(cwnd_fixed, kAfterLoss);
}

uint32_t AdaptiveWindow::end_round(uint32_t cwnd_fixed, uint32_t share_fixed, const Round& round, uint64_t now_ns) {
    // A part that is not used would become a queue as soon as it is.
    if (cwnd_fixed >> 16 > std::max(kUsedShare * acked_, kLarge)) cwnd_fixed = std::max(2 * acked_, kLarge) << 16;
    acked_ = losses_ = 0;
    least_ = std::clamp(share_fixed / 16, kLeast, kOne / 8);
    const bool settled = !settling_ && !marked();
    settling_ = false;
    rounds_unmarked_ = std::min(rounds_unmarked_ + 1, kMarksLast);
    rounds_unlost_ = std::min(rounds_unlost_ + 1, kLossLasts);
    careful_ = now_ns < careful_until_ns_;
    // The least of hundreds of round trips is no noise, and without losses a long queue is the only sign.
    const bool is_large = cwnd_fixed >> 16 > kLarge;
    const uint64_t noise_ns = careful_ ? round.deviation_ns : is_large ? round.base_ns : kNoise * round.deviation_ns;
    if (settled && delay_of(round) > std::max(target_ns(cwnd_fixed, round.base_ns), noise_ns)) {
        const uint32_t left = cut(cwnd_fixed, cwnd_fixed < kSmall ? kAfterDelayIfSmall : kAfterDelay);
        // A receiver that waits for its core looks like a queue, but such a queue does not overflow.
        const uint32_t uncareful = is_large ? kLarge << 16 : share_fixed;
        const uint32_t floor = !careful_ ? uncareful : rounds_unlost_ == kLossLasts ? kOne : 0;
        return std::max(left, std::min(cwnd_fixed, floor));
    }
    if (!starts_slowly() || cwnd_fixed >= last_most_) plan_growth(cwnd_fixed);
    return cwnd_fixed;
}

uint32_t AdaptiveWindow::on_timeout(uint32_t cwnd_fixed) {
    return cut(cwnd_fixed, 50);
}

void AdaptiveWindow::restart(uint32_t cwnd_fixed) {
    if (!starts_slowly()) last_most_ = std::max(cwnd_fixed, last_most_) / 2;
    growth_ = kOne;
    losses_ = 0;
}

uint32_t AdaptiveWindow::cut(uint32_t cwnd_fixed, uint32_t percent) {
    last_most_ = cwnd_fixed;
    quiet_rounds_ = 0;
    settling_ = true;
    const auto left = std::max(static_cast<uint32_t>(uint64_t{cwnd_fixed} * percent / 100), least_);
    plan_growth(left);
    return left;
}

// Sets the growth for the next round trip.
void AdaptiveWindow::plan_growth(uint32_t cwnd_fixed) {
    const uint32_t least = careful_ ? kOne / 2 : kOne;
    const uint32_t by = std::min(least + quiet_rounds_ * (kOne / 8), std::max(cwnd_fixed / 8, least));
    ++quiet_rounds_;
    if (cwnd_fixed < kOne) {
        growth_ = std::min((marked() ? cwnd_fixed : cwnd_fixed / 8) + kOne / 32, kOne - 1);
        return;
    }
    growth_ = static_cast<uint32_t>(std::min<uint64_t>((uint64_t{by} << 16) / cwnd_fixed, kOne - 1));
}

}  // namespace rove::transport
