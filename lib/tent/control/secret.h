// SPDX-License-Identifier: Apache-2.0
// The secret that engines share which let each other at their memory. Whoever has it belongs to them.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "rove/tent_status.h"

namespace rove::tent {

using Mac = std::array<uint8_t, 32>;  // of HMAC-SHA256 (RFC 2104, FIPS 180-4)

class Secret {
  public:
    static constexpr size_t kMinBytes = 16, kMaxBytes = 4096;

    // None: everybody who can connect is believed.
    Secret() = default;
    explicit Secret(std::string bytes) : bytes_(std::move(bytes)) {}
    ~Secret();
    Secret(Secret&&) = default;
    Secret& operator=(Secret&&) = default;

    // The environment's ROVE_TENT_SECRET, else the content of `file` without white space at its end; none if there is
    // neither. kInvalidArgument: too short, or others than the file's owner and its group may read it.
    static Status load(const std::string& file, Secret* out);

    bool empty() const { return bytes_.empty(); }
    Mac mac(std::string_view message) const;

  private:
    std::string bytes_;
};

// In a time that does not tell where they differ.
bool equal(const Mac& a, const Mac& b);
// Not to be guessed: from the kernel.
void fill_random(void* bytes, size_t size);

}  // namespace rove::tent
