// SPDX-License-Identifier: Apache-2.0
// Numbers that a peer must not be able to guess: keys of memory regions, numbers of queue pairs.
#pragma once

#include <array>
#include <cstdint>

namespace rove {

// A key of 128 bits, with functions that can be computed only with the key.
class Secret {
  public:
    // Returns a key from the kernel's random number generator, so each process has a different one.
    static Secret random();
    // Returns the key that belongs to `seed`, always the same one, for tests and simulations.
    static Secret of(uint64_t seed) { return Secret({seed, ~seed}); }

    // Returns SipHash-2-4 of one word.
    uint64_t hash(uint64_t word) const;
    // Maps a 24-bit number to another one; the mapping is a permutation.
    uint32_t permute24(uint32_t number) const;

  private:
    explicit Secret(const std::array<uint64_t, 2>& key) : key_(key) {}

    std::array<uint64_t, 2> key_;
};

}  // namespace rove
