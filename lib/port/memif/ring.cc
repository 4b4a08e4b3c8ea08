// SPDX-License-Identifier: Apache-2.0
#include "port/memif/ring.h"

#include <rte_mempool.h>
#include <sys/socket.h>
#include <unistd.h>
#ifdef RTE_ARCH_X86
#include <immintrin.h>
#endif

#include <algorithm>
#include <cstring>
#include <limits>

#include "port/borrowed_mbuf.h"

namespace rove::datapath {

namespace {

constexpr uint32_t kMaxFrameBytes = std::numeric_limits<uint16_t>::max();  // limit of an mbuf

const MemifConnection::Ring& ring_of(const MemifConnection& connection, MemifConnection::Role role, bool fills) {
    return (role == MemifConnection::Role::kClient) == fills ? connection.to_server() : connection.to_client();
}

// Stores a whole line to memory without fetching its old content.
void store_line(uint8_t* to, const uint8_t* from) {
#ifdef RTE_ARCH_X86
    for (size_t at = 0; at != RTE_CACHE_LINE_SIZE; at += sizeof(__m128i))
        _mm_stream_si128(reinterpret_cast<__m128i*>(to + at),
                         _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + at)));
#else
    std::memcpy(to, from, RTE_CACHE_LINE_SIZE);
#endif
}

}  // namespace

RingSender::RingSender(const MemifConnection& connection, Role role)
    : RingView(ring_of(connection, role, true), connection.regions(), role, true) {
    if (!is_client()) return;
    used_buffers_ = std::min(slots(), kFirstBuffers);
    for (uint32_t slot = 0; slot < slots(); ++slot) buffer_of_[slot] = static_cast<uint16_t>(slot % used_buffers_);
}

// The last used_buffers_ slots have one buffer each, and the peer has emptied the buffers of the free slots. So the
// next slot gets the buffer of the slot that is used_buffers_ positions behind it, whatever the number of buffers was
// before.
uint32_t RingSender::choose_buffers(uint32_t free) {
    uint16_t at = next_;
    const auto next_buffer = [&]() -> uint16_t& { return buffer_of_[at++ & (slots() - 1)]; };
    if (free == 0 || large_ >= kLapsToGrow * used_buffers_) {
        const uint32_t more = used_buffers_;
        for (uint32_t i = 0; i < more; ++i) next_buffer() = static_cast<uint16_t>(used_buffers_ + i);
        used_buffers_ += more;
        free += more;
        large_ = 0;
    }
    const auto end = static_cast<uint16_t>(next_ + free);
    while (at != end) {
        const uint16_t before = buffer_of_[static_cast<uint16_t>(at - used_buffers_) & (slots() - 1)];
        next_buffer() = before;
    }
    return free;
}

bool RingSender::send_copy(const uint8_t* frame, uint32_t bytes) {
    const uint16_t first = next_;
    uint16_t at = next_;
    for (uint32_t left = bytes; left != 0; ++at) {
        if (at == end_) {
            next_ = at;
            const bool more = look();
            next_ = first;
            if (!more) return false;
        }
        const Place slot = is_client() ? Place{own_buffer(at), buffer_bytes_, false} : place(at);
        const uint32_t part = std::min(left, slot.bytes);
        if (slot.buffer == nullptr || part == 0) return false;
        std::memcpy(slot.buffer, frame + bytes - left, part);
        left -= part;
        put(at, part, left != 0);
    }
    next_ = at;
    frames_.add(1);
    bytes_.add(bytes);
    return true;
}

void RingSender::store(uint8_t* to, const uint8_t* frame, uint32_t bytes) {
    if (!rte_is_aligned(to, RTE_CACHE_LINE_SIZE) || RTE_CACHE_LINE_ROUNDUP(bytes) > room_) {
        std::memcpy(to, frame, bytes);
        return;
    }
    uint32_t at = 0;
    for (; at + RTE_CACHE_LINE_SIZE <= bytes; at += RTE_CACHE_LINE_SIZE) store_line(to + at, frame + at);
    if (at == bytes) return;
    std::array<uint8_t, RTE_CACHE_LINE_SIZE> last{};
    std::memcpy(last.data(), frame + at, bytes - at);
    store_line(to + at, last.data());
}

