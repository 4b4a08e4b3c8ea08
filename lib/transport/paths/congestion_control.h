// SPDX-License-Identifier: Apache-2.0
// The interface of mp's congestion controls. A control decides how many packets of a stream may be in flight, and when
// they leave. class Paths asks it what becomes of the window at each event. Windows named fixed are in 1/65536 packets,
// times in nanoseconds.
//
// A new control is a class in congestion_control.cc, a name in PathsConfig::Control, and a line in make_control().
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <type_traits>

#include "transport/congestion/adaptive_window.h"
#include "transport/congestion/dcqcn.h"
#include "transport/congestion/nscc.h"
#include "transport/paths/config.h"

namespace rove::transport {

// The state of a stream that belongs to its control: an object of the control's own type.
class ControlState {
  public:
    template <class T>
    void set(const T& value) {
        static_assert(sizeof(T) <= kBytes && std::is_trivially_copyable_v<T> && std::is_trivially_destructible_v<T>);
        new (bytes_.data()) T(value);
    }
    template <class T>
    T& as() {
        return *std::launder(reinterpret_cast<T*>(bytes_.data()));
    }
    template <class T>
    const T& as() const {
        return *std::launder(reinterpret_cast<const T*>(bytes_.data()));
    }

  private:
    static constexpr size_t kBytes = 88;
    alignas(8) std::array<std::byte, kBytes> bytes_;
};

// One object serves all streams of a worker. Functions that return a window return the stream's new one; the default is
// the old one.
class CongestionControl {
  public:
    // One or more acknowledgements that say the same.
    struct Answer {
        uint32_t packets = 1;
        bool marked = false;        // the network reports congestion
        bool refused = false;       // a NACK or an error
        bool out_of_order = false;  // an older packet is missing
        bool may_grow = true;       // false: the stream does not use the window that it has (paths.h, note 3)
        uint64_t rtt_ns = 0;        // 0: not measured
        uint64_t now_ns = 0;
    };
    using Round = AdaptiveWindow::Round;

    virtual ~CongestionControl() = default;
    virtual void start(ControlState& state) const = 0;
    // Returns true if each ACK lets out the next packet, on its own path (MP-3), unless PathsConfig::choice has another
    // path for it. Otherwise a packet leaves when the window has room.
    virtual bool is_clocked() const { return false; }
    // Returns true if repetitions wait for the window, too (BX-9).
    virtual bool repeats_within_window() const { return false; }

    virtual uint32_t on_answer(ControlState& state, uint32_t cwnd_fixed, const Answer& answer) const = 0;
    // An ACK came on a path that is slower than the others (MP-4), instead of on_answer().
    virtual uint32_t on_slow_ack(ControlState&, uint32_t cwnd_fixed, [[maybe_unused]] bool marked) const {
        return cwnd_fixed;
    }
    // `acks` ACKs were lost because the program had nothing to send (MP-7).
    virtual uint32_t on_unused_acks(ControlState&, uint32_t cwnd_fixed, [[maybe_unused]] uint32_t acks) const {
        return cwnd_fixed;
    }
    // A packet that left after the last reduction is lost.
    virtual uint32_t on_loss(ControlState&, uint32_t cwnd_fixed, const Round&, [[maybe_unused]] uint64_t now_ns) const {
        return cwnd_fixed;
    }
    // A packet that was taken for lost has arrived.
    virtual void on_false_alarm(ControlState&) const {}
    // Packets were lost and no later packet of their path has shown it.
    virtual void on_failure(ControlState&) const {}
    // The timer has fired again without an answer, with `packets` in flight.
    virtual uint32_t on_timeout(ControlState&, uint32_t cwnd_fixed, [[maybe_unused]] uint32_t packets,
                                [[maybe_unused]] uint64_t now_ns) const {
        return cwnd_fixed;
    }
    // A round trip has ended; `busy` streams to the same peer have packets in flight.
    virtual uint32_t on_round(ControlState&, uint32_t cwnd_fixed, [[maybe_unused]] uint32_t busy, const Round&,
                              [[maybe_unused]] uint64_t now_ns) const {
        return cwnd_fixed;
    }
    // The stream begins again after a pause (MP-8), at which it had this window.
    virtual void on_pause(ControlState&, [[maybe_unused]] uint32_t cwnd_fixed) const {}

    // Returns the time before which no packet may leave (BX-6).
    virtual uint64_t not_before_ns(const ControlState&) const { return 0; }
    // A packet left. Called only without ACK clocking.
    virtual void on_sent(ControlState&, [[maybe_unused]] uint32_t bytes, [[maybe_unused]] uint64_t now_ns) const {}
    // Returns the mean time between two packets if the window does not space them by itself (BX-11), or 0.
    virtual uint64_t interval_ns(const ControlState&, [[maybe_unused]] uint32_t cwnd_fixed) const { return 0; }
    // Returns the least round trip that the control has seen; 0: none.
    virtual uint64_t base_rtt_ns(const ControlState&) const { return 0; }
};

// The state of a stream with PathsConfig::Control::kDcqcn. With kAdaptive it is an AdaptiveWindow, with kNscc an Nscc.
struct DcqcnState {
    Dcqcn rate;
    uint64_t notified_ns = 0;  // when `rate` was last told about a mark
};

std::unique_ptr<CongestionControl> make_control(const PathsConfig& config, const DcqcnConfig& dcqcn);

}  // namespace rove::transport
