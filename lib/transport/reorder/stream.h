// SPDX-License-Identifier: Apache-2.0
// What reordering keeps in a QP for one stream, what it says about a packet, and what it reports about a worker.
#pragma once

#include <cstdint>

#include "transport/psn.h"

namespace rove::transport {

// Everything but `expected` is for class Reorder only.
struct ReorderStream {
    static constexpr uint32_t kNoMemory = (1u << 30) - 1;

    Psn expected;                      // the first PSN not received in order
    uint32_t memory : 30 = kNoMemory;  // where its bitmap is: see HybridBitmaps, StaticBitmaps
    bool out_of_order : 1 = false;     // packets after `expected` are tracked
    bool last_seen : 1 = false;        // a Last was tracked since the memory was taken
};
// EU-1: beyond the expected PSN, which every transport has, a stream in order costs four bytes.
inline constexpr uint32_t kReorderStreamBytes = sizeof(ReorderStream) - sizeof(Psn);
static_assert(kReorderStreamBytes == 4);

// EU-4: what the one acknowledgement of a packet is.
enum class Arrival : uint8_t {
    kInOrder,     // ACK, after advance()
    kOutOfOrder,  // SACK, after track()
    kDuplicate,   // received before: ACK or SACK again, by comparing with `expected`
    kBeyond,      // NACK: further ahead than the bitmap may grow
    kExhausted,   // NACK: the worker's arena has no memory for it
};

// Reorder memory of one worker. Free-running, or now and at its highest.
struct ReorderUsage {
    uint32_t blocks = 0, peak_blocks = 0;  // arena blocks, metadata included (static: bitmaps)
    uint64_t bytes = 0, peak_bytes = 0;    // of those; not what a stream keeps in its QP
    uint64_t exhausted = 0;                // packets refused as Arrival::kExhausted
};

}  // namespace rove::transport
