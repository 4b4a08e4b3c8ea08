// SPDX-License-Identifier: Apache-2.0
// The rings of a memif, used in place: a frame is built in the buffer from which the peer reads it, and is read where
// the peer has built it.
//
// DESIGN NOTES
// 1. The client provides the memory. In the ring to the server, the client fills slots, and their buffers are its own.
//    In the ring to the client, the client offers one buffer per slot, and the server fills it. So each ring has one
//    sender and one receiver, whichever role they have. The role decides which of the two indices a side owns, and
//    which side says where the buffers are.
// 2. The peer can write to all of the memory at any time. A value from there is loaded once and checked. Our own index
//    and the addresses of our own buffers are never read back from there. If an index is beyond the ring, the ring
//    counts as empty from then on, so such a peer harms only itself.
// 3. The sender rings the doorbell after it has published frames, unless the receiver has masked it. A receiver that is
//    about to sleep unmasks it and then checks for frames once more. Each side has a full barrier between its two
//    steps, so one of them sees the other. The doorbell is an eventfd, or a bell of the mesh (bells.h).
// 4. A client's ring starts with few buffers, which its frames use in turn, whatever their slots are. Their number
//    doubles when all are in use, and also when large frames have passed several times through each of them. So a link
//    that moves many bytes has as many buffers as slots, and a buffer leaves the peer's cache before it is used again
//    (link_port.cc). Other links take little memory.
//
// Units: bytes, and slots, of which a frame takes one. Only foreign peers have buffers that are smaller than a frame.
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

// A counter that one worker writes and any thread may read.
class RingCount {
  public:
    void add(uint64_t n) { count_.store(get() + n, std::memory_order_relaxed); }
    uint64_t get() const { return count_.load(std::memory_order_relaxed); }

  private:
    std::atomic<uint64_t> count_{0};
};

// The members that both directions of a ring have in common.
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
    // Returns where a client's own buffer for a slot begins, counted from the first buffer.
    uint32_t own_offset(uint16_t index) const { return buffer_of_[index & (slots() - 1)] * buffer_bytes_; }
    uint8_t* own_buffer(uint16_t index) const { return buffers_ + own_offset(index); }
    // The content of a descriptor, loaded once.
    struct Place {
        uint8_t* buffer;  // null if it is not within the shared memory
        uint32_t bytes;
        bool more;  // true if the frame continues in the next slot
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
    const int doorbell_;     // an eventfd, or the socket of a mesh's link
    BellPage* const bells_;  // a mesh's page of bells at the receiver; null if the doorbell is an eventfd
    const uint16_t bell_;
    const uint8_t log2_slots_;
    uint8_t* const buffers_;           // a client's; null if the peer's descriptors say where they are
    const uint32_t first_buffer_;      // offset of a client's buffers in their region
    const uint32_t buffer_bytes_;      // size of each of a client's buffers
    std::vector<uint16_t> buffer_of_;  // number of a client's buffer, indexed by slot
    const bool to_server_;
    const std::vector<MemifConnection::Region> regions_;
};

// The sending side of a ring. Only the thread that holds the worker's drive lock calls it.
class RingSender : private RingView {
  public:
    RingSender(const MemifConnection& connection, Role role);

    // Returns where to build the next frame if it has at most `bytes`. Returns null if no slot is free (full()), or the
    // slot's buffer is too small.
    uint8_t* next(uint32_t bytes) {
        if (full()) [[unlikely]]
            return nullptr;
        if (is_client()) [[likely]]
            return bytes <= buffer_bytes_ ? own_buffer(next_) : nullptr;
        const Place at = place(next_);
        room_ = at.bytes;
        return bytes <= at.bytes ? at.buffer : nullptr;
    }
    // Copies a frame to the address that next() returned. It uses non-temporal stores if the buffer has room for whole
    // lines.
    void store(uint8_t* to, const uint8_t* frame, uint32_t bytes);
    NonTemporalPolicy& non_temporal() { return non_temporal_; }
    // Records that a frame was built at the address that next() returned.
    void took(uint32_t bytes) {
        put(next_++, bytes, false);
        large_ += bytes >= kLargeBytes;
        frames_.add(1);
        bytes_.add(bytes);
    }
    // Copies a frame into as many slots as it needs. Returns false if there are too few.
    bool send_copy(const uint8_t* frame, uint32_t bytes);
    bool full() { return next_ == end_ && !look(); }
    // Makes the frames since the last call visible to the peer, and wakes the peer if it sleeps.
    void publish();

