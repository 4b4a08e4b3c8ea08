// SPDX-License-Identifier: Apache-2.0
#include "transport/paths/congestion_control.h"

#include <algorithm>

namespace rove::transport {
namespace {

constexpr uint32_t kOne = 1u << 16;  // one packet in fixed point

// BX-12.
class AdaptiveControl final : public CongestionControl {
  public:
    explicit AdaptiveControl(const PathsConfig& config) : initial_(config.initial_window), most_(config.max_window) {}

    void start(ControlState& state) const override { state.set(AdaptiveWindow{}); }
    bool is_clocked() const override { return true; }
    uint32_t on_answer(ControlState& state, uint32_t cwnd_fixed, const Answer& answer) const override {
        if (answer.marked) return of(state).on_mark(cwnd_fixed);
        if (answer.refused || !answer.may_grow) return cwnd_fixed;
        return of(state).on_ack(cwnd_fixed, answer.packets, most_);
    }
    uint32_t on_slow_ack(ControlState& state, uint32_t cwnd_fixed, bool marked) const override {
        return marked ? of(state).on_mark(cwnd_fixed) : cwnd_fixed;
    }
    uint32_t on_loss(ControlState& state, uint32_t cwnd_fixed, const Round& round, uint64_t now_ns) const override {
        return of(state).on_loss(cwnd_fixed, round, now_ns);
    }
    void on_false_alarm(ControlState& state) const override { of(state).on_false_alarm(); }
    uint32_t on_timeout(ControlState& state, uint32_t cwnd_fixed, uint32_t, uint64_t) const override {
        return of(state).on_timeout(cwnd_fixed);
    }
    uint32_t on_round(ControlState& state, uint32_t cwnd_fixed, uint32_t busy, const Round& round,
                      uint64_t now_ns) const override {
        return of(state).end_round(cwnd_fixed, AdaptiveWindow::share(initial_ * kOne, busy), round, now_ns);
    }
    void on_pause(ControlState& state, uint32_t cwnd_fixed) const override { of(state).restart(cwnd_fixed); }

  private:
    static AdaptiveWindow& of(ControlState& state) { return state.as<AdaptiveWindow>(); }

    const uint32_t initial_, most_;  // packets
};

// MP-RDMA's own: MP-1, MP-4, MP-7.
class MpRdmaControl final : public CongestionControl {
  public:
    explicit MpRdmaControl(const PathsConfig& config)
        : initial_(config.initial_window), most_fixed_(config.max_window * kOne) {}

    void start(ControlState&) const override {}
    bool is_clocked() const override { return true; }
    // The window grows by 1/cwnd for each ACK, in one step for up to a window's worth of them.
    uint32_t on_answer(ControlState&, uint32_t cwnd_fixed, const Answer& answer) const override {
        if (answer.marked) return reduced(cwnd_fixed, kOne / 2, kOne);
        if (answer.refused || !answer.may_grow) return cwnd_fixed;
        for (uint32_t acks = answer.packets; acks != 0 && cwnd_fixed < most_fixed_;) {
            const uint32_t step = std::min(acks, cwnd_fixed >> 16);
            const auto by = static_cast<uint32_t>((uint64_t{step} << 32) / cwnd_fixed);
            cwnd_fixed = std::min(cwnd_fixed + by, most_fixed_);
            acks -= step;
        }
        return cwnd_fixed;
    }
    uint32_t on_slow_ack(ControlState&, uint32_t cwnd_fixed, bool) const override {
        return reduced(cwnd_fixed, kOne, kOne);
    }
    uint32_t on_unused_acks(ControlState&, uint32_t cwnd_fixed, uint32_t acks) const override {
        return reduced(cwnd_fixed, acks * kOne, initial_ * kOne);
    }
    uint32_t on_timeout(ControlState&, uint32_t cwnd_fixed, uint32_t, uint64_t) const override {
        return reduced(cwnd_fixed, cwnd_fixed / 2, kOne);
    }

  private:
    static uint32_t reduced(uint32_t cwnd_fixed, uint32_t by_fixed, uint32_t floor_fixed) {
        if (cwnd_fixed <= floor_fixed) return cwnd_fixed;
        return std::max(cwnd_fixed - std::min(by_fixed, cwnd_fixed), floor_fixed);
    }

