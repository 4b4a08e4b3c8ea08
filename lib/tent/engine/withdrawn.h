// SPDX-License-Identifier: Apache-2.0
// Memory that a process has ceased to publish a moment ago. While it is registered anew, with other keys, it is
// registered by nobody: whoever wants it then waits instead of failing. Units: bytes, nanoseconds.
#pragma once

#include <cstdint>
#include <vector>

#include "tent/engine/segment.h"

namespace rove::tent {

class Withdrawn {
  public:
    static constexpr uint64_t kReturnsNs = 100'000'000;  // registering some gigabytes takes a NIC so long

    // `after` was published instead of `before`, by the same process.
    void note(const SegmentDesc& before, const SegmentDesc& after, uint64_t now_ns);
    // Whether a buffer that held all of [address, address + length) has been away for less than kReturnsNs.
    bool may_return(uint64_t address, uint64_t length, uint64_t now_ns) const;

  private:
    struct Range {
        uint64_t address = 0, length = 0;
        uint64_t until_ns = 0;
    };
    std::vector<Range> ranges_;
};

}  // namespace rove::tent
