// SPDX-License-Identifier: Apache-2.0
#include "transport/congestion/dcqcn.h"

namespace rove::transport {

namespace {
constexpr uint32_t kOne = 1u << 16;  // 1.0 in 16.16
constexpr uint32_t kG = kOne / 256;  // g = 1/256 of the paper

constexpr uint32_t lowered(uint32_t alpha) {
    return static_cast<uint32_t>((uint64_t{alpha} * (kOne - kG)) >> 16);
}
constexpr uint32_t raised(uint32_t alpha) {
    return lowered(alpha) + kG;
}
}  // namespace

const char* invalid(const DcqcnConfig& config) {
    if (config.line_rate_bytes_per_s == 0) return nullptr;
    if (config.min_rate_bytes_per_s > config.line_rate_bytes_per_s)
        return "min_rate_bytes_per_s: at most line_rate_bytes_per_s";
    if (config.additive_bytes_per_s > config.line_rate_bytes_per_s)
        return "additive_bytes_per_s: at most line_rate_bytes_per_s";
    return nullptr;
}

void Dcqcn::on_cnp(const DcqcnConfig& config, uint64_t now_ns) {
    const bool first = !limited_;
    if (first) {
        limited_ = true;
        target_ = rate_ = line_rate(config);
        alpha_ = kOne;
        next_send_ns_ = last_alpha_ns_ = last_rate_ns_ = last_cut_ns_ = now_ns;
    } else {
        catch_up(config, now_ns);
    }
    if (config.reaction == DcqcnReaction::kHpcc) {
        cnp_since_alpha_ = !first;
        if (!cnp_since_cut_) {
            last_cut_ns_ += (now_ns - last_cut_ns_) / config.decrease_interval_ns * config.decrease_interval_ns;
            cnp_since_cut_ = true;
        }
        return;
    }
    // Equation 1: R_T = R_C, R_C = R_C (1 - alpha/2), alpha = (1 - g) alpha + g.
    target_ = rate_;
    cut(config, now_ns);
    alpha_ = raised(alpha_);
    last_alpha_ns_ = now_ns;
}

void Dcqcn::cut(const DcqcnConfig& config, uint64_t now_ns) {
    rate_ = std::max(std::min(config.min_rate_bytes_per_s, line_rate(config)),
                     rate_ - static_cast<uint64_t>((static_cast<__uint128_t>(rate_) * alpha_) >> 17));
    last_rate_ns_ = now_ns;
    bytes_ = 0;
    time_steps_ = byte_steps_ = 0;
}

// Applies the timers that have expired since the last call. Nothing reads the rate in between.
void Dcqcn::catch_up(const DcqcnConfig& config, uint64_t now_ns) {
    if (config.reaction == DcqcnReaction::kHpcc) return catch_up_hpcc(config, now_ns);
    while (limited_ && now_ns - last_alpha_ns_ >= config.alpha_timer_ns) {
        last_alpha_ns_ += config.alpha_timer_ns;
        alpha_ = lowered(alpha_);  // equation 2
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

// Like catch_up(), with a clock that cuts. Simultaneous events apply in the order alpha, cut, increase.
void Dcqcn::catch_up_hpcc(const DcqcnConfig& config, uint64_t now_ns) {
    if (alpha_ == 0 && !cnp_since_alpha_)  // alpha has no further to fall
        last_alpha_ns_ += (now_ns - last_alpha_ns_) / config.alpha_timer_ns * config.alpha_timer_ns;
    for (;;) {
        const uint64_t alpha_ns = last_alpha_ns_ + config.alpha_timer_ns;
        const uint64_t cut_ns = cnp_since_cut_ ? last_cut_ns_ + config.decrease_interval_ns : UINT64_MAX;
        const uint64_t rate_ns = last_rate_ns_ + config.rate_timer_ns;
        if (std::min({alpha_ns, cut_ns, rate_ns}) > now_ns) return;
        if (alpha_ns <= std::min(cut_ns, rate_ns)) {
            alpha_ = cnp_since_alpha_ ? raised(alpha_) : lowered(alpha_);
            cnp_since_alpha_ = false;
            last_alpha_ns_ = alpha_ns;
        } else if (cut_ns <= rate_ns) {
            if (time_steps_ != 0) target_ = rate_;
            cut(config, cut_ns);
            cnp_since_cut_ = false;
            last_cut_ns_ = cut_ns;
        } else {
            last_rate_ns_ = rate_ns;
            ++time_steps_;
            increase(config);
        }
    }
}

void Dcqcn::increase(const DcqcnConfig& config) {
    const uint32_t f = config.fast_recovery_steps;
    const bool is_paper = config.reaction == DcqcnReaction::kPaper;
    if (std::max(time_steps_, byte_steps_) > f) {
        // After fast recovery the target grows: additively, or by the hyper step once both counters have passed F.
        const bool hyper = is_paper ? std::min(time_steps_, byte_steps_) > f : time_steps_ > f + 1;
        target_ += hyper ? config.hyper_bytes_per_s : config.additive_bytes_per_s;
        target_ = std::min(target_, line_rate(config));
    }
    rate_ = (target_ + rate_) / 2;  // equation 3
    // Back at line rate the flow is free again, because the halving above only approaches that rate.
    if (is_paper && rate_ + config.additive_bytes_per_s >= line_rate(config)) limited_ = false;
}

void Dcqcn::on_sent(const DcqcnConfig& config, uint32_t bytes, uint64_t now_ns) {
    catch_up(config, now_ns);
    bytes_ += bytes;
    if (config.reaction == DcqcnReaction::kPaper && bytes_ >= config.byte_counter) {
        bytes_ -= config.byte_counter;
        ++byte_steps_;
        increase(config);
    }
    // Pacing counts from the previous slot, so that a late driver loses no rate, but at most one round is saved up.
    const uint64_t most_saved_ns = config.reaction == DcqcnReaction::kHpcc ? 0 : 10'000;
    const uint64_t from = std::max(next_send_ns_, now_ns - std::min<uint64_t>(now_ns, most_saved_ns));
    next_send_ns_ = from + bytes * 1'000'000'000ull / std::max<uint64_t>(rate_, 1);
}

}  // namespace rove::transport
