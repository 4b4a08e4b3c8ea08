// SPDX-License-Identifier: Apache-2.0
// Memory that a process stopped publishing a moment ago. While memory is registered again, with other keys, no
// registration covers it. A request for it then waits instead of failing. Units: bytes, nanoseconds.
#pragma once

#include <cstdint>
#include <vector>

#include "tent/engine/segment.h"

namespace rove::tent {

class Withdrawn {
  public:
    static constexpr uint64_t kReturnsNs = 100'000'000;  // the time that a NIC takes to register some gigabytes

    // Records that the same process published `after` in place of `before`.
    void note(const SegmentDesc& before, const SegmentDesc& after, uint64_t now_ns);
    // Returns true if a buffer that held all of [address, address + length) was withdrawn less than kReturnsNs ago.
    bool may_return(uint64_t address, uint64_t length, uint64_t now_ns) const;

  private:
    struct Range {
        uint64_t address = 0, length = 0;
        uint64_t until_ns = 0;
    };
    std::vector<Range> ranges_;
};

}  // namespace rove::tent
