// SPDX-License-Identifier: Apache-2.0
// One path: what chance does to a frame, then a queue, a transmitter of some rate and a wire of some delay. Units:
// nanoseconds, frames, bytes.
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
    ImpairedPath(const PathSettings& settings, uint64_t seed, DelayedFramePool& shelf, rte_mempool* pool);
    ~ImpairedPath() { cut(); }
    ImpairedPath(const ImpairedPath&) = delete;
    ImpairedPath& operator=(const ImpairedPath&) = delete;

    // Holds for frames that come, and for those that wait for the transmitter. What is on the wire is on its way; but a
    // path that goes down loses that too.
    void set(const PathSettings& settings, uint64_t now_ns);
    PathState state() const { return {settings_, counters_, queue_.size() + wire_.size() + held_count_}; }

    // Takes a frame. What need not wait is appended to `out`.
    void arrive(rte_mbuf* mbuf, uint64_t now_ns, std::vector<rte_mbuf*>& out);
    // When the next frame comes out; UINT64_MAX if none is on its way.
    uint64_t due_ns() const { return wire_.empty() ? UINT64_MAX : wire_.front().due_ns; }
    // That frame. Only when it is due.
    rte_mbuf* take(uint64_t now_ns);

  private:
    struct WorkerQuiesced {
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
    FaultGenerator dice_;
    DelayedFramePool& shelf_;
    rte_mempool* pool_;
    ImpairCounters counters_;
    std::array<WorkerQuiesced, FaultGenerator::kMaxHoldFrames>
        held_{};  // by chance; each that comes lets those before it move on
    uint32_t held_count_ = 0;
    DelayedFramePool::List queue_, wire_;  // empty wire: empty queue
    uint64_t busy_until_ns_ = 0;           // the transmitter
    uint64_t unsent_millibits_ = 0;        // what rounding busy_until_ns_ down left; under a nanosecond's worth
};

}  // namespace rove::datapath
