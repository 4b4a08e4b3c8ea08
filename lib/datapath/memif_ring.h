// SPDX-License-Identifier: Apache-2.0
// A ring that net_memif shares with its peer, read beside the driver.
//
// Each frame is three lines that the other core wrote last: the ring's index, a descriptor and a buffer. DPDK 22.11's
// driver meets them one after the other, and has nothing by which to ask for them sooner, or to ask whether there are
// frames (rte_eth_rx_queue_count). Its call for nothing is not free either: a client's stores to the ring, and the
// server waits for that line when it sends. So we look at the ring ourselves. Frames come and go by the driver, but for
// send_past_caches(): else all that is done here is to read indices and to say which lines are wanted where, so a wrong
// guess costs time, never a frame.
//
// Layout: the memif protocol's, version 2.0, and of the driver's own objects what leads to the ring. Those are known of
// 22.11 only: with another DPDK, or another driver, find() is false, and all is as without this. The ring is unmapped
// only while the workers pause (interrupts.h), or the port is not ready(). Units: slots; one is a frame, or part of it.
#pragma once

#include <rte_ethdev.h>
#include <rte_mbuf.h>
#include <rte_prefetch.h>

#include <algorithm>
#include <cstdint>

namespace rove::datapath {

class MemifRing {
  public:
    enum class Use : uint8_t { kReceive, kTransmit };

    MemifRing() = default;  // none
    // That of `port`'s RX or TX queue of this number.
    MemifRing(uint16_t port, uint16_t queue, Use use);

    // Looks for the ring where it is now. False: there is none, and nothing else may be called.
    bool find() {
        if (regions_ == nullptr) return false;
        // First: while the port is stopped, ethdev's tables lead to something else than the driver's queues.
        const Region* const region = regions_[0];
        if (region == nullptr || region->address == nullptr) return false;
        region_ = region->address;
        const auto& calls = rte_eth_fp_ops[port_];
        driver_ = static_cast<Queue*>((use_ == Use::kReceive ? calls.rxq : calls.txq).data[queue_]);
        auto* const ring = reinterpret_cast<Ring*>(region_ + driver_->ring_offset);
        return ring == ring_ || meet(ring);
    }

    // RX: slots that the peer has filled and the driver has not read.
    uint16_t filled() const {
        const uint16_t& index = to_server() ? ring_->head : ring_->tail;
        return static_cast<uint16_t>(__atomic_load_n(&index, __ATOMIC_ACQUIRE) - next());
    }
    // RX: whether the driver has buffers to give to the peer, as a client has when the ring is new.
    bool lacks_buffers() const { return !to_server() && static_cast<uint16_t>(ring_->head - next()) != slots(); }
    // RX: asks for the slot that is `ahead` of the next, to read.
    void fetch(uint16_t ahead) {
        if (ahead == 0 || begins_line(ahead)) rte_prefetch0(descriptors() + slot(ahead));
        const uint8_t* const frame = buffer(ahead);
        rte_prefetch0(frame);
        rte_prefetch0(frame + RTE_CACHE_LINE_SIZE);
    }
    // TX: asks for the index that room() reads.
    void fetch_room() const { rte_prefetch0(&emptied_index()); }
    // TX: slots that the peer has emptied so far, modulo 2^16.
    uint16_t emptied() const { return __atomic_load_n(&emptied_index(), __ATOMIC_ACQUIRE); }
    // TX: slots that the peer has not emptied.
    uint32_t unread() const { return slots() - room(); }
    // TX: slots that the peer has emptied.
    uint16_t room() const {
        const auto room = static_cast<uint16_t>(emptied() - next());
        return static_cast<uint16_t>(to_server() ? room + slots() : room);
    }
    // TX: asks for the slot that is `ahead` of the next, to write a frame of `bytes`. One that the peer has not emptied
    // would be taken from under his eyes: he is about to read it.
    void fetch_to_write(uint16_t ahead, uint32_t bytes) {
        if (ahead == 0 || begins_line(ahead)) prefetch_to_write(descriptors() + slot(ahead));
        const uint8_t* const frame = buffer(ahead);
        // The hardware sees by itself that a longer one goes on.
        for (uint32_t at = 0; at < std::min(bytes, 256u); at += RTE_CACHE_LINE_SIZE) prefetch_to_write(frame + at);
    }
    // Of the `count` frames sent or received last, moves the descriptors and the buffers' first lines to the cache that
    // the cores share. The peer gets them sooner from there than from this core's own: half round trip of 8 B WRITEs
    // 590 -> 490 ns (Sapphire Rapids; CPUs without the instruction ignore it).
    void hand_over(uint16_t count);
    // TX: sends what of `frames` the ring takes, as the driver does, but by stores that go past the caches, and does
    // not wake a peer that sleeps. Ends at a frame that is not for this way: of several segments or larger than its
    // buffer, or the buffer is none of region 0, as of zero-copy. Returns how many frames were sent and freed.
    uint16_t send_past_caches(rte_mbuf* const* frames, uint16_t count);
    // Where the frame lies, or will lie, that is `ahead` of the next; a guess, if the driver is zero-copy.
    const uint8_t* buffer(uint16_t ahead) {
        const uint32_t at = slot(ahead);
        if (at == 0) learn();  // each time round: another peer may have come, and its ring lie where the last one's was
        return region_ + first_buffer_ + at * buffer_spacing_;
    }

