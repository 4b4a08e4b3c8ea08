// SPDX-License-Identifier: Apache-2.0
// Small pieces of a queue pair's state that several protocols share. Units: nanoseconds of the worker's clock, bytes,
// packets.
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

// The position of a requester in its send queue. The indices are the queue's.
struct SendPosition {
    uint32_t next_wqe = 0;     // the request to send from next
    uint32_t next_packet = 0;  // its packets already sent
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

// The program's policy for a peer that does not answer.
struct RetryPolicy {
    uint64_t timeout_ns;  // 0: no limit
    uint8_t retries;      // retry_cnt
};

// Decides when to fail a QP whose peer does not answer or has no receive request: timeout, retry_cnt and rnr_retry of
// verbs.
//
// A slow peer is not dead. Only silence counts: any valid answer restarts the timeouts even if it acknowledges nothing
// new, for the peer may be busy with earlier requests. A peer that answers without progress also fails, but later: a
// path may lose every packet of one size, for example.
//
// `ack_deadline` and `progress_ns` are times of Core::silence_ns(). It includes the time that the driver's clock leaves
// out because no round was made, so that a QP fails in time (IBTA C9-141) on a host that is rarely on its core. All
// measured times and shorter timers use Core::now_ns, which leaves that time out.
struct RetryTimer {
    static constexpr uint64_t kPatience = 16;  // factor for a peer that only repeats itself, relative to a silent one

    uint64_t ack_deadline = kNever;  // time of the timeout; kNever: nothing is awaited
    // Nothing is sent before this time; 0: the peer has not reported a missing receive request.
    uint64_t rnr_until = 0;
    uint64_t progress_ns = 0;  // the last time that something new was acknowledged, or sent after everything was
    uint8_t retries_left = 0;
    uint8_t rnr_retries_left = 0;

    // Returns the next timeout from now on: up to four times the program's value, as IBTA 9.9.2.1.1 allows.
    uint64_t next(const RetryPolicy& policy, uint64_t now_ns) const {
        if (policy.timeout_ns == 0) return kNever;
        return now_ns + (policy.timeout_ns << std::clamp(policy.retries - retries_left, 0, 2));
    }
    // Handles an answer of the peer. Returns true if the timeout restarts.
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

// A program that spins on memory answers within this time, even if the receiving thread shares its core.
inline constexpr uint64_t kAnswerNs = 500'000;
// The time that an ACK waits: longer than that thread keeps the core after the last packet (50 us), and short against a
// peer's probe (1 ms). With 20 us, ib_write_lat lost its rhythm in 5 % of its rounds, at 1.6 ms each.
inline constexpr uint64_t kAckWaitNs = 200'000;

// The ACK of a message that the program answers with a message of its own waits for that one, so that a peer that sees
// its completion also has the answer and need not be woken for it.
struct DelayedAck {
    bool ping_pong = false;  // the program answers a message with one of its own: ACKs wait for that one
    // The due ACK waits until this time for a request to accompany; 0: it does not wait.
    uint64_t not_before = 0;
    uint64_t received_ns = 0;  // time at which the last message was complete

    // Releases the ACK that waited for a request, which is about to be sent. Returns true if the request is an answer:
    // the ACK then follows it, since a peer may stop polling when it has the ACK.
    bool piggyback(uint64_t now_ns) {
        ping_pong = received_ns != 0 && now_ns - received_ns < kAnswerNs;
        received_ns = not_before = 0;
        return ping_pong;
    }
};

// A response that a responder has to send: READ data, or the result of an atomic.
struct Job {
    uint64_t va = 0;  // READ: address of the data
    uint32_t rkey = 0;
    uint32_t bytes = 0;
    Psn first;  // PSN of the first packet of the response
    Psn end;    // one past the last
    bool is_atomic = false;
    uint64_t original = 0;  // atomic: the value found
};

// A queue whose size is a power of two, so that its indices may wrap.
template <class T>
struct Ring {
    std::vector<T> slots;
    uint32_t head = 0, tail = 0;  // content: [head, tail)

    bool empty() const { return head == tail; }
    bool full() const { return size() == slots.size(); }
    uint32_t size() const { return tail - head; }
    T& at(uint32_t index) { return slots[index & (slots.size() - 1)]; }
    T& front() { return at(head); }
    T& back() { return at(tail - 1); }
    void push(const T& value) { at(tail++) = value; }
    // Makes room for at least `count` entries and keeps the content.
    void make_room(uint32_t count) {
        const uint32_t larger_size = std::bit_ceil(std::max<uint32_t>(count, 1));
        if (larger_size <= slots.size()) return;
        std::vector<T> larger(larger_size);
        for (uint32_t i = head; i != tail; ++i) larger[i & (larger_size - 1)] = at(i);
        slots = std::move(larger);
    }
};

// The results of the latest atomics, so that a repeated request is answered rather than executed again (IBTA 9.4.5).
class AtomicReplay {
  public:
    void record(Psn psn, uint64_t original) {
        results_[next_] = {psn, true, original};
        next_ = (next_ + 1) % size();
    }
    // Returns the result of the latest atomic with this PSN, or null if it is no longer known. An earlier one may have
    // the same PSN, 2^24 packets before.
    const uint64_t* find(Psn psn) const {
        for (uint32_t age = 1; age <= size(); ++age) {
            const Result& result = results_[(next_ + size() - age) % size()];
            if (result.valid && result.psn == psn) return &result.original;
        }
        return nullptr;
    }
    // Makes room for `requests` results and keeps the content.
    void make_room(uint32_t requests) {
        const uint32_t kept = std::max<uint32_t>(requests, 1);
        if (kept <= size()) return;
        // The oldest comes first, since it is the first to be overwritten.
        std::rotate(results_.begin(), results_.begin() + next_, results_.end());
        next_ = size();
        results_.resize(kept);
    }

  private:
    struct Result {
        Psn psn;
        bool valid = false;
        uint64_t original = 0;
    };
    uint32_t size() const { return static_cast<uint32_t>(results_.size()); }

    std::vector<Result> results_;
    uint32_t next_ = 0;  // index of the result that is overwritten next
};

// The message that a responder receives packet by packet, for rc and uc, after its First and before its Last.
struct MessageInProgress {
    enum class Kind : uint8_t { kNone, kSend, kWrite };

    Kind kind = Kind::kNone;
    uint32_t offset = 0;    // bytes already placed
    uint64_t write_va = 0;  // for a WRITE: from its RETH
    uint32_t write_rkey = 0;
    uint32_t write_length = 0;
};

}  // namespace rove::transport
