// SPDX-License-Identifier: Apache-2.0
// How a switch chooses among equal next hops or paths. Switch::choose() is the only caller.
#pragma once

#include <utility>

#include "fabric/random.h"

namespace rove::fabric {

// How a switch forwards data. Acknowledgements and CNPs use ECMP, as in ConWeave's simulator (SIGCOMM'23): they are
// few, and their order matters.
enum class Balancer : uint8_t {
    kEcmp,                // 5-tuple hash: a flow stays on its path
    kSpray,               // packet by packet, round robin within each set of equal next hops
    kRandom,              // packet by packet, at random
    kPowerOfTwo,          // the shorter queue of two drawn at random
    kDrill,               // DRILL(2, 1), SIGCOMM'17: the shortest queue of two drawn at random and the last choice
    kDrillByDestination,  // DRILL with a last choice per destination, as in ConWeave's simulator
    kLetFlow,             // NSDI'17: a flow keeps its path until it pauses for a gap, and then draws another at random
    kConga,               // SIGCOMM'14: after a gap the flow takes the least congested path, by feedback between leaves
    kConWeave,            // SIGCOMM'23: a flow leaves a path that has become slow, and leaves restore its order
    // The UDP source port modulo the number of paths, acknowledgements too, as fault injection does at a port.
    kSourcePort,
};

// Chooses by the 5-tuple: every packet of a flow takes the same of `choices` paths. `salt` differs between switches.
// Without it the next tier would see only flows that hash alike and use some of its links only.
inline uint32_t ecmp(uint64_t flow_hash, uint64_t salt, uint32_t choices) {
    return static_cast<uint32_t>((mix(flow_hash + salt) >> 32) * choices >> 32);
}

// Returns two different numbers below `choices`, which is at least 2.
inline std::pair<uint32_t, uint32_t> two_of(uint32_t choices, Random& random) {
    const auto first = static_cast<uint32_t>(random.below(choices));
    const auto second = static_cast<uint32_t>(random.below(choices - 1));
    return {first, second < first ? second : second + 1};
}

}  // namespace rove::fabric
