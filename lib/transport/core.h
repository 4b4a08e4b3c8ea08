// SPDX-License-Identifier: Apache-2.0
// What requester, responder and datagram logic share within one engine: its tables, its lists, completions and errors.
// Units: nanoseconds, bytes.
#pragma once

#include <endian.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <memory>
#include <span>
#include <utility>

#include "transport/counters.h"
#include "transport/deadline_heap.h"
#include "transport/memory.h"
#include "transport/qp_table.h"
#include "transport/queue_pair.h"
#include "transport/send_op.h"
#include "transport/time_wait.h"
#include "wire/frame.h"

namespace rove::transport {

// How an RC QP speaks: over one path as IBTA says, or over many, as only rove does.
enum class Mode : uint8_t { kRc, kMp, kAuto };  // auto: mp if the peer does too

// mp: keeps WRITEs in order in memory when packets overtake each other. EU-7 compares the three.
enum class Ordering : uint8_t {
    kReceiverHold,  // what is early waits at the receiver
    kSenderDelay,   // the last packet of a WRITE waits at the sender until all before it have arrived; Eunomia A.1
    kOptimistic,    // nothing but ROVE_SEND_SYNC; MP-RDMA 3.4
};

// mp: the port from which an acknowledgement leaves, and so its way through the network.
enum class AckPath : uint8_t {
    // That of the first data packet that it acknowledges. Where switches hash source and destination symmetrically it
    // goes back the way that the data came, which works; with other hashes it goes another way, that of no other
    // packet.
    kAsData,
    kRandom,  // drawn for each
    kOne,     // the connection's own
};

struct Config {
    Mode mode = Mode::kAuto;
    // a QP's packets on their way; more overruns a port's rings, less starves it
    uint32_t window_packets = 256;
    uint32_t ack_interval_packets = 32;  // AckReq at least this often, so that the window moves
    uint32_t quantum_packets = 32;       // a QP's turn among the active ones
    // Floor of the verbs' timeout, as NICs have one: a shared-mode peer may be off its core, and a virtual machine off
    // its host's, for 10 ms. What is lost is sent again long before.
    uint64_t min_timeout_ns = 16'000'000;
    uint64_t min_probe_ns = 1'000'000;  // tail loss probe: not before
    DcqcnConfig dcqcn;
    // Of mp:
    PathsConfig paths;
    ReorderConfig reorder;
    Ordering ordering = Ordering::kReceiverHold;
    bool batch_acks = true;  // BX-3
    AckPath ack_path = AckPath::kAsData;
    uint64_t seed = 1;  // of the random paths
};

// A neighbour is suspected of having moved after so many probes without an answer, of which each waits twice as long as
// the one before: with the first of them after 1 ms, a peer that was off its core for a few milliseconds is not.
inline constexpr uint8_t kSuspectProbes = 3;
inline constexpr uint32_t kHeaderBytes = 74;  // what a packet adds to its payload on the wire: Ethernet to RETH, ICRC

// A source for Core::scatter: bytes that need no verification.
struct BytesReader {
    const uint8_t* at;
    [[gnu::always_inline]] void read(void* to, uint32_t bytes) {
        wire::copy(to, at, bytes);
        at += bytes;
    }
};

// What a BIND_MW asks for.
inline MemoryTable::Bind bind_request(const SendWqe& wqe) {
    return {.window = wqe.window,
            .rkey = wqe.immediate,
            .lkey = wqe.rkey,
            .iova = wqe.remote_addr,
            .length = wqe.swap,
            .access = wqe.bind_access};
}

// What became of a frame that may be what most packets of large messages are: the next one, from the middle of the
// message in progress. Where its payload belongs is known without trusting a byte of it, and no program may look there
// yet, so it is verified while it is copied to its place. Unless it was taken, nothing but that memory has changed.
enum class DirectPlacement : uint8_t { kNotEligible, kBadIcrc, kPlaced };

// Whose packets follow each other: requests, or the data of a READ.
enum class BurstKind : uint8_t { kNone, kRequests, kAnswers };

// QPs that have something to send, in turn.
struct ActiveList {
    QueuePair* head = nullptr;
    QueuePair* tail = nullptr;
    uint32_t rest = 0;  // packets left of the head's turn that was cut short; 0: a whole one