    const uint32_t initial_;  // packets
    const uint32_t most_fixed_;
};

// BX-6: a rate within a window that stays.
class DcqcnControl final : public CongestionControl {
  public:
    explicit DcqcnControl(const DcqcnConfig& config) : config_(config) {}

    void start(ControlState& state) const override { state.set(DcqcnState{}); }
    uint32_t on_answer(ControlState& state, uint32_t cwnd_fixed, const Answer& answer) const override {
        auto& own = state.as<DcqcnState>();
        if (!answer.marked && !(config_.disorder_is_cnp && answer.out_of_order)) return cwnd_fixed;
        if (own.notified_ns != 0 && answer.now_ns - own.notified_ns < config_.cnp_interval_ns) return cwnd_fixed;
        own.notified_ns = answer.now_ns;
        own.rate.on_cnp(config_, answer.now_ns);
        return cwnd_fixed;
    }
    uint64_t not_before_ns(const ControlState& state) const override {
        const Dcqcn& rate = state.as<DcqcnState>().rate;
        return rate.limited() ? rate.next_send_ns() : 0;
    }
    void on_sent(ControlState& state, uint32_t bytes, uint64_t now_ns) const override {
        Dcqcn& rate = state.as<DcqcnState>().rate;
        if (rate.limited()) rate.on_sent(config_, bytes, now_ns);
    }

  private:
    const DcqcnConfig config_;
};

// BX-9, BX-11.
class NsccControl final : public CongestionControl {
  public:
    explicit NsccControl(const PathsConfig& config)
        : initial_(config.initial_window),
          most_(std::min(config.initial_window * 3 / 2, config.max_window)),
          min_rto_ns_(config.min_rto_ns) {}

    void start(ControlState& state) const override { state.set(Nscc{}); }
    bool repeats_within_window() const override { return true; }
    uint32_t on_answer(ControlState& state, uint32_t cwnd_fixed, const Answer& answer) const override {
        if (answer.refused) return of(state).on_nack(cwnd_fixed, most_, answer.rtt_ns, answer.now_ns);
        return of(state).on_ack(cwnd_fixed, initial_, most_, answer.rtt_ns, answer.marked, answer.now_ns);
    }
    void on_failure(ControlState& state) const override { of(state).on_loss(); }
    uint32_t on_timeout(ControlState& state, uint32_t cwnd_fixed, uint32_t packets, uint64_t now_ns) const override {
        return of(state).on_timeout(cwnd_fixed, packets, now_ns);
    }
    uint64_t interval_ns(const ControlState& state, uint32_t cwnd_fixed) const override {
        const auto& nscc = state.as<Nscc>();
        if (nscc.round_trips_apart() == 1 || cwnd_fixed != kOne) return 0;
        return (nscc.base_rtt_ns() != 0 ? nscc.base_rtt_ns() : min_rto_ns_) * nscc.round_trips_apart();
    }
    uint64_t base_rtt_ns(const ControlState& state) const override { return state.as<Nscc>().base_rtt_ns(); }

  private:
    static Nscc& of(ControlState& state) { return state.as<Nscc>(); }

    // Packets. The largest window is one and a half bandwidth-delay products; packets in flight may reach further if
    // one on a slow path is missing.
    const uint32_t initial_, most_;
    const uint64_t min_rto_ns_;
};

// The initial window.
class FixedControl final : public CongestionControl {
  public:
    void start(ControlState&) const override {}
    uint32_t on_answer(ControlState&, uint32_t cwnd_fixed, const Answer&) const override { return cwnd_fixed; }
};

}  // namespace

std::unique_ptr<CongestionControl> make_control(const PathsConfig& config, const DcqcnConfig& dcqcn) {
    switch (config.control) {
        case PathsConfig::Control::kMpRdma:
            return std::make_unique<MpRdmaControl>(config);
        case PathsConfig::Control::kDcqcn:
            return std::make_unique<DcqcnControl>(dcqcn);
        case PathsConfig::Control::kNscc:
            return std::make_unique<NsccControl>(config);
        case PathsConfig::Control::kFixed:
            return std::make_unique<FixedControl>();
        case PathsConfig::Control::kAdaptive:
            break;
    }
    return std::make_unique<AdaptiveControl>(config);
}

}  // namespace rove::transport
