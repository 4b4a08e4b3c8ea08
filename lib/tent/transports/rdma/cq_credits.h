// SPDX-License-Identifier: Apache-2.0
// Limits the work requests posted on a device, so that its completion queue has room for all their completions: a full
// queue loses them. Units: work requests, each of which has one completion.
#pragma once

#include <array>
#include <cstdint>

#include "tent/config/types.h"

namespace rove::tent {

class CqCredits {
  public:
    explicit CqCredits(uint32_t entries) : entries_(entries) {}

    // Returns true if one more request of this priority may be posted. A part of the queue is reserved for higher
    // priorities, and an eighth for probes.
    bool has_room(uint8_t priority) const {
        constexpr std::array<uint32_t, kPriorities> kEighths{7, 6, 5};
        return posted_ + left_ < entries_ * kEighths[priority] / 8;
    }
    void post() { ++posted_; }
    void complete() { --posted_; }
    // A connection with `count` posted requests was closed, and they count as complete. Earlier completions of them may
    // be in the queue until it was seen empty.
    void leave(uint32_t count) { left_ += count; }
    void seen_empty() { left_ = 0; }

    uint32_t posted() const { return posted_; }

  private:
    const uint32_t entries_;
    uint32_t posted_ = 0, left_ = 0;
};

}  // namespace rove::tent