  private:
    // The protocol's.
    struct Descriptor {
        uint16_t flags, region;
        uint32_t length, offset, metadata;
    };
    struct Ring {
        alignas(RTE_CACHE_LINE_SIZE) uint32_t cookie;
        uint16_t flags, head;
        alignas(RTE_CACHE_LINE_SIZE) uint16_t tail;  // the descriptors follow
    };
    static constexpr uint32_t kDescriptorsPerLine = RTE_CACHE_LINE_SIZE / sizeof(Descriptor);
    // The driver's.
    struct Region {
        uint8_t* address;
        uint32_t bytes;
    };
    struct Queue {
        rte_mempool* pool;
        void* device;
        int to_client;          // the ring's kind: 0, the client fills it (C2S), or 1, the server does (S2C)
        uint16_t region, port;  // region 0 has all rings
        uint32_t ring_offset;
        uint16_t last_head, last_tail;
        rte_mbuf** mbufs;
        uint64_t frames, bytes;
        void* interrupt;
        uint8_t log2_slots;
    };

    static void prefetch_to_write(const void* line) {
#ifdef RTE_ARCH_X86
        // For baseline x86-64 compilers make a prefetch to read of it: the store would still wait for the peer's copy
        // to go.
        asm volatile("prefetchw %0" : : "m"(*static_cast<const uint8_t*>(line)));
#else
        __builtin_prefetch(line, 1);
#endif
    }

    bool to_server() const { return driver_->to_client == 0; }
    Descriptor* descriptors() const { return reinterpret_cast<Descriptor*>(ring_ + 1); }
    uint32_t slots() const { return 1u << driver_->log2_slots; }
    uint16_t next() const {
        if (use_ == Use::kTransmit) return to_server() ? ring_->head : ring_->tail;
        return to_server() ? driver_->last_head : driver_->last_tail;
    }
    // TX: the peer's index.
    const uint16_t& emptied_index() const {
        return to_server() ? ring_->tail : ring_->head;
    }
    uint32_t slot(uint16_t ahead) const { return static_cast<uint16_t>(next() + ahead) & (slots() - 1); }
    bool begins_line(uint16_t ahead) const { return slot(ahead) % kDescriptorsPerLine == 0; }
    // TX: the buffer of a slot if it takes `bytes`, whole lines; else null.
    uint8_t* buffer_for(const Descriptor& descriptor, uint32_t bytes) const;
    // A ring that was not there before: whether it is one.
    bool meet(Ring* ring);
    // Where the buffers are. Those of a ring that is not zero-copy lie side by side, and stay.
    void learn() {
        first_buffer_ = descriptors()[0].offset;
        buffer_spacing_ = descriptors()[1].offset - first_buffer_;
    }

    Region* const* regions_ = nullptr;  // of the port; null: not a memif that we know
    uint16_t port_ = 0, queue_ = 0;
    Use use_ = Use::kReceive;
    Queue* driver_ = nullptr;
    uint8_t* region_ = nullptr;
    Ring* ring_ = nullptr;
    uint32_t first_buffer_ = 0, buffer_spacing_ = 0;  // bytes from region_
};

}  // namespace rove::datapath
