// SPDX-License-Identifier: Apache-2.0
// The time that a worker's protocol sees. It stops while no answer could arrive. Units: nanoseconds.
//
// Timeouts measure a peer's silence. But on a host with more threads than cores, nothing may arrive for tens or
// hundreds of milliseconds although no peer is silent: this process is off its core, and the frames that arrived wait
// to be read, or the peer is off its core, and our frames wait in a ring that both share. When this counted as silence,
// it ended healthy connections. With 16 QPs in both directions over memif on two busy cores, a QP whose peer was off
// its core for 316 ms had used four of its seven retries, and was retransmitting whole windows into a full ring.
//
// Two kinds of time do not count:
// - Away: rounds were further apart than kMaxStepNs. Only kMaxStepNs of that time counts, plus the time that a thread
//   slept until a frame would have rung, because there was nothing to do. Such a thread does not keep others from
//   making rounds, and the time counts in their rounds too.
// - Stalled: frames are waiting at a port, and no frame left within kLookNs. This time does not count, up to kGoneNs in
//   a row. Beyond that the peer counts as dead (stopped by a debugger, for example), and the timeouts run.
//
// So a timer is late by the time that did not count, and never early. The protocol's measurements exclude that time as
// well.
//
// A peer that has died must still be noticed within four timeouts (IBTA C9-141), even by a process that gets its core
// only for moments. Time for which this process was away is part of the peer's silence if the peer received our frames
// meanwhile: its answers are at our ports then, so everything that has arrived is read before a timeout expires.
// missed_ns() is that time. Each period of it costs a QP one retry at most, however long it was. A stall is not part of
// it, because a peer that does not receive frames cannot answer.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>

namespace rove::datapath {

class ProtocolClock {
  public:
    static constexpr uint64_t kLookNs = 100'000;       // a fraction of the shortest timers
    static constexpr uint64_t kMaxStepNs = 1'000'000;  // twice the longest nap of the progress thread
    static constexpr uint64_t kGoneNs = 2'000'000'000;

    // Returns the protocol's time for a round that begins at `real_ns`. The time never goes back. `is_stalled()` must
    // return true if no port has got rid of a frame since the last call and at least one port has frames. It is called
    // every kLookNs while there are rounds.
    uint64_t begin_round(uint64_t real_ns, auto&& is_stalled) {
        if (real_ns - looked_ns_ >= kLookNs) [[unlikely]]
            look(real_ns, is_stalled());
        return at(real_ns);
    }
    // From `real_ns` on, and until `until_ns` at most, a thread sleeps that any frame would wake, so that time counts.
    // If another thread sleeps already, the rest lasts until the `until_ns` of the later call.
    void begin_rest(uint64_t real_ns, uint64_t until_ns) {
        if (rests_until_ns_ == 0) rest_began_ns_ = rests_from_ns_ = real_ns;
        rests_until_ns_ = until_ns;
    }
    // Records that no thread sleeps any more. The last one slept for `ns`, or 0 if it did not sleep after all. Sleep of
    // other threads that no round has counted is part of missed_ns().
    void end_rest(uint64_t ns) {
        rests_until_ns_ = std::min(rests_until_ns_, rest_began_ns_ + ns);
        rested_ns_ += take_rest(rests_until_ns_);
        rests_until_ns_ = 0;
    }
    // Returns the time since the start that does not count and in which the peers could have answered.
    uint64_t missed_ns() const { return missed_ns_; }
    // Returns the real time of `protocol_ns`, if the clock runs on from `real_ns`, the start of the last round.
    // UINT64_MAX remains UINT64_MAX.
    uint64_t real(uint64_t protocol_ns, uint64_t real_ns) const {
        const uint64_t stall_offset_ns = real_ns - at(real_ns);
        return protocol_ns > UINT64_MAX - stall_offset_ns ? UINT64_MAX : protocol_ns + stall_offset_ns;
    }

  private:
    uint64_t at(uint64_t real_ns) const { return frozen_ ? stood_ns_ : real_ns - uncounted_ns_; }
    void look(uint64_t real_ns, bool stalled) {
        const uint64_t rested_ns = std::exchange(rested_ns_, 0) + take_rest(real_ns);
        const uint64_t step_ns = std::min(real_ns - looked_ns_, kMaxStepNs + rested_ns);
        if (!stalled) missed_ns_ += real_ns - looked_ns_ - step_ns;
        // The last time that was returned lies before the end of this step.
        uncounted_ns_ = frozen_ ? real_ns - stood_ns_ : uncounted_ns_ + (real_ns - looked_ns_ - step_ns);
        looked_ns_ = real_ns;
        stalled_ns_ = stalled ? stalled_ns_ + step_ns : 0;
        stood_ns_ = real_ns - uncounted_ns_;
        frozen_ = stalled && stalled_ns_ < kGoneNs;
    }

    // Returns the part of the rest before `real_ns`, and removes it.
    uint64_t take_rest(uint64_t real_ns) {
        const uint64_t end_ns = std::min(real_ns, rests_until_ns_);
        return end_ns > rests_from_ns_ ? end_ns - std::exchange(rests_from_ns_, end_ns) : 0;
    }

    uint64_t looked_ns_ = 0;
    uint64_t uncounted_ns_ = 0;  // since the start
    uint64_t rested_ns_ = 0;     // since looked_ns_, in rests that have ended
    // The current rest, beginning where counting stopped. There is no rest if its end is not later than that.
    uint64_t rest_began_ns_ = 0, rests_from_ns_ = 0, rests_until_ns_ = 0;
    uint64_t missed_ns_ = 0;
    uint64_t stalled_ns_ = 0;  // duration of the current stall
    bool frozen_ = false;
    uint64_t stood_ns_ = 0;  // the protocol's time while the clock is stopped
};

}  // namespace rove::datapath
