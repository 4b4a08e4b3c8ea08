// SPDX-License-Identifier: Apache-2.0
// The time that a worker's protocol sees: it stands still while no answer could come. Units: nanoseconds.
//
// Timeouts measure a peer's silence. But on a host whose threads outnumber its cores nobody is silent, and still
// nothing comes for tens or hundreds of milliseconds: this process is off its core, and what arrived waits to be read;
// or the peer is, and what we sent waits in a ring that both share. Counted as silence, that ended clean connections:
// with 16 QPs both ways over memif on two busy cores, a QP whose peer was off its core for 316 ms had spent four of its
// seven retries, and was sending whole windows again into a ring that was full.
//
//     away     rounds came further apart than kMaxStepNs: only so much of that time counts, but for what was slept
//              because nothing was there, until a frame would have rung. A thread that sleeps so does not keep others
//              from making rounds, and the time counts in these, too
//     stalled  frames lie at a port, and in kLookNs nobody took one: the time does not count, up to kGoneNs in a row.
//              Beyond that the peer counts as gone (stopped by a debugger, say), and the timeouts run
//
// So a timer runs late by what was not counted, and never early. Nothing that the protocol measures contains it either.
//
// A peer that is gone must be noticed within four timeouts all the same (IBTA C9-141), also by a process that gets its
// core for a moment only. Time that this process was away is part of the peer's silence if the peer took our frames
// meanwhile: its answers lie at our ports then, so all that has arrived is read before a timeout passes. missed_ns() is
// that time; a period of it costs a QP one retry at most, however long it was. A stall is no part of it, since a peer
// that does not take frames cannot answer.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>

namespace rove::datapath {

class ProtocolClock {
  public:
    static constexpr uint64_t kLookNs = 100'000;       // a part of the shortest timers
    static constexpr uint64_t kMaxStepNs = 1'000'000;  // twice the longest nap of the background thread
    static constexpr uint64_t kGoneNs = 2'000'000'000;

    // The protocol's time, for a round that begins at `real_ns`; it never goes back. `is_stalled()`: whether, since it
    // was last asked, no port has got rid of a frame, and one has frames. Called every kLookNs, if there are rounds.
    uint64_t begin_round(uint64_t real_ns, auto&& is_stalled) {
        if (real_ns - looked_ns_ >= kLookNs) [[unlikely]]
            look(real_ns, is_stalled());
        return at(real_ns);
    }
    // From `real_ns` on, until `until_ns` at most, a thread sleeps while frames would end its sleep: that counts. If
    // one sleeps already, it goes on until the later call's `until_ns`.
    void begin_rest(uint64_t real_ns, uint64_t until_ns) {
        if (rests_until_ns_ == 0) rest_began_ns_ = rests_from_ns_ = real_ns;
        rests_until_ns_ = until_ns;
    }
    // None sleeps any more. The last one slept for `ns`; 0: it did not sleep after all. What others had slept before
    // and no round has counted is missed.
    void end_rest(uint64_t ns) {
        rests_until_ns_ = std::min(rests_until_ns_, rest_began_ns_ + ns);
        rested_ns_ += take_rest(rests_until_ns_);
        rests_until_ns_ = 0;
    }
    // The time since the start that does not count, and in which the peers could have answered.
    uint64_t missed_ns() const { return missed_ns_; }
    // When it will be `protocol_ns` if it does not stand still from `real_ns` on, when the last round began; UINT64_MAX
    // stays what it is.
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
        // The last time that was given out lies before the end of that step.
        uncounted_ns_ = frozen_ ? real_ns - stood_ns_ : uncounted_ns_ + (real_ns - looked_ns_ - step_ns);
        looked_ns_ = real_ns;
        stalled_ns_ = stalled ? stalled_ns_ + step_ns : 0;
        stood_ns_ = real_ns - uncounted_ns_;
        frozen_ = stalled && stalled_ns_ < kGoneNs;
    }

    // Returns how much of the rest lies before `real_ns`, and forgets that part.
    uint64_t take_rest(uint64_t real_ns) {
        const uint64_t end_ns = std::min(real_ns, rests_until_ns_);
        return end_ns > rests_from_ns_ ? end_ns - std::exchange(rests_from_ns_, end_ns) : 0;
    }

    uint64_t looked_ns_ = 0;
    uint64_t uncounted_ns_ = 0;  // since the start
    uint64_t rested_ns_ = 0;     // since looked_ns_, in rests that have ended
    // The rest that goes on, from what was counted of it last. None goes on if its end is no later than that.
    uint64_t rest_began_ns_ = 0, rests_from_ns_ = 0, rests_until_ns_ = 0;
    uint64_t missed_ns_ = 0;
    uint64_t stalled_ns_ = 0;  // how long it has been so
    bool frozen_ = false;
    uint64_t stood_ns_ = 0;  // the protocol's time while it stands
};

}  // namespace rove::datapath
