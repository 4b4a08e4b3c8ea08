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
// 3. The sender rings the doorbell after it has published frames, unless the receiver has masked it. A receiver that
// goes
//    to sleep unmasks it, and then looks once more. A full barrier stands between the two steps of each, so that one of
//    them sees the other. The doorbell is an eventfd, or a bell of the mesh (bells.h).
// 4. A client's ring begins with few buffers, which its frames use in turn, whatever slots they have. When all are in
// use,
//    and once large frames have gone through each of them several times, their number doubles. So links that move
//    bytes have as many buffers as slots, which leave the peer's cache before they come round again (link_port.cc),
//    and other links take little memory.
//
// Units: slots, of which a frame takes one; only foreign peers have buffers that are smaller than a frame. Bytes.
#pragma once

#include <rte_mbuf.h>
#include <rte_prefetch.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include "port/memif/memif_connection.h"
#include "port/non_temporal_policy.h"
#include "port/port.h"

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
          bells_(ring.bells),
          bell_(ring.bell),
          log2_slots_(ring.log2_slots),
          buffers_(role == Role::kClient ? ring.buffers : nullptr),
          first_buffer_(ring.first_buffer),
          buffer_bytes_(ring.buffer_bytes),
          buffer_of_(is_client() ? slots() : 0),
          to_server_((role == Role::kClient) == fills),
          regions_(regions) {
        std::iota(buffer_of_.begin(), buffer_of_.end(), uint16_t{0});
    }

    uint32_t slots() const { return 1u << log2_slots_; }
    MemifDescriptor& descriptor(uint16_t index) const { return ring_->descriptors[index & (slots() - 1)]; }
    bool is_client() const { return buffers_ != nullptr; }
    // A client's own buffer of a slot: where it begins, counted from the first buffer.
    uint32_t own_offset(uint16_t index) const { return buffer_of_[index & (slots() - 1)] * buffer_bytes_; }
    uint8_t* own_buffer(uint16_t index) const { return buffers_ + own_offset(index); }
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
    const int doorbell_;     // an eventfd; of a mesh's link its socket
    BellPage* const bells_;  // a mesh's, in the receiver's page; null: the doorbell is an eventfd
    const uint16_t bell_;
    const uint8_t log2_slots_;
    uint8_t* const buffers_;           // a client's; null: the peer's descriptors say where they are
    const uint32_t first_buffer_;      // a client's, where they begin in its region
    const uint32_t buffer_bytes_;      // a client's, of each
    std::vector<uint16_t> buffer_of_;  // a client's, by slot: the number of the buffer
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
        if (full()) [[unlikely]]
            return nullptr;
        if (is_client()) [[likely]]
            return bytes <= buffer_bytes_ ? own_buffer(next_) : nullptr;
        const Place at = place(next_);
        room_ = at.bytes;
        return bytes <= at.bytes ? at.buffer : nullptr;
    }
    // Copies a frame to where next() said: past the caches, if the buffer has whole lines for it.
    void store(uint8_t* to, const uint8_t* frame, uint32_t bytes);
    NonTemporalPolicy& non_temporal() { return non_temporal_; }
    // It was built there.
    void took(uint32_t bytes) {
        put(next_++, bytes, false);
        large_ += bytes >= kLargeBytes;
        frames_.add(1);
        bytes_.add(bytes);
    }
    // Copies a frame into as many slots as it takes. False: there are not so many.
    bool send_copy(const uint8_t* frame, uint32_t bytes);
    bool full() { return next_ == end_ && !look(); }
    // Shows the peer what was taken since the last time, and wakes it if it sleeps.
    void publish();

    // What was taken and is not yet published: gives each, as a std::span<const uint8_t>.
    void for_each_unpublished(auto&& give) const {
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
    static constexpr uint32_t kFirstBuffers = 8;
    static constexpr uint32_t kLargeBytes = 1024;
    static constexpr uint32_t kLapsToGrow = 4;  // of large frames through all buffers (design note 4)

    // Whether the peer has emptied slots since it was last asked.
    bool look() {
        const uint32_t taken = unread();
        uint32_t free = taken < used_buffers_ ? used_buffers_ - taken : 0;
        if (used_buffers_ < slots() && taken <= used_buffers_) [[unlikely]]
            free = choose_buffers(free);
        end_ = static_cast<uint16_t>(next_ + free);
        return free != 0;
    }
    // Chooses the buffers of the next `free` slots, and of more if it takes new ones into use. Returns how many.
    uint32_t choose_buffers(uint32_t free);
    void ring_doorbell();
    void put(uint16_t index, uint32_t bytes, bool more) {
        MemifDescriptor& at = descriptor(index);
        if (is_client()) at.offset = first_buffer_ + own_offset(index);
        at.length = bytes;
        at.flags = more ? kMemifNext : uint16_t{0};
    }

    uint16_t next_ = 0;  // to be filled
    uint16_t end_ = 0;   // of what is known to be free
    uint16_t published_ = 0;
    uint32_t used_buffers_ = slots();  // a power of 2
    uint32_t large_ = 0;               // frames of kLargeBytes or more since there are so many
    uint64_t rung_sleep_ = 0;          // the peer's sleep (BellPage) that was ended last
    uint32_t room_ = buffer_bytes_;  // of the buffer that next() has found: a client's own, or else what the peer said
    NonTemporalPolicy non_temporal_;
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
    // To be polled while it is armed, and read when it has rung. -1: it is a bell.
    int doorbell() const { return doorbell_; }
    BellPage* bells() const { return bells_; }
    uint16_t bell() const { return bell_; }
    void disarm() override { __atomic_store_n(&ring_->flags, kMemifMaskInterrupt, __ATOMIC_RELAXED); }

    uint64_t frames() const { return frames_.get(); }
    uint64_t bytes() const { return bytes_.get(); }
    uint64_t errors() const { return errors_.get(); }  // frames whose descriptors were no good
    uint64_t no_mbuf() const { return no_mbuf_.get(); }

    // State of LinkQueues: whether it polls this ring, and whether frames came since the last call.
    bool is_polled() const { return polled_; }
    void set_polled(bool polled) { polled_ = polled; }
    bool take_activity() { return std::exchange(seen_frames_, frames_.get()) != frames_.get(); }

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
    bool polled_ = false;
    uint64_t seen_frames_ = 0;
    RingCount frames_, bytes_, errors_, no_mbuf_;
    std::array<rte_mbuf, kBurst> views_{};
};

}  // namespace rove::datapath