    void push(QueuePair& qp) {
        qp.next_active = nullptr;
        (tail == nullptr ? head : tail->next_active) = &qp;
        tail = &qp;
    }
    void pop() {
        head = head->next_active;
        if (head == nullptr) tail = nullptr;
        rest = 0;
    }
    void resume(QueuePair& qp, uint32_t packets) {
        qp.active = true;
        qp.next_active = head;
        head = &qp;
        if (tail == nullptr) tail = &qp;
        rest = packets;
    }
    void remove(QueuePair& qp);
};

template <class S>
struct Core {
    Config config;
    QueuePairTable& qps;
    MemoryTable& memory;
    TimeWaitTable& time_wait;
    S& sink;
    uint16_t worker = 0;  // whose QPs these are, as in QueuePair::worker
    Counters counters{};
    DeadlineHeap deadlines{};
    std::unique_ptr<MultipathShared> multipath{};  // made with the first QP in mp mode
    ActiveList active[3]{};                        // by QueuePair::priority
    uint32_t class_deficit[3]{};  // packets of higher classes that left while the class had something to send
    uint64_t now_ns = 0;
    uint64_t stall_offset_ns = 0;  // how far that is behind a clock that does not stand still
    uint64_t missed_ns = 0;        // of it, what a peer's silence contains (RetryTimer)
    bool refused = false;          // ready() was false since this was last cleared
    bool overrun = false;          // a completion was lost, and the QPs of its CQ are still to enter ERR
    // What recover-inl.h must know of a step that was left in an access to the program's memory.
    QueuePair* turn = nullptr;              // whose turn or deadline it is; null: a packet is received
    bool in_timeout = false;                // its deadline
    BurstKind run = BurstKind::kNone;       // of packets that are being sent
    uint32_t run_packets = 0;               // of them, with the one that is being built
    const EarlyPacket* released = nullptr;  // mp: that has its effect now
    QueuePair* member = nullptr;            // of a multicast group, that gets a datagram

    // Whether the sink takes one more packet, to anywhere or on this path. When it does not, it may a moment later: the
    // QP whose turn this ends gets another.
    bool ready() { return note(sink.ready()); }
    bool ready(const Path& path) { return note(sink.ready(path)); }
    // ... or an acknowledgement, for which a driver may have a queue of its own.
    bool ready_to_acknowledge(const Path& path) {
        if constexpr (requires { sink.ready_to_acknowledge(path); })
            return note(sink.ready_to_acknowledge(path));
        else
            return ready(path);
    }
    bool note(bool ready) {
        refused |= !ready;
        return ready;
    }

    void activate(QueuePair& qp) {
        if (qp.active) return;
        qp.active = true;
        active[qp.priority].push(qp);
    }

    // `write` as of CompletionQueue::push().
    [[gnu::always_inline]] void complete(CompletionQueue* cq, bool solicited, auto&& write) {
        bool notify = false;
        if (!cq->push(solicited, &notify, write, now_ns + stall_offset_ns)) {
            ++counters[Counter::kCqOverruns];
            if (cq->first_loss()) sink.event(IBV_EVENT_CQ_ERR, *cq);
            overrun = true;
        }
        if (notify) sink.notify(*cq);
    }

    // Ends the request `index` and the unsignaled ones before it. Their slots are free before the completion can be
    // seen: a program may post again as soon as it has polled it.
    void complete_send(QueuePair& qp, uint32_t index, ibv_wc_status status) {
        const SendWqe& wqe = qp.sq.at(index);
        if (status == IBV_WC_SUCCESS && !wqe.is_signaled()) {
            qp.sq.consume_to(index + 1);
            return;
        }
        if (status != IBV_WC_SUCCESS && status != IBV_WC_WR_FLUSH_ERR) ++counters[Counter::kLocalErrors];
        const uint64_t wr_id = wqe.wr_id;
        const uint32_t length = wqe.length;
        const ibv_wc_opcode opcode = completion_opcode(wqe.opcode);
        qp.sq.consume_to(index + 1);  // and the request may be overwritten
        complete(qp.send_cq, false, [&](ibv_wc& wc) {
            wc.wr_id = wr_id;
            wc.status = status;
            wc.qp_num = qp.qpn;
            wc.byte_len = length;
            wc.opcode = opcode;
        });
    }

    // Completes the receive that the message in progress holds.
    [[gnu::always_inline]] void complete_receive(QueuePair& qp, bool solicited, auto&& write) {
        qp.slot.taken = false;
        complete(qp.recv_cq, solicited, [&](ibv_wc& wc) {
            wc.wr_id = qp.slot.wqe.wr_id;
            wc.qp_num = qp.qpn;
            write(wc);
        });
    }

