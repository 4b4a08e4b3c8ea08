// SPDX-License-Identifier: Apache-2.0
#include "transport/congestion/dcqcn.h"

namespace rove::transport {

namespace {
constexpr uint32_t kOne = 1u << 16;             // 1.0 in 16.16
constexpr uint32_t kG = kOne / 256;             // the paper's g = 1/256
}  // namespace

const char* invalid(const DcqcnConfig& config) {
    if (config.min_rate_bytes_per_s > config.line_rate_bytes_per_s)
        return "min_rate_bytes_per_s: at most line_rate_bytes_per_s";
    if (config.additive_bytes_per_s > config.line_rate_bytes_per_s)
        return "additive_bytes_per_s: at most line_rate_bytes_per_s";
    return nullptr;
}

void Dcqcn::on_cnp(const DcqcnConfig& config, uint64_t now_ns) {
    if (!limited_) {
        limited_ = true;
        rate_ = config.line_rate_bytes_per_s;
        alpha_ = kOne;
        next_send_ns_ = now_ns;
    } else {
        catch_up(config, now_ns);
    }
    // Equation 1: R_T = R_C, R_C = R_C (1 - alpha/2), alpha = (1 - g) alpha + g.
    target_ = rate_;
    rate_ = std::max(config.min_rate_bytes_per_s,
                     rate_ - static_cast<uint64_t>((static_cast<__uint128_t>(rate_) * alpha_) >> 17));
    alpha_ = static_cast<uint32_t>((static_cast<uint64_t>(alpha_) * (kOne - kG)) >> 16) + kG;
    last_alpha_ns_ = last_rate_ns_ = now_ns;
    bytes_ = 0;
    time_steps_ = byte_steps_ = 0;
}

// Applies the timers that have passed since the last call: nothing else looks at the rate in between.
void Dcqcn::catch_up(const DcqcnConfig& config, uint64_t now_ns) {
    while (limited_ && now_ns - last_alpha_ns_ >= config.alpha_timer_ns) {
        last_alpha_ns_ += config.alpha_timer_ns;
        alpha_ = static_cast<uint32_t>((static_cast<uint64_t>(alpha_) * (kOne - kG)) >> 16);     // equation 2
        if (alpha_ == 0) {
            last_alpha_ns_ = now_ns;
            break;
        }
    }
    while (limited_ && now_ns - last_rate_ns_ >= config.rate_timer_ns) {
        last_rate_ns_ += config.rate_timer_ns;
        ++time_steps_;
        increase(config);
    }
}

void Dcqcn::increase(const DcqcnConfig& config) {
    const uint32_t f = config.fast_recovery_steps;
    if (std::max(time_steps_, byte_steps_) > f) {
        // Beyond fast recovery the target grows: additively, or by the hyper step once both counters are past F.
        target_ += std::min(time_steps_, byte_steps_) > f ? config.hyper_bytes_per_s : config.additive_bytes_per_s;
        target_ = std::min(target_, config.line_rate_bytes_per_s);
    }
    rate_ = (target_ + rate_) / 2;              // equation 3
    // Back at line rate the flow is free again; the halving above only ever approaches it.
    if (rate_ >= config.line_rate_bytes_per_s - config.additive_bytes_per_s) limited_ = false;
}

void Dcqcn::on_sent(const DcqcnConfig& config, uint32_t bytes, uint64_t now_ns) {
    catch_up(config, now_ns);
    bytes_ += bytes;
    if (bytes_ >= config.byte_counter) {
        bytes_ -= config.byte_counter;
        ++byte_steps_;
        increase(config);
    }
    // Pace from the previous slot, so that a late driver does not lose rate, but never save up more than one round.
    const uint64_t from = std::max(next_send_ns_, now_ns - std::min<uint64_t>(now_ns, 10'000));
    next_send_ns_ = from + bytes * 1'000'000'000ull / std::max<uint64_t>(rate_, 1);
}

}  // namespace rove::transport
