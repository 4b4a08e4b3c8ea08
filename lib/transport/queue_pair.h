// SPDX-License-Identifier: Apache-2.0
// A queue pair's state. It belongs to one worker; control calls change it only while they hold that worker.
// Units: times in nanoseconds of the worker's clock (0 = not set), sizes in bytes, packets where named.
#pragma once

#include <infiniband/verbs.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "transport/completion_queue.h"
#include "transport/congestion/dcqcn.h"
#include "transport/counters.h"
#include "transport/mp/state.h"
#include "transport/multicast.h"
#include "transport/psn.h"
#include "transport/work_queue.h"
#include "wire/frame.h"

namespace rove::transport {

inline constexpr uint64_t kNever = UINT64_MAX;
inline constexpr uint32_t kMaxMessageBytes = 1u << 31;       // IBTA 9.4.1
inline constexpr uint32_t kMaxRdAtomic = 128;           // requests, both ways; what ConnectX devices offer

// Where a QP's or an address handle's packets go. Filled by the datapath when the address is resolved.
struct Path {
    wire::Flow flow;
    wire::FlowTemplate headers;
    uint16_t port = 0;                                  // the device's port, as in QueuePair::port
    bool loopback = false;                              // the destination is the device itself
    bool multicast = false;                             // ... a group, which QPs of the device may have joined too
};

// Requester half. Go-back-N always resumes at `una`, so what is on its way is described by two positions and no packet list.
struct Requester {
    uint32_t next_wqe = 0;          // SQ index of the request to send from next
    uint32_t next_packet = 0;       // packets of it already sent
    uint32_t begun_wqe = 0;         // one past the last request of which a packet was ever sent
    Psn next_psn;                   // of the next packet to send
    Psn max_psn;                    // one past the highest PSN ever sent
    Psn una;                        // oldest PSN not acknowledged
    Psn rewound_to;                 // `una` at the last rewind; NAKs and gaps at the same place do not rewind again
    bool rewound = false;           // since the last progress
    Counter cause = Counter::kResentTimeout;    // of the last rewind
    bool failed = false;            // the request at next_wqe cannot be sent; it completes with `failure` in its turn
    ibv_wc_status failure = IBV_WC_SUCCESS;
    bool draining = false;          // SQD entered, IBV_EVENT_SQ_DRAINED not yet raised
    uint32_t drain_wqe = 0;         // SQD: requests from here on are not begun
    uint8_t retries_left = 0;
    uint8_t rnr_retries_left = 0;
    uint16_t reads_outstanding = 0; // READ and atomic request packets without all their responses
    uint16_t since_ack_req = 0;     // packets sent since the last with AckReq
    uint8_t probes = 0;             // tail probes since the last progress
    bool probed = false;            // the packet `probe_psn` was sent as a probe, and no ACK has come since
    Psn probe_psn;
    uint64_t ack_deadline = kNever; // the verbs' timeout
    uint64_t probe_deadline = kNever;
    uint64_t rnr_until = 0;         // nothing is sent before this
    uint64_t heard_ns = 0;          // since when the peer is silent
    uint64_t silence_ns = 0;        // how long it is usually silent, at most, with packets under way
    uint64_t flight_silence_ns = 0; // the same of the present flight, which ends when a packet behind `flight_end` is answered
    Psn flight_end;
    bool flight_probed = false;     // a probe was sent during it
};

// What a responder owes: a READ's data, or an atomic's (possibly replayed) answer.
struct ResponderJob {
    uint64_t va = 0;                // READ: of the next byte to send
    uint32_t rkey = 0;
    uint32_t left = 0;              // READ: bytes not yet sent
    Psn first;                      // first PSN of the response
    Psn next;                       // PSN of the next packet
    Psn end;                        // one past the last
    uint32_t msn = 0;
    bool is_atomic = false;
    bool started = false;           // READ: a packet was sent
    uint64_t original = 0;          // atomic: the value found
};

// The result of an executed atomic, kept so that a repeated request is answered and not executed again (IBTA 9.4.5).
struct AtomicResult {
    Psn psn;
    bool valid = false;
    uint64_t original = 0;
};

// The ACK of a message that the program answers with one of its own waits for that one, so that a peer that has its
// completion also has the answer, and need not be woken for it.
// A program that spins on memory answers within this, even when the thread that received shares its core.
inline constexpr uint64_t kAnswerNs = 500'000;
// How long an ACK waits: longer than that thread keeps the core after the last packet (50 us), and little against a peer's
// probe (1 ms). With 20 us, ib_write_lat lost its rhythm in 5 % of its rounds, at 1.6 ms each.
inline constexpr uint64_t kAckWaitNs = 200'000;

struct Responder {
    enum class Message : uint8_t { kNone, kSend, kWrite };

