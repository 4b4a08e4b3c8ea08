// SPDX-License-Identifier: Apache-2.0
// The stage between a port and its worker that makes one port look like many paths. Each worker has one for each port,
// created on first use. Units: nanoseconds, frames.
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
    static constexpr size_t kBurst = 64;  // delayed frames in a round: a port's burst, all duplicated

    Impairment(const ImpairConfig& config, DelayedFramePool& delayed_frames, rte_mempool* pool);

    // Runs a round. Returns the frames that have waited long enough, the earliest first, and then the frames in
    // `arrived` that need not wait. The result is valid until the next call.
    std::span<rte_mbuf*> run(std::span<rte_mbuf*> arrived, uint64_t now_ns);
    uint64_t next_deadline() const { return next_->due_ns(); }  // UINT64_MAX if no frame waits

    // Changes the settings of one path, or of all paths and the device. `changes` has the form that datapath::change()
    // accepts, and must have been validated.
    void change(std::optional<uint32_t> path, std::string_view changes, uint64_t now_ns);
    // Returns the paths. The last one is for frames that belong to no path.
    const std::deque<ImpairedPath>& paths() const { return paths_; }

  private:
    ImpairedPath& path_of(const rte_mbuf& mbuf);
    void find_next();

    std::deque<ImpairedPath> paths_;
    ImpairedPath* next_ = nullptr;  // the path whose frame is due next
    std::vector<rte_mbuf*> out_;
};

}  // namespace rove::datapath