    // What the completion of a receive that failed says; for complete().
    static auto failed_receive(ibv_wc_status status) {
        return [status](ibv_wc& wc) {
            wc.status = status;
            wc.opcode = IBV_WC_RECV;
        };
    }

    // The receive that is held fails, unless it is flushed with the others, and the QP with it.
    void fail_receive(QueuePair& qp, ibv_wc_status status) {
        if (status != IBV_WC_WR_FLUSH_ERR) {
            ++counters[Counter::kLocalErrors];
            if (qp.slot.taken) complete_receive(qp, true, failed_receive(status));
        }
        enter_error(qp);
    }

    // Nobody waits for what is on its way any more.
    void abandon(Rc& rc) {
        RcRequester& r = rc.requester;
        counters[Counter::kPsnsAbandoned] += static_cast<uint32_t>(r.max_psn - r.una);
        r.una = r.next_psn = r.max_psn;
    }

    // What was posted to send is flushed: nothing of it goes out or is waited for.
    void stop_sending(Rc& rc) {
        abandon(rc);
        rc.requester.reads_outstanding = 0;
        rc.requester.probe_deadline = kNever;
        stop(rc.requester.retry);
    }
    void stop_sending(Mp& mp) { stop(mp.retry); }
    void stop_sending(Uc&) {}
    void stop_sending(Ud&) {}
    static void stop(RetryTimer& retry) {
        retry.ack_deadline = kNever;
        retry.rnr_until = 0;
    }

    // No message goes on. What the responder still has to answer, an ACK or the NAK that says why, goes out.
    void stop_receiving(QueuePair& qp, Rc& rc) {
        rc.responder.message.kind = MessageInProgress::Kind::kNone;
        if (rc.responder.ack_due) activate(qp);
    }
    void stop_receiving(QueuePair&, Mp& mp) { mp.next_write.known = false; }
    void stop_receiving(QueuePair&, Uc& uc) { uc.message.kind = MessageInProgress::Kind::kNone; }
    void stop_receiving(QueuePair&, Ud&) {}

    void flush_sends(QueuePair& qp) {
        uint32_t index = qp.sq.consumed();
        const uint32_t end = qp.sq.available_until();
        for (; index != end; ++index) complete_send(qp, index, IBV_WC_WR_FLUSH_ERR);
        SendPosition& position = qp.position;
        position.next_wqe = position.begun_wqe = end;
        position.next_packet = 0;
        position.failed = position.draining = false;
        qp.visit([&](auto& protocol) { stop_sending(protocol); });
    }

    void flush_receives(QueuePair& qp) {
        const auto flushed = failed_receive(IBV_WC_WR_FLUSH_ERR);
        if (qp.slot.taken) complete_receive(qp, false, flushed);
        if (qp.srq != nullptr) return;
        uint32_t index = qp.rq.consumed();
        // The posting thread reads the state before it unlocks: if we do not see what it posted, it sees ERR, and asks
        // for another flush.
        qp.rq.posting.lock();
        const uint32_t end = qp.rq.available_until();
        qp.rq.posting.unlock();
        for (; index != end; ++index) {
            const uint64_t wr_id = qp.rq.at(index).wr_id;
            qp.rq.consume_to(index + 1);
            complete(qp.recv_cq, false, [&](ibv_wc& wc) {
                wc.wr_id = wr_id;
                wc.qp_num = qp.qpn;
                flushed(wc);
            });
        }
    }

    // Everything posted is flushed (IBTA 10.3.1.5).
    void enter_error(QueuePair& qp) {
        if (qp.state == IBV_QPS_ERR) return;
        qp.state = IBV_QPS_ERR;
        flush_sends(qp);
        flush_receives(qp);
        // Of an XRC TGT QP, that only acts as an SRQ does, nothing is posted there.
        if (qp.srq != nullptr && qp.type != IBV_QPT_XRC_RECV) sink.event(IBV_EVENT_QP_LAST_WQE_REACHED, qp);
        qp.visit([&](auto& protocol) { stop_receiving(qp, protocol); });
    }

    // IBTA 11.6.3.1, 11.6.3.2: a QP whose completions cannot be reported is in error. Called from outside of the
    // engine's other work, which is in the middle of a QP when a completion is lost. QPs of other workers follow with
    // their own next completion.
    [[gnu::noinline]] void fail_overrun() {
        overrun = false;
        qps.for_each_of(worker, [&](QueuePair& qp) {
            if (!qp.has_overrun_cq()) return;
            if (qp.state < IBV_QPS_INIT || qp.state == IBV_QPS_ERR) return;
            sink.event(IBV_EVENT_QP_FATAL, qp);
            enter_error(qp);
        });
        overrun = false;  // what was flushed found no room either
    }