    Psn epsn;                       // expected
    uint32_t msn = 0;
    Message message = Message::kNone;   // in progress: a First was taken, its Last not
    bool nak_sent = false;          // a sequence NAK was sent for epsn
    bool ack_due = false;
    bool ping_pong = false;         // the program answers a message with one of its own: ACKs wait for that one
    uint64_t ack_not_before = 0;    // the ACK that is due waits until then for a request to go with
    uint64_t received_ns = 0;       // when the last message was complete
    uint8_t ack_syndrome = wire::kSyndromeAck;
    Psn ack_psn;
    uint32_t offset = 0;            // bytes of the message in progress already placed
    uint64_t write_va = 0;          // WRITE in progress
    uint32_t write_rkey = 0;
    uint32_t write_length = 0;
    bool has_receive = false;       // `receive` holds a request taken for the message in progress
    bool established = false;       // IBV_EVENT_COMM_EST was raised
    uint64_t last_cnp_ns = 0;
    RecvWqe receive;                // copied from the RQ or SRQ; its SGEs are in `receive_sges`
    std::unique_ptr<ibv_sge[]> receive_sges;
    // Ring of jobs [job_head, job_tail); its size is a power of two, at least twice max_dest_rd_atomic (make_room).
    std::vector<ResponderJob> jobs;
    uint32_t job_head = 0, job_tail = 0;
    std::vector<AtomicResult> atomics;
    uint32_t next_atomic = 0;

    // For `requests` READs and atomics at a time, at RTR and when the program wants more. What is there stays.
    void make_room(uint32_t requests);

    // Of rc: whether there is an answer to send, now or when it has waited.
    bool owes() const { return job_head != job_tail || ack_due; }

    // A request is about to go out: so is the ACK that waited for one. True: the request is an answer, and the ACK goes
    // behind it, since a peer may look away when it has the ACK.
    bool accompany(uint64_t now_ns) {
        ping_pong = received_ns != 0 && now_ns - received_ns < kAnswerNs;
        received_ns = ack_not_before = 0;
        return ping_pong;
    }
};

class HelloPeers;

// What was said with the peer about mp before RTR (mp/hello.h).
struct HelloState {
    enum class Answer : uint8_t { kNone, kYes, kNo };
    enum class Choice : uint8_t { kOpen, kRc, kMp };
    uint32_t nonce = 0;                                 // of our question
    std::atomic<Answer> answer = Answer::kNone;         // to it; read by the thread that waits
    Choice choice = Choice::kOpen;                      // ours
    HelloPeers* peers = nullptr;                        // where its device keeps who speaks mp; null: nowhere
    // Whom we told that we will speak it, while it was open.
    uint32_t promised_qpn = 0;
    wire::Gid promised{};

    bool has_promised(uint32_t qpn, const wire::Gid& peer) const { return qpn == promised_qpn && peer == promised; }
    void reset() {
        nonce = promised_qpn = 0;
        answer = Answer::kNone;
        choice = Choice::kOpen;
    }
};

struct QueuePair {
    // Identity, fixed at creation.
    uint32_t qpn = 0;
    ibv_qp_type type = IBV_QPT_RC;
    bool sq_sig_all = false;
    uint16_t port = 0;
    wire::MacAddress mac{};                             // of its device
    bool blocks_own_multicast = false;                  // IBV_QP_CREATE_BLOCK_SELF_MCAST_LB
    uint16_t worker = 0;
    uint8_t priority = 1;                               // doorbell ring and transmit order: 0 HIGH, 1 MEDIUM, 2 LOW
    const void* pd = nullptr;
    void* owner = nullptr;                              // verbs' object
    CompletionQueue* send_cq = nullptr;
    CompletionQueue* recv_cq = nullptr;
    SharedRecvQueue* srq = nullptr;
    uint32_t max_send_sge = 0, max_recv_sge = 0, max_inline = 0;
    SendQueue sq;
    RecvQueue rq;

