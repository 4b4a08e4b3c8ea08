// SPDX-License-Identifier: Apache-2.0
// The counters of fault injection. They never decrease. Units: frames, but kBytes.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>

namespace rove::datapath {

// What happened to the frames of one path of an impaired device. Named in to_string() too.
enum class ImpairCounter : uint8_t {
    kFrames,  // came to it, whatever became of them
    kBytes,
    kLost,  // by chance, as are the next three
    kCorrupted,
    kDuplicated,
    kReordered,
    kMarked,     // with Congestion Experienced, by chance or for the length of the queue
    kDelayed,    // waited for the path's rate or delay
    kDown,       // dropped: the path was down, or went down while they were on it
    kQueueFull,  // dropped: queue_packets waited
    kShelfFull,  // dropped: as many frames waited as a worker has room for
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