    // Passes each slot that was filled but not yet published to `give`, as a std::span<const uint8_t>.
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
    static constexpr uint32_t kLapsToGrow = 4;  // passes of large frames through all buffers (design note 4)

    // Reads again which slots the peer has emptied. Returns true if there is a free slot.
    bool look() {
        const uint32_t taken = unread();
        uint32_t free = taken < used_buffers_ ? used_buffers_ - taken : 0;
        if (used_buffers_ < slots() && taken <= used_buffers_) [[unlikely]]
            free = choose_buffers(free);
        end_ = static_cast<uint16_t>(next_ + free);
        return free != 0;
    }
    // Chooses the buffers of the next `free` slots, and of more slots if it takes new buffers into use. Returns the
    // number of slots.
    uint32_t choose_buffers(uint32_t free);
    void ring_doorbell();
    void put(uint16_t index, uint32_t bytes, bool more) {
        MemifDescriptor& at = descriptor(index);
        if (is_client()) at.offset = first_buffer_ + own_offset(index);
        at.length = bytes;
        at.flags = more ? kMemifNext : uint16_t{0};
    }

    uint16_t next_ = 0;  // next slot to fill
    uint16_t end_ = 0;   // end of the slots that are known to be free
    uint16_t published_ = 0;
    uint32_t used_buffers_ = slots();  // a power of 2
    uint32_t large_ = 0;               // frames of at least kLargeBytes since used_buffers_ last grew
    uint64_t rung_sleep_ = 0;          // the peer's last sleep (BellPage) that we have ended
    uint32_t room_ = buffer_bytes_;    // size of the buffer from next(): a client's own, else as the peer said
    NonTemporalPolicy non_temporal_;
    RingCount frames_, bytes_;
};

// The receiving side of a ring. It is a zero-copy RxQueue.
class RingReceiver final : public RxQueue, private RingView {
  public:
    // Takes a pool for frames of several slots, which are assembled in its mbufs.
    RingReceiver(const MemifConnection& connection, Role role, rte_mempool* pool);

    uint16_t burst(rte_mbuf** frames) override;
    void release() override;
    bool arm() override;
    bool has_frames() const { return filled() != 0; }
    // Returns the file to poll while the receiver is armed, and to read when it has rung. Returns -1 if the doorbell is
    // a bell.
    int doorbell() const { return doorbell_; }
    BellPage* bells() const { return bells_; }
    uint16_t bell() const { return bell_; }
    void disarm() override { __atomic_store_n(&ring_->flags, kMemifMaskInterrupt, __ATOMIC_RELAXED); }

    uint64_t frames() const { return frames_.get(); }
    uint64_t bytes() const { return bytes_.get(); }
    uint64_t errors() const { return errors_.get(); }  // frames with invalid descriptors
    uint64_t no_mbuf() const { return no_mbuf_.get(); }

    // The state that LinkQueues keeps here: whether it polls this ring, and whether frames have arrived since the last
    // call.
    bool is_polled() const { return polled_; }
    void set_polled(bool polled) { polled_ = polled; }
    bool take_activity() { return std::exchange(seen_frames_, frames_.get()) != frames_.get(); }

  private:
    // Returns the number of slots that were filled and not read, or 0 if the index is beyond the ring.
    uint32_t filled() const {
        const uint16_t& index = to_server_ ? ring_->head : ring_->tail;
        const auto filled = static_cast<uint16_t>(__atomic_load_n(&index, __ATOMIC_ACQUIRE) - next_);
        return filled <= slots() ? filled : 0;
    }
    rte_mbuf* gather(uint16_t first, uint16_t count);

    rte_mempool* const pool_;
    uint16_t next_ = 0;      // next slot to read
    uint16_t released_ = 0;  // first slot that was not returned to the peer
    bool polled_ = false;
    uint64_t seen_frames_ = 0;
    RingCount frames_, bytes_, errors_, no_mbuf_;
    std::array<rte_mbuf, kBurst> views_{};
};

}  // namespace rove::datapath