    // Set by modify.
    // Read by posting threads too. Sequentially consistent when written: after ERR is set, either flushing sees what was posted,
    // or who posted sees ERR and asks for another flush.
    std::atomic<ibv_qp_state> state{IBV_QPS_RESET};
    uint32_t access = 0;                                // what the peer may do: IBV_ACCESS_REMOTE_*
    uint32_t mtu = 1024;                                // path MTU, bytes
    uint32_t remote_qpn = 0;
    uint32_t qkey = 0;
    uint16_t pkey = wire::kDefaultPkey;
    uint8_t max_rd_atomic = 0;                          // as requester
    uint8_t max_dest_rd_atomic = 0;                     // as responder
    uint8_t timeout = 0;                                // 4.096 us * 2^timeout; 0 = never
    uint8_t retry_cnt = 0;
    uint8_t rnr_retry = 0;                              // 7 = for ever
    uint8_t min_rnr_timer = 0;                          // code, IBTA table 45
    Path path;                                          // connected types

    Requester requester;
    Responder responder;
    Dcqcn congestion;
    HelloState hello;
    std::unique_ptr<Multipath> multipath;               // null: rc. Chosen before RTR (Engine::start_multipath)

    // The engine's scheduling.
    bool active = false;                                // in an active list
    bool requests_first = false;                        // in its next turn: in the last one they found no room
    QueuePair* next_active = nullptr;
    uint32_t heap_index = UINT32_MAX;                   // among the deadlines; UINT32_MAX = it has none
    std::atomic<bool> doorbell{false};                  // rung and not yet taken by the worker

    // Of the packets that it speaks.
    wire::Service service() const {
        if (type == IBV_QPT_RC) return multipath != nullptr ? wire::Service::kMp : wire::Service::kRc;
        return type == IBV_QPT_UC ? wire::Service::kUc : wire::Service::kUd;
    }
    bool is_connected() const { return type == IBV_QPT_RC || type == IBV_QPT_UC; }
    bool may_receive() const {
        const ibv_qp_state now = state.load(std::memory_order_relaxed);
        return now >= IBV_QPS_RTR && now <= IBV_QPS_SQE;        // RTR, RTS, SQD, SQE
    }
};

// All QPs of the process by number: low 16 bits index, high 8 bits a generation, so that late packets of a destroyed QP do
// not find its successor. Written by control calls while no worker runs.
class QueuePairTable {
  public:
    static constexpr uint32_t kEntries = 1u << 16;
    static constexpr uint32_t kFirst = 16;              // 0 and 1 are special, IBTA 3.5.3; the rest reserved for ours

    QueuePairTable();
    // Gives `qp` a number. Returns false when all are taken.
    bool insert(QueuePair& qp);
    void remove(QueuePair& qp);
    QueuePair* find(uint32_t qpn) const {
        QueuePair* qp = entries_[qpn & (kEntries - 1)];
        return qp != nullptr && qp->qpn == qpn ? qp : nullptr;
    }
    // Calls `visit(QueuePair&)` for each. Only while no worker runs, or none of those that are touched.
    void for_each(auto&& visit) const {
        for (QueuePair* qp : entries_)
            if (qp != nullptr) visit(*qp);
    }

    MulticastGroups& groups() { return groups_; }
    const MulticastGroups& groups() const { return groups_; }

  private:
    std::vector<QueuePair*> entries_;
    std::vector<uint8_t> generations_;
    uint32_t next_ = kFirst;
    MulticastGroups groups_;
};

}  // namespace rove::transport