    // Reads `bytes` from `source` (a wire::VerifyingReader, or a BytesReader) to offset `offset` of a scatter list.
    template <class Source>
    [[gnu::always_inline]] ibv_wc_status scatter(const ibv_sge* sges, uint32_t count, uint32_t offset, Source& source,
                                                 uint32_t bytes, const void* pd) {
        if (count == 1 && uint64_t{offset} + bytes <= sges->length) [[likely]] {
            uint8_t* target = memory.translate(sges->lkey, sges->addr + offset, bytes, IBV_ACCESS_LOCAL_WRITE, pd);
            if (target == nullptr) return IBV_WC_LOC_PROT_ERR;
            source.read(target, bytes);
            return IBV_WC_SUCCESS;
        }
        return scatter_many(sges, count, offset, source, bytes, pd);
    }

    template <class Source>
    [[gnu::noinline]] ibv_wc_status scatter_many(const ibv_sge* sges, uint32_t count, uint32_t offset, Source& source,
                                                 uint32_t bytes, const void* pd) {
        for (uint32_t i = 0; i < count && bytes != 0; ++i) {
            if (offset >= sges[i].length) {
                offset -= sges[i].length;
                continue;
            }
            const uint32_t part = std::min(sges[i].length - offset, bytes);
            uint8_t* target = memory.translate(sges[i].lkey, sges[i].addr + offset, part, IBV_ACCESS_LOCAL_WRITE, pd);
            if (target == nullptr) return IBV_WC_LOC_PROT_ERR;
            source.read(target, part);
            bytes -= part;
            offset = 0;
        }
        return bytes == 0 ? IBV_WC_SUCCESS : IBV_WC_LOC_LEN_ERR;
    }

    // Describes bytes [offset, offset + bytes) of a request's data in `out`, which has room for kMaxSge. Returns the
    // segments, or -1 when an lkey, its bounds or its protection domain do not hold.
    [[gnu::always_inline]] int gather(SendWqe& wqe, uint32_t offset, uint32_t bytes, const void* pd,
                                      wire::Segment* out) {
        if (bytes == 0) return 0;
        if (wqe.is_inline()) {
            out[0] = {wqe.inline_data() + offset, bytes};
            return 1;
        }
        const ibv_sge* sges = wqe.sges();
        if (wqe.num_sge == 1) [[likely]] {
            out[0] = {memory.translate(sges->lkey, sges->addr + offset, bytes, 0, pd), bytes};
            return out[0].data != nullptr ? 1 : -1;
        }
        return gather_many(wqe, offset, bytes, pd, out);
    }

    // The packet of an ATOMIC WRITE or a FLUSH but for its BTH, MPETH and path. `out`: room for kMaxSge. Returns the
    // segments of its payload, or -1 as gather() does.
    int fill_empty_answered(SendWqe& wqe, const void* pd, wire::Headers& h, wire::Op& op, wire::Segment* out) {
        h.reth = {wqe.remote_addr, wqe.rkey, wqe.length};
        if (wqe.is_flush()) {
            op = wire::Op::kFlush;
            h.feth = {.placement = static_cast<uint8_t>(wqe.immediate & 0xF),
                      .selectivity = static_cast<uint8_t>(wqe.immediate >> 4)};
            return 0;
        }
        op = wire::Op::kAtomicWrite;
        if (wqe.num_sge != 0 || wqe.is_inline()) return gather(wqe, 0, kAtomicWriteBytes, pd, out);
        out[0] = {&wqe.compare_add, kAtomicWriteBytes};
        return 1;
    }

    [[gnu::noinline]] int gather_many(SendWqe& wqe, uint32_t offset, uint32_t bytes, const void* pd,
                                      wire::Segment* out) {
        const ibv_sge* sges = wqe.sges();
        int segments = 0;
        for (uint32_t i = 0; i < wqe.num_sge && bytes != 0; ++i) {
            if (offset >= sges[i].length) {
                offset -= sges[i].length;
                continue;
            }
            const uint32_t part = std::min(sges[i].length - offset, bytes);
            const uint8_t* source = memory.translate(sges[i].lkey, sges[i].addr + offset, part, 0, pd);
            if (source == nullptr) return -1;
            out[segments++] = {source, part};
            bytes -= part;
            offset = 0;
        }
        return segments;
    }

