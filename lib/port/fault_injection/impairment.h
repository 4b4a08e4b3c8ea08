// SPDX-License-Identifier: Apache-2.0
// The stage between a port and its worker that makes one port look like many paths. One per worker and port, made when
// it is first asked for. Units: nanoseconds, frames.
#pragma once

#include <rte_mbuf.h>

#include <deque>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "port/fault_injection/path.h"

namespace rove::datapath {

class Impairment {
  public:
    static constexpr size_t kBurst = 64;  // frames that waited, a round: what a port gives at once, all doubled

    Impairment(const ImpairConfig& config, DelayedFramePool& shelf, rte_mempool* pool);

    // A round: what waited long enough, the earliest first, then what need not wait of `arrived`. Valid until the next
    // call.
    std::span<rte_mbuf*> run(std::span<rte_mbuf*> arrived, uint64_t now_ns);
    uint64_t next_deadline() const { return next_->due_ns(); }  // UINT64_MAX: nothing waits

    // Of one path, or of all and of the device. `changes` as for change(), and found good.
    void change(std::optional<uint32_t> path, std::string_view changes, uint64_t now_ns);
    // The last one is of frames that belong to no path.
    const std::deque<ImpairedPath>& paths() const { return paths_; }

  private:
    ImpairedPath& path_of(const rte_mbuf& mbuf);
    void find_next();

    std::deque<ImpairedPath> paths_;
    ImpairedPath* next_ = nullptr;  // out of which a frame comes next
    std::vector<rte_mbuf*> out_;
};

}  // namespace rove::datapath
