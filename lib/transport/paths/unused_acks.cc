// SPDX-License-Identifier: Apache-2.0
#include "transport/paths/unused_acks.h"

#include <algorithm>
#include <new>

namespace rove::transport {

bool UnusedAcks::grow() {
    constexpr uint32_t kFew = 16;
    if (places_ == kMost) return false;
    const uint32_t more = std::max(2u * places_, kFew);
    std::unique_ptr<uint16_t[]> room(new (std::nothrow) uint16_t[more]);
    if (room == nullptr) return false;
    for (uint32_t i = 0; i < count_; ++i) room[i] = (*this)[i];
    vps_ = std::move(room);
    places_ = static_cast<uint16_t>(more);
    first_ = 0;
    return true;
}

}  // namespace rove::transport
