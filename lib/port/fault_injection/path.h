// SPDX-License-Identifier: Apache-2.0
// One path: random faults, followed by a queue, a transmitter with a rate and a wire with a delay. Units: nanoseconds,
// frames, bytes.
#pragma once

#include <rte_mbuf.h>

#include <array>
#include <cstdint>
#include <vector>

#include "port/fault_injection/counters.h"
#include "port/fault_injection/delayed_frame_pool.h"
#include "port/fault_injection/fault_generator.h"
#include "port/fault_injection/settings.h"

namespace rove::datapath {

class ImpairedPath {
  public:
    ImpairedPath(const PathSettings& settings, uint64_t seed, DelayedFramePool& delayed_frames, rte_mempool* pool);
    ~ImpairedPath() { cut(); }
    ImpairedPath(const ImpairedPath&) = delete;
    ImpairedPath& operator=(const ImpairedPath&) = delete;

    // Changes the settings, for frames that arrive and for those that wait for the transmitter. Frames on the wire stay
    // on their way, unless the path goes down, which loses them too.
    void set(const PathSettings& settings, uint64_t now_ns);
    PathState state() const { return {settings_, counters_, queue_.size() + wire_.size() + held_count_}; }

    // Accepts a frame. A frame that need not wait is appended to `out`.
    void arrive(rte_mbuf* mbuf, uint64_t now_ns, std::vector<rte_mbuf*>& out);
    // Returns when the next frame is due, or UINT64_MAX if no frame is on its way.
    uint64_t due_ns() const { return wire_.empty() ? UINT64_MAX : wire_.front().due_ns; }
    // Returns that frame. It may be called only when the frame is due.
    rte_mbuf* take(uint64_t now_ns);

  private:
    struct HeldFrame {
        rte_mbuf* mbuf;
        uint32_t frames_left;
    };
    void forward(rte_mbuf* mbuf, uint64_t now_ns, std::vector<rte_mbuf*>& out);
    void depart(DelayedFramePool::Frame& frame, uint64_t start_ns);
    void advance(uint64_t now_ns);
    void drop(rte_mbuf* mbuf, ImpairCounter reason);
    void mark(rte_mbuf* mbuf);
    void cut();

    PathSettings settings_;
    FaultGenerator generator_;
    DelayedFramePool& delayed_frames_;
    rte_mempool* pool_;
    ImpairCounters counters_;
    // Held at random. Each frame that arrives lets those before it move on.
    std::array<HeldFrame, FaultGenerator::kMaxHoldFrames> held_{};
    uint32_t held_count_ = 0;
    DelayedFramePool::List queue_, wire_;  // the queue is empty if the wire is
    uint64_t busy_until_ns_ = 0;           // for the transmitter
    uint64_t unsent_millibits_ = 0;        // rest from rounding busy_until_ns_ down, less than a nanosecond's worth
};

}  // namespace rove::datapath
