// SPDX-License-Identifier: Apache-2.0
// The rings of a memif, in place: a frame is built in the buffer that the peer reads it from, and read where the peer
// has built it.
//
// DESIGN NOTES
// 1. The client brings the memory. In the ring to the server it fills slots, and their buffers are its own; in the ring
//    to the client it offers a buffer a slot, and the server fills them. So each ring has one who fills and one who
//    reads, by either role; what differs is which of the two indices is whose, and who says where buffers are.
// 2. The peer can write to all of it at any time. What is taken from there is loaded once and checked, and what is our
//    own is never looked up there: our index, and where our buffers are. An index beyond the ring means that there is
//    nothing, for good: the peer harms itself.
// 3. Who fills rings the doorbell after he has published, unless the reader has masked it. Who goes to sleep unmasks
//    it, and then looks once more. A full barrier stands between the two steps of each, so that one of them sees the
//    other.
//
// Units: slots, of which a frame takes one; only foreign peers have buffers that are smaller than a frame. Bytes.
#pragma once

#include <rte_mbuf.h>
#include <rte_prefetch.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <span>
#include <vector>

#include "datapath/ports/memif_connection.h"
#include "datapath/ports/past_caches.h"
#include "datapath/ports/port.h"

namespace rove::datapath {

// Written by a worker, read by whoever wants to know.
class RingCount {
  public:
    void add(uint64_t n) { count_.store(get() + n, std::memory_order_relaxed); }
    uint64_t get() const { return count_.load(std::memory_order_relaxed); }

  private:
    std::atomic<uint64_t> count_{0};
};

// What both directions know of a ring.
class RingView {
  public:
    using Role = MemifConnection::Role;

  protected:
    RingView(const MemifConnection::Ring& ring, const std::vector<MemifConnection::Region>& regions, Role role,
             bool fills)
        : ring_(ring.ring),
          doorbell_(ring.doorbell),
          log2_slots_(ring.log2_slots),
          buffers_(role == Role::kClient ? ring.buffers : nullptr),
          buffer_bytes_(ring.buffer_bytes),
          to_server_((role == Role::kClient) == fills),
          regions_(regions) {}

    uint32_t slots() const { return 1u << log2_slots_; }
    MemifDescriptor& descriptor(uint16_t index) const { return ring_->descriptors[index & (slots() - 1)]; }
    bool is_client() const { return buffers_ != nullptr; }
    // A client's own buffer of a slot.
    uint8_t* own_buffer(uint16_t index) const { return buffers_ + size_t{index & (slots() - 1)} * buffer_bytes_; }
    // What a descriptor says, loaded once.
    struct Place {
        uint8_t* buffer;  // null: not in the peer's memory
        uint32_t bytes;
        bool more;  // of the frame in the next slot
    };
    Place place(uint16_t index) const {
        const MemifDescriptor& at = descriptor(index);
        const uint32_t length = __atomic_load_n(&at.length, __ATOMIC_RELAXED);
        const bool more = (__atomic_load_n(&at.flags, __ATOMIC_RELAXED) & kMemifNext) != 0;
        if (is_client()) return {length <= buffer_bytes_ ? own_buffer(index) : nullptr, length, more};
        const uint16_t region = __atomic_load_n(&at.region, __ATOMIC_RELAXED);
        const uint32_t offset = __atomic_load_n(&at.offset, __ATOMIC_RELAXED);
        const bool is_there = region < regions_.size() && uint64_t{offset} + length <= regions_[region].bytes;
        return {is_there ? regions_[region].address + offset : nullptr, length, more};
    }

    MemifRing* const ring_;
    const int doorbell_;
    const uint8_t log2_slots_;
    uint8_t* const buffers_;        // a client's; null: the peer's descriptors say where they are
    const uint32_t buffer_bytes_;   // a client's, of each
    const bool to_server_;
    const std::vector<MemifConnection::Region> regions_;
};

// The way out. Only the holder of the worker's drive lock calls it.
class RingSender : private RingView {
  public:
    RingSender(const MemifConnection& connection, Role role);

