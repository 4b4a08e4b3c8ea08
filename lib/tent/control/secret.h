// SPDX-License-Identifier: Apache-2.0
// The secret that engines share so that they may access each other's memory. A process that has it belongs to the
// group.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "rove/tent_status.h"

namespace rove::tent {

using Mac = std::array<uint8_t, 32>;  // HMAC-SHA256 (RFC 2104, FIPS 180-4)

class Secret {
  public:
    static constexpr size_t kMinBytes = 16, kMaxBytes = 4096;

    // Makes an empty secret, with which every process that can connect is trusted.
    Secret() = default;
    explicit Secret(std::string bytes) : bytes_(std::move(bytes)) {}
    ~Secret();
    Secret(Secret&&) = default;
    Secret& operator=(Secret&&) = default;

    // Reads the environment's ROVE_TENT_SECRET, or else the content of `file` without white space at its end. Without
    // either, the secret stays empty. Returns kInvalidArgument if the secret is too short or too long, or if the file
    // is not safe: only its owner, who must be this user or root, may write it, and only the owner and the group may
    // read it.
    static Status load(const std::string& file, Secret* out);

    bool empty() const { return bytes_.empty(); }
    Mac mac(std::string_view message) const;

  private:
    std::string bytes_;
};

// Compares in constant time, so that the time does not show where they differ.
bool equal(const Mac& a, const Mac& b);
// Fills in random bytes from the kernel, which cannot be guessed.
void fill_random(void* bytes, size_t size);

}  // namespace rove::tent