    // Takes the next receive request of the QP or its SRQ into qp.slot.
    enum class ReceiveLookup : uint8_t { kNone, kTooShort, kYes };
    // With `min_length`, one that is shorter stays where it is (UD drops the packet instead).
    ReceiveLookup take_receive(QueuePair& qp, uint32_t min_length = 0) {
        ReceiveSlot& slot = qp.slot;
        SharedRecvQueue* srq = qp.srq;
        RecvQueue& ring = srq != nullptr ? srq->ring : qp.rq;
        if (srq != nullptr) srq->taking.lock();
        const uint32_t index = ring.consumed();
        ReceiveLookup taken = ReceiveLookup::kNone;
        bool limit_reached = false;
        if (index != ring.available_until()) {
            RecvWqe& wqe = ring.at(index);
            taken = wqe.length < min_length ? ReceiveLookup::kTooShort : ReceiveLookup::kYes;
            if (taken == ReceiveLookup::kYes) {
                slot.wqe = wqe;
                wire::copy(slot.sges.get(), wqe.sges(), wqe.num_sge * sizeof(ibv_sge));
                slot.taken = true;
                ring.consume_to(index + 1);
                if (srq != nullptr) {
                    const uint32_t limit = srq->limit.load(std::memory_order_relaxed);
                    limit_reached = limit != 0 && ring.available_until() - (index + 1) < limit;
                    if (limit_reached) srq->limit.store(0, std::memory_order_relaxed);
                }
            }
        }
        if (srq != nullptr) srq->taking.unlock();
        if (limit_reached) sink.event(IBV_EVENT_SRQ_LIMIT_REACHED, *srq);
        return taken;
    }

    // XRC: the SRQ that a request of the TGT QP names; null: there is none in the QP's domain.
    SharedRecvQueue* find_xrc_srq(const QueuePair& qp, uint32_t number) const {
        SharedRecvQueue* const srq = qps.find_xrc_srq(number);
        return srq != nullptr && srq->xrcd == qp.xrcd ? srq : nullptr;
    }
    // The QP acts as that SRQ from now on. False: there is none, or the message in progress is another's.
    bool enter_xrc_srq(QueuePair& qp, uint32_t number, bool in_message) {
        SharedRecvQueue* const srq = find_xrc_srq(qp, number);
        if (srq == nullptr || (in_message && srq != qp.srq)) return false;
        if (srq != qp.srq) qp.join_xrc_srq(*srq);
        return true;
    }

    // A local operation at the head of what is to be sent: bind or invalidate. False: the request fails in its turn.
    bool execute_local(QueuePair& qp, SendWqe& wqe) {
        const bool bind = wqe.opcode == IBV_WR_BIND_MW;
        const bool done = bind ? memory.bind(bind_request(wqe), qp) : memory.invalidate(wqe.immediate, qp);
        if (!done) qp.position.fail(qp.position.next_wqe, bind ? IBV_WC_MW_BIND_ERR : IBV_WC_LOC_PROT_ERR);
        return done;
    }

    // The clock of RetryTimer.
    uint64_t silence_ns() const { return now_ns + missed_ns; }
    // Returns when `retry` times out, by `now_ns`, if nothing more is missed until then.
    uint64_t ack_deadline(const RetryTimer& retry) const {
        if (retry.ack_deadline == kNever) return kNever;
        return retry.ack_deadline - std::min(retry.ack_deadline, missed_ns);
    }
    RetryPolicy retry_policy(const QueuePair& qp) const {
        return {.timeout_ns = qp.timeout == 0 ? 0 : std::max<uint64_t>(4096ull << qp.timeout, config.min_timeout_ns),
                .retries = qp.retry_cnt};
    }

    // SQD: what has begun is sent to its end, and nothing else begins.
    void enter_drain(QueuePair& qp) {
        qp.position.draining = true;
        qp.position.drain_wqe = qp.position.begun_wqe;
        check_drained(qp);
    }
    void check_drained(QueuePair& qp) {
        SendPosition& position = qp.position;
        if (!position.draining || qp.state != IBV_QPS_SQD || qp.sq.consumed() != position.begun_wqe) return;
        position.draining = false;
        sink.event(IBV_EVENT_SQ_DRAINED, qp);
    }

