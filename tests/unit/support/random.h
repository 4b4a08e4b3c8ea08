// SPDX-License-Identifier: Apache-2.0
// The random numbers of tests. A seed gives the same sequence with every standard library.
#pragma once

#include <cstdint>
#include <random>

namespace rove::test {

class Random {
  public:
    explicit Random(uint64_t seed) : engine_(seed) {}

    uint64_t next() { return engine_(); }
    uint64_t below(uint64_t n) { return n == 0 ? 0 : engine_() % n; }                      // 0 .. n - 1
    uint64_t between(uint64_t low, uint64_t high) { return low + below(high - low + 1); }  // inclusive
    bool chance(double probability) { return static_cast<double>(engine_() >> 11) * 0x1p-53 < probability; }
    // Returns one of the arguments.
    template <class T, class... Ts>
    T pick(T first, Ts... rest) {
        const T all[] = {first, static_cast<T>(rest)...};
        return all[below(1 + sizeof...(rest))];
    }

  private:
    std::mt19937_64 engine_;
};

}  // namespace rove::test
