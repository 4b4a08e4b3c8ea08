// SPDX-License-Identifier: Apache-2.0
// Random numbers: a counter in steps of the golden ratio, put through a 64-bit mixer (SplitMix64). With eight bytes of
// state, each component has a stream of its own, and the numbers that one draws do not change another's.
#pragma once

#include <cstdint>

namespace rove::fabric {

// A bijection in which every output bit depends on every input bit.
constexpr uint64_t mix(uint64_t x) {
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9;
    x = (x ^ x >> 27) * 0x94D049BB133111EB;
    return x ^ x >> 31;
}

class Random {
  public:
    Random(uint64_t seed, uint64_t stream) : state_(mix(mix(seed) + stream)) {}

    uint64_t next() { return mix(state_ += 0x9E3779B97F4A7C15); }
    // Returns a number from 0 to n - 1, with a bias of n / 2^64.
    uint64_t below(uint64_t n) { return static_cast<uint64_t>(static_cast<__uint128_t>(next()) * n >> 64); }
    double uniform() { return static_cast<double>(next() >> 11) * 0x1p-53; }  // in [0, 1)
    bool chance(double probability) { return uniform() < probability; }

  private:
    uint64_t state_;
};

}  // namespace rove::fabric
