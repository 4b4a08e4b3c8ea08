// SPDX-License-Identifier: Apache-2.0
// Whether a rail, a local device and a device of a peer, is to be used (T-19). A transport towards a peer is a rail too
// (T-18). Units: nanoseconds of CLOCK_MONOTONIC. Belongs to one worker.
//
// Errors short of the threshold change nothing. At the threshold the rail is paused; from then on it is probed, first
// after the cooldown, then after twice and four times that, and the first success of a probe or of anything else puts
// it back as if nothing had been. Time runs from probe to probe, so that a probe that vanishes holds up nothing.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

namespace rove::tent {

inline constexpr uint64_t kNever = std::numeric_limits<uint64_t>::max();

// Keys of [transports.rdma]. The documented cooldown of 30 s doubling to 300 s cannot re-admit a rail within 50 ms of
// its return (T-19); a probe is one small packet, so it may come much sooner: after 10, 20, 40, 40, ... ms.
struct RailConfig {
    uint32_t error_threshold = 3;               // rail_error_threshold
    uint64_t error_window_ns = 10'000'000'000;  // rail_error_window_secs: errors further apart do not add up
    uint64_t cooldown_ns = 10'000'000;          // rail_cooldown_secs: first pause
};

class RailHealth {
  public:
    static constexpr uint32_t kMaxDoublings = 2;

    explicit RailHealth(const RailConfig& config) : config_(&config) {}  // `config` outlives it

    bool usable() const { return !paused_; }
    uint32_t errors() const { return errors_; }  // that count towards the threshold
    uint64_t pauses() const { return pauses_; }  // since the start
    // When to probe next; kNever unless paused.
    uint64_t next_probe_ns() const { return next_probe_ns_; }

    // A slice failed or timed out. Returns true if this paused the rail: what is under way there is to be sprayed
    // again.
    bool on_error(uint64_t now_ns);
    // The link went down, or the peer says so: paused at once. Returns false if it was before.
    bool on_down(uint64_t now_ns);
    // A slice or a probe succeeded, or the link came up. Returns true if this ended a pause.
    bool on_success();
    // True if a probe is due: the caller sends one now, and the next is due a longer cooldown later.
    bool take_probe(uint64_t now_ns);

  private:
    void pause(uint64_t now_ns);

    const RailConfig* config_;
    uint64_t last_error_ns_ = 0;
    uint64_t next_probe_ns_ = kNever;
    uint64_t pauses_ = 0;
    uint32_t errors_ = 0;
    uint32_t doublings_ = 0;
    bool paused_ = false;
};

}  // namespace rove::tent
