// SPDX-License-Identifier: Apache-2.0
// One way to a peer: a local device and a device of the peer. Belongs to the holder of the drive lock. Units: bytes,
// nanoseconds.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tent/rail_health.h"
#include "tent/task.h"
#include "tent/transports/rdma/connection.h"
#include "tent/transports/rdma/window.h"

namespace rove::tent {

class RdmaChannel;

struct RailCounters {
    uint64_t read_bytes = 0, write_bytes = 0, slices = 0;
    uint64_t errors = 0;    // completions with an error
    uint64_t silences = 0;  // times that it was given up because nothing came back
    uint64_t probes = 0, connects = 0;
    uint64_t resprayed = 0;  // slices that were taken from it
};

struct Rail {
    enum class State : uint8_t {
        kClosed,      // `retry_ns` says when to connect again
        kConnecting,  // a job is at it
        kProbing,     // connected; whether anything comes through is not known
        kUp,
    };

    Rail(RdmaChannel& of, const RailConfig& config) : channel(&of), health(config) {}

    RdmaChannel* channel;
    uint32_t id = 0;  // in the backend's list
    uint8_t local = 0, remote = 0;
    std::string name;  // "rove0-rove1": local and remote device
    State state = State::kClosed;
    bool ever_up = false;
    RailHealth health;
    uint64_t number = 0;  // of `connection`; ConnectionName
    std::unique_ptr<Connection> connection;
    uint64_t retry_ns = 0;
    uint32_t refusals = 0;  // attempts to connect that failed, one after the other
    uint64_t down_ns = 0;   // since when it is not up

    // Slices posted, oldest first.
    Slice* oldest = nullptr;
    Slice* newest = nullptr;
    std::array<uint64_t, kPriorities> posted_bytes{};  // by priority
    std::array<uint32_t, kPriorities> posted{};        // by priority, with probes
    std::array<uint64_t, kPriorities> posted_ns{};       // by priority: when last
    Window window;
    // Chosen for this rail when it had no room: goes next.
    Slice* parked = nullptr;
    // The last sign of life while something was posted: a completion, or the first post.
    uint64_t heard_ns = 0;
    bool probing_others = false;  // it is suspiciously silent: the peer is asked over other rails
    uint32_t probes_posted = 0;
    RailCounters counters;

    // What is under way of this priority and of those that go first: only that has HIGH wait.
    uint64_t posted_up_to(Priority priority) const {
        uint64_t bytes = 0;
        for (uint8_t i = 0; i <= index(priority); ++i) bytes += posted_bytes[i];
        return bytes;
    }
    // How long slices of this priority may be under way.
    uint64_t target_ns(Priority priority, uint64_t now_ns) const {
        // since a higher one was posted: several times between two of a steady flow
        constexpr uint64_t kSharedNs = 20'000'000;
        for (uint8_t i = 0; i < index(priority); ++i)
            if (now_ns - posted_ns[i] < kSharedNs) return Window::kSharedTargetNs;
        return Window::kTargetNs;
    }
    bool is_idle() const { return oldest == nullptr && probes_posted == 0; }

    void append(Slice& slice) {
        slice.rail = this;
        slice.before = newest;
        slice.after = nullptr;
        (newest != nullptr ? newest->after : oldest) = &slice;
        newest = &slice;
        posted_bytes[index(slice.priority)] += slice.length;
        ++posted[index(slice.priority)];
        posted_ns[index(slice.priority)] = slice.mark.post_ns;
    }

    void remove(Slice& slice) {
        (slice.before != nullptr ? slice.before->after : oldest) = slice.after;
        (slice.after != nullptr ? slice.after->before : newest) = slice.before;
        slice.rail = nullptr;
        posted_bytes[index(slice.priority)] -= slice.length;
        --posted[index(slice.priority)];
    }
};

}  // namespace rove::tent
