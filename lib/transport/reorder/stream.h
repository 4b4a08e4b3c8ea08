// SPDX-License-Identifier: Apache-2.0
// The state of one stream's order in a QP, the classification of a packet, and a worker's statistics.
#pragma once

#include <cstdint>

#include "transport/psn.h"

namespace rove::transport {

// Only class Reorder uses the members other than `expected`.
struct ReorderStream {
    static constexpr uint32_t kNoMemory = (1u << 24) - 1;
    static constexpr uint32_t kPeers = 64;

    Psn expected;                      // the first PSN not received in order
    uint32_t memory : 24 = kNoMemory;  // the place of its bitmap; see HybridBitmaps and StaticBitmaps
    uint32_t peer : 6 = 0;             // the peer whose share of the memory it uses; 0: none
    bool out_of_order : 1 = false;     // true if packets after `expected` are tracked
    bool last_seen : 1 = false;        // true if a Last was tracked since the memory was allocated
};
// A stream in order costs four bytes (EU-1), not counting the expected PSN, which every transport has.
inline constexpr uint32_t kReorderStreamBytes = sizeof(ReorderStream) - sizeof(Psn);
static_assert(kReorderStreamBytes == 4);

// Decides the packet's one acknowledgement (EU-4).
enum class Arrival : uint8_t {
    kInOrder,     // ACK, after advance()
    kOutOfOrder,  // SACK, after track()
    kDuplicate,   // received before: an ACK or SACK again, depending on `expected`
    kBeyond,      // NACK: further ahead than the bitmap may grow
    kExhausted,   // NACK: the worker's arena has no memory for it
};

// The reorder memory of one worker: current values, peaks and a free-running counter.
struct ReorderUsage {
    uint32_t blocks = 0, peak_blocks = 0;  // arena blocks including metadata (for the static kind: bitmaps)
    uint64_t bytes = 0, peak_bytes = 0;    // their size, without the bytes in the QPs
    uint64_t exhausted = 0;                // packets refused as Arrival::kExhausted
};

}  // namespace rove::transport
