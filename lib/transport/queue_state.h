// SPDX-License-Identifier: Apache-2.0
// Small pieces of a queue pair's state that more than one protocol has by nature.
// Units: nanoseconds of the worker's clock, bytes, packets.
#pragma once

#include <infiniband/verbs.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <memory>
#include <vector>

#include "transport/psn.h"
#include "transport/work_queue.h"
#include "wire/headers.h"

namespace rove::transport {

inline constexpr uint64_t kNever = UINT64_MAX;
inline constexpr uint32_t kMaxMtu = 4096;  // bytes; IBTA 9.4.1

// Where a requester stands in its send queue. The indices are the queue's.
struct SendPosition {
    uint32_t next_wqe = 0;     // the request to send from next
    uint32_t next_packet = 0;  // packets of it already sent
    uint32_t begun_wqe = 0;    // one past the last request of which a packet was ever sent
    // The request `failed_wqe` cannot be sent: it completes with `failure` in its turn, and no other begins.
    bool failed = false;
    uint32_t failed_wqe = 0;
    ibv_wc_status failure = IBV_WC_SUCCESS;
    bool draining = false;   // SQD entered, IBV_EVENT_SQ_DRAINED not yet raised
    uint32_t drain_wqe = 0;  // SQD: requests from here on are not begun

    void fail(uint32_t wqe, ibv_wc_status status) {
        if (failed && static_cast<int32_t>(wqe - failed_wqe) >= 0) return;  // an earlier one ends the QP before
        failed = true;
        failed_wqe = wqe;
        failure = status;
    }
};

// What the program wants to be done about a peer that does not answer.
struct RetryPolicy {
    uint64_t timeout_ns;  // 0: it is waited for as long as it takes
    uint8_t retries;      // retry_cnt
};

// When a peer that does not answer, or that has no receive request, is given up: timeout, retry_cnt and rnr_retry of
// verbs.
//
// A peer that is slow is not dead. Only silence is counted: any valid answer starts the timeouts anew, though it may
// say nothing new, for the peer may be busy with what it has. But one that answers and never goes on is given up as
// well, if later: a path may lose every packet of one size, say.
//
// `ack_deadline` and `progress_ns` are times of Core::silence_ns(). It also counts what the driver's clock leaves out
// because no round was made, so that a peer is given up in time (IBTA C9-141) by a host that is seldom on its core.
// Whatever is measured, and timers that are shorter, are by Core::now_ns, which leaves that out.
struct RetryTimer {
    static constexpr uint64_t kPatience = 16;  // of a peer that only repeats itself, in times of a silent one's

    uint64_t ack_deadline = kNever;  // of the timeout; kNever: nothing is awaited
    // nothing is sent before this; 0: the peer did not say that it has no receive request
    uint64_t rnr_until = 0;
    uint64_t progress_ns = 0;  // when something new was acknowledged, or when something was sent after all was
    uint8_t retries_left = 0;
    uint8_t rnr_retries_left = 0;

    // The next timeout, from now: up to four times what the program says when it has passed before, as IBTA 9.9.2.1.1
    // allows.
    uint64_t next(const RetryPolicy& policy, uint64_t now_ns) const {
        if (policy.timeout_ns == 0) return kNever;
        return now_ns + (policy.timeout_ns << std::clamp(policy.retries - retries_left, 0, 2));
    }
    // The peer answered. True: the timeout starts anew.
    bool on_valid_response(const RetryPolicy& policy, uint64_t now_ns) {
        if (ack_deadline == kNever) return false;
        if (now_ns - progress_ns > kPatience * (policy.retries + 1u) * policy.timeout_ns) return false;
        retries_left = policy.retries;
        ack_deadline = next(policy, now_ns);
        return true;
    }
};

// The receive request that the message in progress has taken: a copy, since the slots of a queue are freed in order.
struct ReceiveSlot {
    bool taken = false;
    RecvWqe wqe;                      // its SGEs are in `sges`
    std::unique_ptr<ibv_sge[]> sges;  // room for max_recv_sge, from creation on
};

// A program that spins on memory answers within this, even when the thread that received shares its core.
inline constexpr uint64_t kAnswerNs = 500'000;
// How long an ACK waits: longer than that thread keeps the core after the last packet (50 us), and little against a
// peer's probe (1 ms). With 20 us, ib_write_lat lost its rhythm in 5 % of its rounds, at 1.6 ms each.
inline constexpr uint64_t kAckWaitNs = 200'000;

// The ACK of a message that the program answers with one of its own waits for that one, so that a peer that has its
// completion also has the answer, and need not be woken for it.
struct DelayedAck {
    bool ping_pong = false;  // the program answers a message with one of its own: ACKs wait for that one
    // the ACK that is due waits until then for a request to go with; 0: it does not wait
    uint64_t not_before = 0;
    uint64_t received_ns = 0;  // when the last message was complete

