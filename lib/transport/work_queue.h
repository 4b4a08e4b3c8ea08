// SPDX-License-Identifier: Apache-2.0
// Send and receive queues: rings of work requests between one posting side (verbs, under the object's lock) and the
// worker that owns the QP. Units: bytes; indices increase modulo 2^32 and are masked on access.
#pragma once

#include <infiniband/verbs.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <memory>

#include "base/spin_lock.h"
#include "transport/extended_verbs.h"
#include "transport/owner.h"

namespace rove::transport {

struct Path;
struct QueuePair;
class CompletionQueue;

inline constexpr uint32_t kMaxSge = 32;
inline constexpr uint32_t kMaxInlineBytes = 1024;
inline constexpr uint32_t kMaxWorkRequests = 32768;

// A send work request from posting to completion. Its SGEs, or its inline data, follow it in the ring's slot.
struct alignas(64) SendWqe {
    uint64_t wr_id = 0;
    uint64_t remote_addr = 0;  // RDMA and atomics
    union {
        uint64_t compare_add = 0;  // atomics; ATOMIC_WRITE without an SGE: the word in memory order
        const Path* path;          // UD: the destination; owned by the address handle, which outlives the request
        // BIND_MW: its key. The range is `remote_addr`, `swap` bytes of region `rkey`, and the new key is in
        // `immediate`.
        uint32_t window;
    };
    union {
        uint64_t swap = 0;    // atomics
        uint32_t remote_qpn;  // UD
    };
    union {
        uint32_t rkey = 0;     // RDMA and atomics
        uint32_t remote_qkey;  // UD
    };
    // Host order; the rkey to invalidate for SEND_WITH_INV and LOCAL_INV; for FLUSH, kFlushGlobal | kFlushPersistent,
    // and from bit 4 on kFlushRange or kFlushRegion.
    uint32_t immediate = 0;
    uint32_t length = 0;      // bytes of the whole message
    uint32_t first_psn = 0;   // set by the requester when it first sends
    uint32_t packets = 0;     // PSNs of the message; set with first_psn
    uint8_t opcode = 0;       // ibv_wr_opcode
    uint8_t send_flags = 0;   // ibv_send_flags, ROVE_SEND_SYNC; SIGNALED already includes sq_sig_all
    uint8_t num_sge = 0;      // 0 with inline data
    uint8_t bind_access = 0;  // BIND_MW: IBV_ACCESS_REMOTE_* | IBV_ACCESS_ZERO_BASED
    union {
        uint32_t mp_msn = 0;  // mp: for a SEND or WRITE, as in MPETH; set with first_psn
        uint32_t xrc_srqn;    // XRC: number of the SRQ at the peer
    };
    // Mp: for a READ or atomic, the PSN of the first packet of its answer in the response stream; set with first_psn.
    uint32_t mp_first_response = 0;

    ibv_sge* sges() { return reinterpret_cast<ibv_sge*>(this + 1); }
    uint8_t* inline_data() { return reinterpret_cast<uint8_t*>(this + 1); }
    bool is_inline() const { return (send_flags & IBV_SEND_INLINE) != 0; }
    bool is_signaled() const { return (send_flags & IBV_SEND_SIGNALED) != 0; }
    bool is_write() const { return opcode == IBV_WR_RDMA_WRITE || opcode == IBV_WR_RDMA_WRITE_WITH_IMM; }
    bool is_read() const { return opcode == IBV_WR_RDMA_READ; }
    bool is_atomic() const { return opcode == IBV_WR_ATOMIC_CMP_AND_SWP || opcode == IBV_WR_ATOMIC_FETCH_AND_ADD; }
    bool is_local() const { return opcode == IBV_WR_LOCAL_INV || opcode == IBV_WR_BIND_MW; }
    bool is_atomic_write() const { return opcode == kWrAtomicWrite; }
    bool is_flush() const { return opcode == kWrFlush; }
    // Returns true for requests that a READ response without data answers.
    bool awaits_empty_response() const { return is_atomic_write() || is_flush(); }
    bool awaits_read_response() const { return is_read() || awaits_empty_response(); }
    bool awaits_response() const { return awaits_read_response() || is_atomic(); }
    uint32_t response_bytes() const { return is_read() ? length : 0; }  // data bytes in READ responses
    // Returns true for a SEND or WRITE without fence whose data is in one piece.
    bool is_plain() const {
        return !awaits_response() && !is_local() && (send_flags & IBV_SEND_FENCE) == 0 && length != 0 &&
               (num_sge == 1 || is_inline());
    }
    // Returns operation, flags and SGEs without the signaled flag: equal for requests that are sent alike.
    uint32_t kind() const {
        constexpr uint32_t kCompared = 0xFF'FFFF & ~(uint32_t{IBV_SEND_SIGNALED} << 8);
        return (uint32_t{opcode} | uint32_t{send_flags} << 8 | uint32_t{num_sge} << 16 | uint32_t{bind_access} << 24) &
               kCompared;  // all four: one load
    }
};

struct RecvWqe {
    uint64_t wr_id = 0;
    uint32_t num_sge = 0;
    uint32_t length = 0;  // sum of the SGEs
    ibv_sge* sges() { return reinterpret_cast<ibv_sge*>(this + 1); }
};

// A ring of fixed-size slots with one producer and one consumer. The producer's store of `produced_` (release) pairs
// with the consumer's load (acquire), and vice versa for `consumed_`: otherwise a slot could be read before it is
// written.
class SlotRing {
  public:
    // Allocates at least `count` slots. Returns false without memory.
    bool init(uint32_t count, size_t slot_bytes);

