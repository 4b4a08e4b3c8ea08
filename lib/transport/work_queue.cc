// SPDX-License-Identifier: Apache-2.0
#include "transport/work_queue.h"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstddef>
#include <cstring>

namespace rove::transport {

static_assert(sizeof(SendWqe) == 64, "one cache line, its SGEs in the next");

namespace {

// Returns null without memory.
uint8_t* allocate(uint32_t slots, size_t slot_bytes) {
    const size_t align = slot_bytes % 64 == 0 ? 64 : alignof(std::max_align_t);
    return static_cast<uint8_t*>(std::aligned_alloc(align, (slots * slot_bytes + align - 1) / align * align));
}

}  // namespace

bool SlotRing::init(uint32_t count, size_t slot_bytes) {
    const uint32_t slots = std::bit_ceil(std::max(count, 1u));
    uint8_t* memory = allocate(slots, slot_bytes);
    if (memory == nullptr) return false;
    memory_.reset(memory);
    slot_bytes_ = slot_bytes;
    mask_ = slots - 1;
    limit_ = count;
    reset();
    return true;
}

int SlotRing::resize(uint32_t count) {
    if (produced() - consumed() > count) return EINVAL;
    const uint32_t slots = std::bit_ceil(std::max(count, 1u));
    uint8_t* memory = allocate(slots, slot_bytes_);
    if (memory == nullptr) return ENOMEM;
    for (uint32_t index = consumed(); index != produced(); ++index) {
        std::memcpy(memory + (index & (slots - 1)) * slot_bytes_, slot(index), slot_bytes_);
    }
    memory_.reset(memory);
    mask_ = slots - 1;
    limit_ = count;
    return 0;
}

bool SendQueue::init(uint32_t max_wr, uint32_t max_sge, uint32_t max_inline) {
    const size_t tail = std::max<size_t>(max_sge * sizeof(ibv_sge), max_inline);
    return SlotRing::init(max_wr, (sizeof(SendWqe) + tail + 63) / 64 * 64);
}

bool RecvQueue::init(uint32_t max_wr, uint32_t max_sge) {
    return SlotRing::init(max_wr, sizeof(RecvWqe) + max_sge * sizeof(ibv_sge));
}

}  // namespace rove::transport