void RingSender::publish() {
    if (next_ == published_) return;
    published_ = next_;
#ifdef RTE_ARCH_X86
    if (non_temporal_.bypasses_cache()) _mm_sfence();  // non-temporal stores are not ordered with other stores
#endif
    non_temporal_.next_burst();
    __atomic_store_n(to_server_ ? &ring_->head : &ring_->tail, next_, __ATOMIC_RELEASE);
    std::atomic_thread_fence(std::memory_order_seq_cst);
    if ((__atomic_load_n(&ring_->flags, __ATOMIC_RELAXED) & kMemifMaskInterrupt) == 0) [[unlikely]]
        ring_doorbell();
}

void RingSender::ring_doorbell() {
    if (bells_ == nullptr) {
        const uint64_t one = 1;
        // Fails if the eventfd is full, and then it is ringing already.
        [[maybe_unused]] const ssize_t written = write(doorbell_, &one, sizeof one);
        return;
    }
    const uint64_t sleep = bells_->ring(bell_);
    if (sleep == 0 || sleep == rung_sleep_) return;
    rung_sleep_ = sleep;
    // MSG_DONTWAIT makes sure that the peer cannot make this wait. A full socket can be read already.
    const uint8_t one = 1;
    [[maybe_unused]] const ssize_t sent = send(doorbell_, &one, sizeof one, MSG_DONTWAIT | MSG_NOSIGNAL);
}

RingReceiver::RingReceiver(const MemifConnection& connection, Role role, rte_mempool* pool)
    : RxQueue(true), RingView(ring_of(connection, role, false), connection.regions(), role, false), pool_(pool) {
    disarm();  // a client of DPDK's or VPP's leaves the doorbell unmasked
}

uint16_t RingReceiver::burst(rte_mbuf** frames) {
    const uint32_t filled = this->filled();
    uint16_t count = 0;
    uint64_t bytes = 0;
    for (uint32_t read = 0; read < filled && count < kBurst;) {
        const Place at = place(next_);
        if (!at.more && at.buffer != nullptr && at.bytes <= kMaxFrameBytes) [[likely]] {
            lend(views_[count], at.buffer, at.bytes);
            frames[count] = &views_[count];
            ++count, ++read, ++next_;
            bytes += at.bytes;
            continue;
        }
        // A frame of several slots extends to the first slot without the `more` flag.
        const uint16_t first = next_;
        bool more = true;
        while (more && read < filled) more = place(next_++).more, ++read;
        rte_mbuf* const whole = more ? nullptr : gather(first, static_cast<uint16_t>(next_ - first));
        if (whole == nullptr) continue;
        bytes += whole->pkt_len;
        frames[count++] = whole;
    }
    if (count != 0) {
        frames_.add(count);
        bytes_.add(bytes);
    }
    return count;
}

rte_mbuf* RingReceiver::gather(uint16_t first, uint16_t count) {
    rte_mbuf* const mbuf = rte_pktmbuf_alloc(pool_);
    if (mbuf == nullptr) {
        no_mbuf_.add(1);
        return nullptr;
    }
    for (uint16_t i = 0; i < count; ++i) {
        const Place at = place(static_cast<uint16_t>(first + i));
        if (at.buffer == nullptr || at.bytes > rte_pktmbuf_tailroom(mbuf)) {
            errors_.add(1);
            rte_pktmbuf_free(mbuf);
            return nullptr;
        }
        std::memcpy(rte_pktmbuf_append(mbuf, static_cast<uint16_t>(at.bytes)), at.buffer, at.bytes);
    }
    return mbuf;
}

void RingReceiver::release() {
    const auto count = static_cast<uint16_t>(next_ - released_);
    if (count == 0) return;
    if (is_client()) {
        for (uint16_t at = released_; at != next_; ++at) {
            MemifDescriptor& offered = descriptor(at);
            offered.flags = 0;
            offered.length = buffer_bytes_;
        }
        __atomic_store_n(&ring_->head, static_cast<uint16_t>(next_ + slots()), __ATOMIC_RELEASE);
    } else {
        __atomic_store_n(&ring_->tail, next_, __ATOMIC_RELEASE);
    }
    released_ = next_;
}

bool RingReceiver::arm() {
    __atomic_store_n(&ring_->flags, uint16_t{0}, __ATOMIC_RELAXED);
    std::atomic_thread_fence(std::memory_order_seq_cst);
    if (filled() == 0) return true;
    disarm();
    return false;
}

}  // namespace rove::datapath