    uint32_t capacity() const { return mask_ + 1; }
    size_t memory_bytes() const { return static_cast<size_t>(capacity()) * slot_bytes_; }
    void* slot(uint32_t index) const { return memory_.get() + static_cast<size_t>(index & mask_) * slot_bytes_; }

    // Producer: returns the slots that may be written now, counted from produced().
    uint32_t room() const {
        return limit_ - (produced_.load(std::memory_order_relaxed) - consumed_.load(std::memory_order_acquire));
    }
    uint32_t produced() const { return produced_.load(std::memory_order_relaxed); }
    void publish(uint32_t count) { produced_.store(produced() + count, std::memory_order_release); }

    // Consumer.
    uint32_t available_until() const { return produced_.load(std::memory_order_acquire); }
    uint32_t consumed() const { return consumed_.load(std::memory_order_relaxed); }
    void consume_to(uint32_t index) { consumed_.store(index, std::memory_order_release); }

    // Moves the waiting entries to a ring of another size, while no thread posts or consumes. Returns 0, EINVAL if more
    // than `count` wait, or ENOMEM.
    int resize(uint32_t count);

    void reset() {
        produced_.store(0, std::memory_order_relaxed);
        consumed_.store(0, std::memory_order_relaxed);
    }

    // Held by posting threads, and by the thread that flushes receives while it reads the posted requests. It is in the
    // line that posting writes to anyway.
    alignas(64) SpinLock posting;

  private:
    struct Free {
        void operator()(uint8_t* p) const { std::free(p); }
    };
    std::atomic<uint32_t> produced_{0};
    alignas(64) std::atomic<uint32_t> consumed_{0};
    alignas(64) std::unique_ptr<uint8_t[], Free> memory_;
    size_t slot_bytes_ = 0;
    uint32_t mask_ = 0;
    uint32_t limit_ = 0;  // the requested size; capacity() is the next power of two
};

struct SendQueue : SlotRing {
    bool init(uint32_t max_wr, uint32_t max_sge, uint32_t max_inline);
    SendWqe& at(uint32_t index) const { return *static_cast<SendWqe*>(slot(index)); }
};

struct RecvQueue : SlotRing {
    bool init(uint32_t max_wr, uint32_t max_sge);
    RecvWqe& at(uint32_t index) const { return *static_cast<RecvWqe*>(slot(index)); }
};

// A receive queue from which many QPs take requests, possibly on several workers. A request is copied out when it is
// taken, so that slots are freed in order even if messages end in another order.
struct SharedRecvQueue {
    RecvQueue ring;
    uint32_t max_sge = 0;
    const void* pd = nullptr;        // domain of its requests, whichever QP takes them
    SpinLock taking;                 // held for one copy; contended only between workers
    std::atomic<uint32_t> limit{0};  // armed limit, 0 = not armed (ibv_modify_srq)
    Owner* owner = nullptr;          // for async events
    // XRC (annex A14), set at creation:
    uint32_t number = 0;            // the number in packets
    const void* xrcd = nullptr;     // only QPs of this domain take from it; null: not for XRC
    CompletionQueue* cq = nullptr;  // the queue in which its receives complete, whichever QP took them
    // The TGT QPs whose last request named it, so that destroying it takes time in proportion to their number
    // (QueuePair::join_xrc_srq()).
    SpinLock members_lock;
    QueuePair* members = nullptr;
};

}  // namespace rove::transport
