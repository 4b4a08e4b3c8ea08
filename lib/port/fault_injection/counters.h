// SPDX-License-Identifier: Apache-2.0
// The counters of fault injection. They never decrease. Units: frames, except kBytes.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>

namespace rove::datapath {

// The events of one path of an impaired device, counted in frames. A new value also needs a name in to_string().
enum class ImpairCounter : uint8_t {
    kFrames,  // reached the path, whatever happened to them next
    kBytes,
    kLost,  // at random, like the next three
    kCorrupted,
    kDuplicated,
    kReordered,
    kMarked,     // with Congestion Experienced, at random or because of the queue's length
    kDelayed,    // waited for the path's rate or delay
    kDown,       // dropped: the path was down, or went down while they were on it
    kQueueFull,  // dropped: queue_packets frames were waiting
    kShelfFull,  // dropped: as many frames were waiting as a worker has room for
    kCount,
};

constexpr const char* to_string(ImpairCounter counter) {
    constexpr const char* kNames[] = {"frames",     "bytes",           "lost",           "corrupted",
                                      "duplicated", "reordered",       "marked",         "delayed",
                                      "drop_down",  "drop_queue_full", "drop_shelf_full"};
    static_assert(std::size(kNames) == static_cast<size_t>(ImpairCounter::kCount));
    return kNames[static_cast<size_t>(counter)];
}

struct ImpairCounters {
    std::array<uint64_t, static_cast<size_t>(ImpairCounter::kCount)> values{};
    uint64_t& operator[](ImpairCounter counter) { return values[static_cast<size_t>(counter)]; }
    uint64_t operator[](ImpairCounter counter) const { return values[static_cast<size_t>(counter)]; }
};

}  // namespace rove::datapath
