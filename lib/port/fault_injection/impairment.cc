// SPDX-License-Identifier: Apache-2.0
// Chooses the path of each frame, and the order in which frames leave the paths.
#include "port/fault_injection/impairment.h"

#include <algorithm>

#include "wire/in_network.h"

namespace rove::datapath {

Impairment::Impairment(const ImpairConfig& config, DelayedFramePool& delayed_frames, rte_mempool* pool) {
    // Each path has random numbers of its own, so its faults do not depend on the traffic of other paths.
    for (const PathSettings& path : config.paths)
        paths_.emplace_back(path, config.seed + paths_.size() + 1, delayed_frames, pool);
    paths_.emplace_back(config.device, config.seed, delayed_frames, pool);
    find_next();
}

ImpairedPath& Impairment::path_of(const rte_mbuf& mbuf) {
    if (paths_.size() > 1)
        if (const auto transit = wire::find_transit({rte_pktmbuf_mtod(&mbuf, const uint8_t*), mbuf.data_len}))
            return paths_[transit->udp_src % (paths_.size() - 1)];
    return paths_.back();
}

std::span<rte_mbuf*> Impairment::run(std::span<rte_mbuf*> arrived, uint64_t now_ns) {
    out_.clear();
    while (next_->due_ns() <= now_ns && out_.size() < kBurst) {
        out_.push_back(next_->take(now_ns));
        find_next();
    }
    for (rte_mbuf* mbuf : arrived) path_of(*mbuf).arrive(mbuf, now_ns, out_);
    if (!arrived.empty()) find_next();
    return out_;
}

void Impairment::find_next() {
    next_ = &*std::min_element(paths_.begin(), paths_.end(),
                               [](const ImpairedPath& a, const ImpairedPath& b) { return a.due_ns() < b.due_ns(); });
}

void Impairment::change(std::optional<uint32_t> path, std::string_view changes, uint64_t now_ns) {
    for (size_t index = 0; index < paths_.size(); ++index) {
        if (path && *path != index) continue;
        PathSettings settings = paths_[index].state().settings;
        datapath::change(settings, changes);
        paths_[index].set(settings, now_ns);
    }
    find_next();
}

}  // namespace rove::datapath
