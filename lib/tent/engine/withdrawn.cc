// SPDX-License-Identifier: Apache-2.0
// See withdrawn.h.
#include "tent/engine/withdrawn.h"

#include <algorithm>

namespace rove::tent {

void Withdrawn::note(const SegmentDesc& before, const SegmentDesc& after, uint64_t now_ns) {
    std::erase_if(ranges_, [now_ns](const Range& range) { return range.until_ns <= now_ns; });
    for (const BufferDesc& buffer : before.buffers) {
        if (after.find(buffer.address, buffer.length) != nullptr) continue;
        if (ranges_.size() == kMaxBuffers) return;
        ranges_.push_back({buffer.address, buffer.length, now_ns + kReturnsNs});
    }
}

bool Withdrawn::may_return(uint64_t address, uint64_t length, uint64_t now_ns) const {
    return std::any_of(ranges_.begin(), ranges_.end(), [&](const Range& range) {
        return now_ns < range.until_ns && address >= range.address && length <= range.length &&
               address - range.address <= range.length - length;
    });
}

}  // namespace rove::tent
