// SPDX-License-Identifier: Apache-2.0
// T-19: the states of a rail.
#include "tent/rail_health.h"

namespace rove::tent {

bool RailHealth::on_error(uint64_t now_ns) {
    // Errors of slices that were under way when the rail was paused say nothing new.
    if (paused_) return false;
    if (errors_ > 0 && now_ns - last_error_ns_ > config_->error_window_ns) errors_ = 0;
    last_error_ns_ = now_ns;
    if (++errors_ < config_->error_threshold) return false;
    pause(now_ns);
    return true;
}

bool RailHealth::on_down(uint64_t now_ns) {
    if (paused_) return false;
    pause(now_ns);
    return true;
}

bool RailHealth::on_success() {
    const bool was_paused = paused_;
    paused_ = false;
    errors_ = doublings_ = 0;
    next_probe_ns_ = kNever;
    return was_paused;
}

bool RailHealth::take_probe(uint64_t now_ns) {
    if (now_ns < next_probe_ns_) return false;
    doublings_ = std::min(doublings_ + 1, kMaxDoublings);
    next_probe_ns_ = now_ns + (config_->cooldown_ns << doublings_);
    return true;
}

void RailHealth::pause(uint64_t now_ns) {
    paused_ = true;
    ++pauses_;
    next_probe_ns_ = now_ns + config_->cooldown_ns;
}

}  // namespace rove::tent
