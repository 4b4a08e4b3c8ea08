// SPDX-License-Identifier: Apache-2.0
// Numbers that a peer must not guess: keys of memory regions, numbers of queue pairs.
#pragma once

#include <array>
#include <cstdint>

namespace rove {

// A key of 128 bits, and functions that only who knows it can compute.
class Secret {
  public:
    // Of the kernel's random numbers: another one in each process.
    static Secret random();
    // Always the same for one `seed`, for tests and simulations.
    static Secret of(uint64_t seed) { return Secret({seed, ~seed}); }

    // SipHash-2-4 of one word.
    uint64_t hash(uint64_t word) const;
    // A permutation of the numbers of 24 bits.
    uint32_t permute24(uint32_t number) const;

  private:
    explicit Secret(const std::array<uint64_t, 2>& key) : key_(key) {}

    std::array<uint64_t, 2> key_;
};

}  // namespace rove
