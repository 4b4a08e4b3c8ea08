// SPDX-License-Identifier: Apache-2.0
// How many work requests may be posted on a device so that its completion queue takes all that will come: one that is
// full loses them. Units: work requests, each of which has one completion.
#pragma once

#include <array>
#include <cstdint>

#include "tent/config/types.h"

namespace rove::tent {

class CqCredits {
  public:
    explicit CqCredits(uint32_t entries) : entries_(entries) {}

    // Whether one more of this priority may be posted. A part of the queue is kept for higher ones, and an eighth for
    // probes.
    bool has_room(uint8_t priority) const {
        constexpr std::array<uint32_t, kPriorities> kEighths{7, 6, 5};
        return posted_ + left_ < entries_ * kEighths[priority] / 8;
    }
    void post() { ++posted_; }
    void complete() { --posted_; }
    // The connection of so many was closed, and they count as complete: what came of them before may be in the queue
    // until that was seen empty.
    void leave(uint32_t count) { left_ += count; }
    void seen_empty() { left_ = 0; }

    uint32_t posted() const { return posted_; }

  private:
    const uint32_t entries_;
    uint32_t posted_ = 0, left_ = 0;
};

}  // namespace rove::tent