    // A request is about to go out: so is the ACK that waited for one. True: the request is an answer, and the ACK goes
    // behind it, since a peer may look away when it has the ACK.
    bool piggyback(uint64_t now_ns) {
        ping_pong = received_ns != 0 && now_ns - received_ns < kAnswerNs;
        received_ns = not_before = 0;
        return ping_pong;
    }
};

// What a responder has to send: a READ's data, or the answer to an atomic.
struct Job {
    uint64_t va = 0;  // READ: of the data
    uint32_t rkey = 0;
    uint32_t bytes = 0;
    Psn first;  // PSN of the first packet of the response
    Psn end;    // one past the last
    bool is_atomic = false;
    uint64_t original = 0;  // atomic: the value found
};

// A queue whose room is a power of two, so that its indices may wrap.
template <class T>
struct Ring {
    std::vector<T> slots;
    uint32_t head = 0, tail = 0;  // what it holds: [head, tail)

    bool empty() const { return head == tail; }
    bool full() const { return size() == slots.size(); }
    uint32_t size() const { return tail - head; }
    T& at(uint32_t index) { return slots[index & (slots.size() - 1)]; }
    T& front() { return at(head); }
    T& back() { return at(tail - 1); }
    void push(const T& value) { at(tail++) = value; }
    // For `count` at a time, or a little more. What is there stays.
    void make_room(uint32_t count) {
        const uint32_t larger_size = std::bit_ceil(std::max<uint32_t>(count, 1));
        if (larger_size <= slots.size()) return;
        std::vector<T> larger(larger_size);
        for (uint32_t i = head; i != tail; ++i) larger[i & (larger_size - 1)] = at(i);
        slots = std::move(larger);
    }
};

// The results of the latest atomics, so that a repeated request is answered and not executed again (IBTA 9.4.5).
class AtomicReplay {
  public:
    void record(Psn psn, uint64_t original) { results_[next_++ % results_.size()] = {psn, true, original}; }
    // What the atomic with this PSN found; null: it is not known any more.
    const uint64_t* find(Psn psn) const {
        for (const Result& result : results_)
            if (result.valid && result.psn == psn) return &result.original;
        return nullptr;
    }
    // For `requests` at a time. What is there stays.
    void make_room(uint32_t requests) {
        const uint32_t kept = std::max<uint32_t>(requests, 1);
        if (kept <= results_.size()) return;
        // The oldest first: it is the first to be overwritten.
        if (!results_.empty())
            std::rotate(results_.begin(), results_.begin() + next_ % results_.size(), results_.end());
        next_ = static_cast<uint32_t>(results_.size());
        results_.resize(kept);
    }

  private:
    struct Result {
        Psn psn;
        bool valid = false;
        uint64_t original = 0;
    };
    std::vector<Result> results_;
    uint32_t next_ = 0;
};

// The message that a responder takes packet by packet, for rc and uc: a First was taken, its Last not.
struct MessageInProgress {
    enum class Kind : uint8_t { kNone, kSend, kWrite };

    Kind kind = Kind::kNone;
    uint32_t offset = 0;    // bytes already placed
    uint64_t write_va = 0;  // of a WRITE: as its RETH said
    uint32_t write_rkey = 0;
    uint32_t write_length = 0;
};

}  // namespace rove::transport