    // rc, XRC, uc: packet number `packet` of a SEND or WRITE goes out. Gives the bytes of its payload, or that they may
    // not be read.
    static constexpr uint32_t kNotReadable = UINT32_MAX;
    [[gnu::always_inline]] uint32_t send_packet(QueuePair& qp, wire::Service service, SendWqe& wqe, uint32_t packet,
                                                Psn psn, bool ack_req) {
        const uint32_t offset = packet * qp.mtu;
        const bool last = packet + 1 == wqe.packets;
        const uint32_t bytes = std::min(qp.mtu, wqe.length - offset);
        wire::Segment segments[kMaxSge];
        const int count = gather(wqe, offset, bytes, qp.pd, segments);
        if (count < 0) return kNotReadable;
        wire::Headers h;
        h.bth.opcode = wire::opcode(service, send_op(wqe.opcode, packet == 0, last));
        if (last) h.bth.flags |= solicited_flag(wqe);
        h.bth.pkey = qp.pkey;
        h.bth.dest_qpn = qp.remote_qpn;
        h.bth.ack_req = ack_req;
        h.bth.psn = psn.value();
        h.reth = {wqe.remote_addr, wqe.rkey, wqe.length};
        h.immediate = h.invalidate_rkey = wqe.immediate;
        if (service == wire::Service::kXrc) h.xrc_srqn = wqe.xrc_srqn;
        send(qp.path, h, {segments, static_cast<size_t>(count)}, bytes);
        return bytes;
    }

    // rc, uc: `count` packets from the middle of a SEND or WRITE of one SGE, of which `packet` is the first. What is
    // the same for all is looked up once; `set` sets AckReq. Gives how many went out; 0: the next one is to be looked
    // at alone.
    [[gnu::always_inline]] uint32_t send_middle_packets(QueuePair& qp, wire::Service service, SendWqe& wqe,
                                                        uint32_t packet, Psn psn, uint32_t count, auto&& set) {
        wire::Segment data;
        if (gather(wqe, packet * qp.mtu, count * qp.mtu, qp.pd, &data) != 1) return 0;
        wire::Headers h;
        h.bth.opcode = wire::opcode(service, send_op(wqe.opcode, false, false));
        h.bth.pkey = qp.pkey;
        h.bth.dest_qpn = qp.remote_qpn;
        h.bth.psn = psn.value();
        if (service == wire::Service::kXrc) h.xrc_srqn = wqe.xrc_srqn;
        const auto* at = static_cast<const uint8_t*>(data.data);
        return send_burst(BurstKind::kRequests, qp.path, h, qp.mtu, count, [&](wire::Headers& next) {
            set(next);
            return std::exchange(at, at + qp.mtu);
        });
    }

    // A request came again: perhaps the answer to it does not arrive where the peer is by now.
    void note_duplicate(const QueuePair& qp) {
        ++counters[Counter::kRxDuplicate];
        sink.suspect(qp.path);
    }

    // mp: a packet that will be acknowledged went out.
    void count_sent(bool again) {
        ++counters[Counter::kPsnsSent];
        if (!again) [[likely]]
            return;
        ++counters[Counter::kPsnsLost];
        ++counters[Counter::kRetransmittedPackets];
    }

    void send(const Path& path, const wire::Headers& headers, std::span<const wire::Segment> payload, uint32_t bytes) {
        ++counters[Counter::kTxPackets];
        counters[Counter::kTxBytes] += bytes;
        sink.send(path, headers, payload);
    }

    // Sends packets that follow each other and are alike: at most `count`, of `bytes` of payload. `headers` have the
    // BTH of the first. Before each, `next(headers)` sets AckReq, VP and what follows BTH, and says where the payload
    // is; null: here the run ends. Returns how many.
    [[gnu::always_inline]] uint32_t send_burst(BurstKind whose, const Path& path, wire::Headers& headers,
                                               uint32_t bytes, uint32_t count, auto&& next) {
        auto series = sink.series(path, headers, bytes);
        run = whose;
        uint32_t sent = 0;
        for (; sent != count && ready(path); ++sent) {
            const void* const payload = next(headers);
            if (payload == nullptr) break;
            run_packets = sent + 1;
            series.send(headers, payload);
            headers.bth.psn = (headers.bth.psn + 1) & Psn::kMask;
        }
        run = BurstKind::kNone;
        counters[Counter::kTxPackets] += sent;
        counters[Counter::kTxBytes] += uint64_t{sent} * bytes;
        return sent;
    }
};

}  // namespace rove::transport
