// SPDX-License-Identifier: Apache-2.0
// Packet sequence numbers: 24 bits, serial arithmetic modulo 2^24 (IBTA 9.7.1).
#pragma once

#include <cstdint>

namespace rove::transport {

class Psn {
  public:
    static constexpr uint32_t kMask = 0xFFFFFF;

    constexpr Psn() = default;
    constexpr explicit Psn(uint32_t value) : value_(value & kMask) {}

    constexpr uint32_t value() const { return value_; }
    constexpr Psn operator+(uint32_t packets) const { return Psn(value_ + packets); }
    constexpr Psn& operator++() { return *this = *this + 1; }
    constexpr Psn previous() const { return Psn(value_ - 1); }

    // Returns the signed distance in packets, -2^23 .. 2^23 - 1, which is positive if *this comes after `other`.
    constexpr int32_t operator-(Psn other) const { return static_cast<int32_t>((value_ - other.value_) << 8) >> 8; }

    constexpr bool operator==(const Psn&) const = default;
    constexpr bool operator<(Psn other) const { return *this - other < 0; }
    constexpr bool operator<=(Psn other) const { return *this - other <= 0; }
    constexpr bool operator>(Psn other) const { return *this - other > 0; }
    constexpr bool operator>=(Psn other) const { return *this - other >= 0; }

  private:
    uint32_t value_ = 0;
};

}  // namespace rove::transport