    // Where the next frame is to be built, if it has at most `bytes`. Null: no slot is free (full()), or the slot's
    // buffer is too small.
    uint8_t* next(uint32_t bytes) {
        if (full()) [[unlikely]] return nullptr;
        if (is_client()) [[likely]] return bytes <= buffer_bytes_ ? own_buffer(next_) : nullptr;
        const Place at = place(next_);
        room_ = at.bytes;
        return bytes <= at.bytes ? at.buffer : nullptr;
    }
    // Copies a frame to where next() said: past the caches, if the buffer has whole lines for it.
    void store(uint8_t* to, const uint8_t* frame, uint32_t bytes);
    PastCaches& past_caches() { return past_caches_; }
    // It was built there.
    void took(uint32_t bytes) {
        put(next_++, bytes, false);
        frames_.add(1);
        bytes_.add(bytes);
    }
    // Copies a frame into as many slots as it takes. False: there are not so many.
    bool send_copy(const uint8_t* frame, uint32_t bytes);
    bool full() { return next_ == end_ && !look(); }
    // Shows the peer what was taken since the last time, and wakes it if it sleeps.
    void publish();

    // What was taken and is not yet published: gives each, as a std::span<const uint8_t>.
    void each_new(auto&& give) const {
        for (uint16_t at = published_; at != next_; ++at)
            if (const Place slot = place(at); slot.buffer != nullptr)
                give(std::span<const uint8_t>(slot.buffer, slot.bytes));
    }

    uint16_t emptied() const { return __atomic_load_n(to_server_ ? &ring_->tail : &ring_->head, __ATOMIC_ACQUIRE); }
    bool has_unread() const { return unread() != 0; }
    uint64_t frames() const { return frames_.get(); }
    uint64_t bytes() const { return bytes_.get(); }

  private:
    uint16_t unread() const {
        const auto free = static_cast<uint16_t>(emptied() - next_);
        return static_cast<uint16_t>(to_server_ ? next_ - emptied() : slots() - free);
    }
    // Whether the peer has emptied slots since it was last asked.
    bool look() {
        const uint32_t taken = unread();
        end_ = static_cast<uint16_t>(next_ + (taken < slots() ? slots() - taken : 0));
        return next_ != end_;
    }
    void put(uint16_t index, uint32_t bytes, bool more) {
        MemifDescriptor& at = descriptor(index);
        at.length = bytes;
        at.flags = more ? kMemifNext : uint16_t{0};
    }

    uint16_t next_ = 0;       // to be filled
    uint16_t end_ = 0;        // of what is known to be free
    uint16_t published_ = 0;
    uint32_t room_ = buffer_bytes_;  // of the buffer that next() has found: a client's own, or else what the peer said
    PastCaches past_caches_;
    RingCount frames_, bytes_;
};

// The way in, as an RxQueue that lends.
class RingReceiver final : public RxQueue, private RingView {
  public:
    // Frames of several slots are put together in mbufs of `pool`.
    RingReceiver(const MemifConnection& connection, Role role, rte_mempool* pool);

    uint16_t burst(rte_mbuf** frames) override;
    void release() override;
    bool arm() override;
    bool has_frames() const { return filled() != 0; }
    // To be polled while it is armed, and read when it has rung.
    int doorbell() const { return doorbell_; }
    void disarm() override { __atomic_store_n(&ring_->flags, kMemifMaskInterrupt, __ATOMIC_RELAXED); }

    uint64_t frames() const { return frames_.get(); }
    uint64_t bytes() const { return bytes_.get(); }
    uint64_t errors() const { return errors_.get(); }    // frames whose descriptors were no good
    uint64_t no_mbuf() const { return no_mbuf_.get(); }

  private:
    // Slots that were filled and not read; none if the index is beyond the ring.
    uint32_t filled() const {
        const uint16_t& index = to_server_ ? ring_->head : ring_->tail;
        const auto filled = static_cast<uint16_t>(__atomic_load_n(&index, __ATOMIC_ACQUIRE) - next_);
        return filled <= slots() ? filled : 0;
    }
    rte_mbuf* gather(uint16_t first, uint16_t count);

    rte_mempool* const pool_;
    uint16_t next_ = 0;      // to be read
    uint16_t released_ = 0;  // before it, the peer has the slots back
    RingCount frames_, bytes_, errors_, no_mbuf_;
    std::array<rte_mbuf, kBurst> views_{};
};

}  // namespace rove::datapath
