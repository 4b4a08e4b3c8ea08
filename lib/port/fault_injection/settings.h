// SPDX-License-Identifier: Apache-2.0
// The faults of the frames that a device receives, for each path. The keys are the same in the configuration file and
// in changes at run time; config/impaired-a.toml explains them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "port/fault_injection/counters.h"
#include "port/fault_injection/delayed_frame_pool.h"

namespace rove::datapath {

inline constexpr uint32_t kMaxPaths = 32;  // limit of telemetry's 16 KiB

struct PathSettings {
    double loss = 0, duplicate = 0, corrupt = 0, reorder = 0, mark = 0;  // probabilities
    uint32_t delay_us = 0;
    uint32_t rate_mbps = 0;  // rate of Ethernet frames without preamble, FCS and gap; 0 is unlimited
    uint32_t queue_packets = 256;
    uint32_t ecn_threshold_packets = 0;  // 0 never marks
    bool down = false;
    bool operator==(const PathSettings&) const = default;

    // Calls `visitor` with each setting, its key and its allowed values. The visitor reads or writes the setting.
    template <class Self, class Visitor>
    static void visit(Self& self, Visitor& visitor) {
        visitor.probability("loss", self.loss);
        visitor.probability("duplicate", self.duplicate);
        visitor.probability("corrupt", self.corrupt);
        visitor.probability("reorder", self.reorder);
        visitor.probability("mark", self.mark);
        visitor.uint("delay_us", self.delay_us, 0, 1'000'000);
        visitor.uint("rate_mbps", self.rate_mbps, 0, 1'000'000);
        visitor.uint("queue_packets", self.queue_packets, 1, DelayedFramePool::kFrames);
        visitor.uint("ecn_threshold_packets", self.ecn_threshold_packets, 0, DelayedFramePool::kFrames);
        visitor.boolean("down", self.down);
    }
};

struct ImpairConfig {
    PathSettings device;  // for frames that belong to no path: all if `paths` is empty, else ARP, ND and ping
    std::vector<PathSettings> paths;  // a RoCE frame takes the path with the index UDP source port modulo paths.size()
    uint64_t seed = 1;
    bool none() const { return device == PathSettings{} && paths.empty(); }
};

// The state of a path in telemetry, summed over all workers, which have the same settings.
struct PathState {
    PathSettings settings;
    ImpairCounters counters;
    uint32_t waiting = 0;  // frames
    void add(const PathState& worker);
};

// Applies "key=value,key=value" to `settings`. Returns "", or a description of the error, and then nothing was changed.
std::string change(PathSettings& settings, std::string_view changes);

// Returns the settings that differ from the defaults, in the form that change() accepts.
std::vector<std::pair<const char*, std::string>> texts(const PathSettings& settings);

}  // namespace rove::datapath
