// SPDX-License-Identifier: Apache-2.0
// How a switch chooses among equal next hops, or among paths. Switch::choose() is the only caller.
#pragma once

#include <utility>

#include "fabric/random.h"

namespace rove::fabric {

// What a switch does with data. Acknowledgements and CNPs go by ECMP, as in ConWeave's simulator (SIGCOMM'23): they are
// few, and the order in which they come matters.
enum class Balancer : uint8_t {
    kEcmp,        // by the 5-tuple: a flow stays on its way
    kSpray,       // packet by packet in turn, for each set of equal next hops
    kRandom,      // packet by packet at random
    kPowerOfTwo,  // of two that are drawn at random, the one with the shorter queue
    kDrill,       // DRILL(2, 1), SIGCOMM'17: of two that are drawn at random and the last choice, the shortest queue
    kDrillByDestination,  // the same, with a last choice for each destination, as in ConWeave's simulator
    kLetFlow,             // NSDI'17: a flow keeps its way until it pauses for a gap, and then draws another at random
    kConga,               // SIGCOMM'14: then it takes the way that is the least full, by what leaves tell each other
    kConWeave,    // SIGCOMM'23: a flow leaves a way that has become slow, and leaves put its packets in order again
    kSourcePort,  // by the UDP source port modulo their number, acknowledgements too: as a port's impairment has it
};

// By the 5-tuple: every packet of a flow takes the same of `choices` ways. `salt` is the switch's own. Without it, the
// next tier of switches would see only flows that hash alike, and use a part of its links.
inline uint32_t ecmp(uint64_t flow_hash, uint64_t salt, uint32_t choices) {
    return static_cast<uint32_t>((mix(flow_hash + salt) >> 32) * choices >> 32);
}

// Two different ones of at least two.
inline std::pair<uint32_t, uint32_t> two_of(uint32_t choices, Random& random) {
    const auto first = static_cast<uint32_t>(random.below(choices));
    const auto second = static_cast<uint32_t>(random.below(choices - 1));
    return {first, second < first ? second : second + 1};
}

}  // namespace rove::fabric
