// SPDX-License-Identifier: Apache-2.0
// The state that requester, responder and datagram logic of one engine share: tables, lists, completions and errors.
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

// The protocol of an RC QP: one path as in IBTA, or many paths, between rove hosts only.
enum class Mode : uint8_t { kRc, kMp, kAuto };  // auto: mp if the peer supports it

// mp: the way to keep WRITEs in order in memory when packets overtake each other. EU-7 compares the three.
enum class Ordering : uint8_t {
    kReceiverHold,  // early packets wait at the receiver
    // The last packet of a WRITE waits at the sender until all packets before it have arrived; Eunomia A.1.
    kSenderDelay,
    kOptimistic,  // only ROVE_SEND_SYNC orders; MP-RDMA 3.4
};

// mp: the source port of acknowledgements, which decides their path through the network.
enum class AckPath : uint8_t {
    // The port of the first data packet that it acknowledges. Where switches hash source and destination symmetrically,
    // it returns by the path of the data, which works. With other hashes it takes another path, which no other packet
    // uses.
    kAsData,
    kRandom,  // random for each
    kOne,     // the connection's own port
};

struct Config {
    Mode mode = Mode::kAuto;
    // The limit of a QP's packets in flight. More overrun a port's rings, fewer starve it.
    uint32_t window_packets = 256;
    bool adapts_window = true;           // rc reduces it by delay and losses (BX-12), which a NIC does not
    uint32_t ack_interval_packets = 32;  // AckReq is set at least this often, so that the window moves
    uint32_t quantum_packets = 32;       // a QP's turn among the active ones
    // The floor of the verbs' timeout, as NICs have one: a peer in shared mode may be off its core, and a virtual
    // machine off its host's, for 10 ms. Lost packets are retransmitted long before.
    uint64_t min_timeout_ns = 16'000'000;
    uint64_t min_probe_ns = 1'000'000;  // earliest tail loss probe
    DcqcnConfig dcqcn;
    // These belong to mp.
    PathsConfig paths;
    ReorderConfig reorder;
    // The memory of a worker for early packets that wait for their turn (EU-7). Memory is used as packets need it.
    uint32_t held_bytes = 64 << 20;
    Ordering ordering = Ordering::kReceiverHold;
    bool batch_acks = true;  // BX-3
    AckPath ack_path = AckPath::kAsData;
    uint64_t seed = 1;  // seed of the random paths
};

// The number of probes without an answer after which a neighbour may have moved. Each waits twice as long as the one
// before; the first comes after 1 ms, so a peer that was off its core for a few milliseconds is not suspected.
inline constexpr uint8_t kSuspectProbes = 3;
inline constexpr uint32_t kInitialWindowBytes = 128 << 10;  // rc, at least; PathsConfig::initial_window is 32 packets
inline constexpr uint32_t kHeaderBytes = 74;                // overhead of a packet on the wire: Ethernet to RETH, ICRC

// A source for Core::scatter: bytes that need no verification.
struct BytesReader {
    const uint8_t* at;
    [[gnu::always_inline]] void read(void* to, uint32_t bytes) {
        wire::copy(to, at, bytes);
        at += bytes;
    }
};

// Returns the parameters of a BIND_MW.
inline MemoryTable::Bind bind_request(const SendWqe& wqe) {
    return {.window = wqe.window,
            .rkey = wqe.immediate,
            .lkey = wqe.rkey,
            .iova = wqe.remote_addr,
            .length = wqe.swap,
            .access = wqe.bind_access};
}

// The result of the in-place receive path for a frame: the next packet from the middle of the message in progress,
// which most packets of large messages are. The destination of its payload is known without trusting a byte of it, and
// no program may read there yet, so the ICRC is verified while the payload is copied. Unless it was placed, only that
// memory has changed.
enum class DirectPlacement : uint8_t { kNotEligible, kBadIcrc, kPlaced };

// The packets of a burst: requests, or READ data.
enum class BurstKind : uint8_t { kNone, kRequests, kAnswers };

// QPs that have something to send, in turn.
struct ActiveList {
    QueuePair* head = nullptr;
    QueuePair* tail = nullptr;
    uint32_t rest = 0;  // packets left of the head's interrupted turn; 0: a whole turn

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
    uint16_t worker = 0;  // the owner of these QPs, as in QueuePair::worker
    Counters counters{};
    DeadlineHeap deadlines{};
    std::unique_ptr<MultipathShared> multipath{};  // made with the first QP in mp mode
    ActiveList active[3]{};                        // indexed by QueuePair::priority
    uint32_t class_deficit[3]{};  // packets of higher classes sent while the class had something to send
    uint64_t now_ns = 0;
    uint64_t stall_offset_ns = 0;  // the lag of `now_ns` behind a clock that never stops
    uint64_t missed_ns = 0;        // the part of it that counts as silence of a peer (RetryTimer)
    bool refused = false;          // ready() returned false since this was last cleared
    bool overrun = false;          // a completion was lost, and the QPs of its CQ are still to enter ERR
    // State for recover-inl.h about a step that a fault in the program's memory ended.
    QueuePair* turn = nullptr;              // the QP whose turn or deadline it is; null while a packet is received
    bool in_timeout = false;                // the timer of `turn` runs
    BurstKind run = BurstKind::kNone;       // the burst that is being sent
    uint32_t run_packets = 0;               // its packets, including the one that is being built
    const EarlyPacket* released = nullptr;  // mp: the early packet that is being applied
    QueuePair* member = nullptr;            // the member of a multicast group that receives the datagram

    // Return true if the sink takes one more packet, to anywhere or on this path. A sink that is full may have room a
    // moment later, so the QP whose turn this ends gets another.
    bool ready() { return note(sink.ready()); }
    bool ready(const Path& path) { return note(sink.ready(path)); }
    // Returns true if the sink takes an acknowledgement, for which a driver may have a queue of its own.
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

    // Adds a completion with `write` as in CompletionQueue::push().
    [[gnu::always_inline]] void complete(CompletionQueue* cq, bool solicited, auto&& write) {
        bool notify = false;
        if (!cq->push(solicited, &notify, write, now_ns + stall_offset_ns)) {
            ++counters[Counter::kCqOverruns];
            if (cq->first_loss()) sink.event(IBV_EVENT_CQ_ERR, *cq);
            overrun = true;
        }
        if (notify) sink.notify(*cq);
    }

    // Completes the request `index` and the unsignaled ones before it. Their slots are free before the completion
    // becomes visible: a program may post again as soon as it has polled it.
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
        qp.sq.consume_to(index + 1);  // from here on the request may be overwritten
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

    // Returns the writer, for complete(), of the completion of a failed receive.
    static auto failed_receive(ibv_wc_status status) {
        return [status](ibv_wc& wc) {
            wc.status = status;
            wc.opcode = IBV_WC_RECV;
        };
    }

    // Fails the held receive, unless it is flushed with the others, and the QP with it.
    void fail_receive(QueuePair& qp, ibv_wc_status status) {
        if (status != IBV_WC_WR_FLUSH_ERR) {
            ++counters[Counter::kLocalErrors];
            if (qp.slot.taken) complete_receive(qp, true, failed_receive(status));
        }
        enter_error(qp);
    }

    // Stops waiting for everything in flight.
    void abandon(Rc& rc) {
        RcRequester& r = rc.requester;
        counters[Counter::kPsnsAbandoned] += static_cast<uint32_t>(r.max_psn - r.una);
        r.una = r.next_psn = r.max_psn;
    }

    // Stops sending before the posted sends are flushed: none of them is sent or awaited any more.
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

    // Stops all messages. The responder's last answer, an ACK or the NAK with the reason, is still sent.
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
        // The posting thread reads the state before it unlocks. If this thread does not see the posted requests, that
        // one sees ERR and asks for another flush.
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

    // Flushes everything posted (IBTA 10.3.1.5).
    void enter_error(QueuePair& qp) {
        if (qp.state == IBV_QPS_ERR) return;
        qp.state = IBV_QPS_ERR;
        flush_sends(qp);
        flush_receives(qp);
        // An XRC TGT QP only acts as an SRQ, and has nothing posted there.
        if (qp.srq != nullptr && qp.type != IBV_QPT_XRC_RECV) sink.event(IBV_EVENT_QP_LAST_WQE_REACHED, qp);
        qp.visit([&](auto& protocol) { stop_receiving(qp, protocol); });
    }

    // IBTA 11.6.3.1, 11.6.3.2: a QP whose completions cannot be reported is in error. This is called outside of the
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
        overrun = false;  // flushed requests found no room either
    }

    // Reads `bytes` from `source` (a wire::VerifyingReader or a BytesReader) to offset `offset` of a scatter list.
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
    // number of segments, or -1 if an lkey, its bounds or its protection domain do not match.
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

    // Fills in the packet of an ATOMIC WRITE or a FLUSH except its BTH, MPETH and path. `out` has room for kMaxSge.
    // Returns the segments of its payload, or -1 as gather() does.
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

    // The result of take_receive().
    enum class ReceiveLookup : uint8_t { kNone, kTooShort, kYes };
    // Moves the next receive request of the QP or its SRQ into qp.slot. A request shorter than `min_length` stays (UD
    // drops the packet instead).
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

    // XRC: returns the SRQ that a request of the TGT QP names, or null if the QP's domain has no such SRQ.
    SharedRecvQueue* find_xrc_srq(const QueuePair& qp, uint32_t number) const {
        SharedRecvQueue* const srq = qps.find_xrc_srq(number);
        return srq != nullptr && srq->xrcd == qp.xrcd ? srq : nullptr;
    }
    // Makes the QP act as that SRQ from now on. Returns false if there is no such SRQ, or the message in progress
    // belongs to another one.
    bool enter_xrc_srq(QueuePair& qp, uint32_t number, bool in_message) {
        SharedRecvQueue* const srq = find_xrc_srq(qp, number);
        if (srq == nullptr || (in_message && srq != qp.srq)) return false;
        if (srq != qp.srq) qp.join_xrc_srq(*srq);
        return true;
    }

    // Executes a local operation at the head of the send queue: bind or invalidate. Returns false if the request fails
    // in its turn.
    bool execute_local(QueuePair& qp, SendWqe& wqe) {
        const bool bind = wqe.opcode == IBV_WR_BIND_MW;
        const bool done = bind ? memory.bind(bind_request(wqe), qp) : memory.invalidate(wqe.immediate, qp);
        if (!done) qp.position.fail(qp.position.next_wqe, bind ? IBV_WC_MW_BIND_ERR : IBV_WC_LOC_PROT_ERR);
        return done;
    }

    // Returns the window with which rc begins.
    uint32_t initial_window(const QueuePair& qp) const {
        return std::min(kInitialWindowBytes / qp.mtu, config.window_packets);
    }
    // Returns the share of a QP of rc (AdaptiveWindow::share()).
    uint32_t window_share_fixed(const QueuePair& qp) const {
        return AdaptiveWindow::share(initial_window(qp) << 16, deadlines.size());
    }
    // Returns the time of RetryTimer's clock.
    uint64_t silence_ns() const { return now_ns + missed_ns; }
    // Returns the time, in terms of `now_ns`, at which `retry` times out unless more silence is missed until then.
    uint64_t ack_deadline(const RetryTimer& retry) const {
        if (retry.ack_deadline == kNever) return kNever;
        return retry.ack_deadline - std::min(retry.ack_deadline, missed_ns);
    }
    RetryPolicy retry_policy(const QueuePair& qp) const {
        return {.timeout_ns = qp.timeout == 0 ? 0 : std::max<uint64_t>(4096ull << qp.timeout, config.min_timeout_ns),
                .retries = qp.retry_cnt};
    }

    // Enters SQD: begun requests are sent to their end, and no other begins.
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

    // rc, XRC, uc: sends packet number `packet` of a SEND or WRITE. Returns the bytes of its payload, or kNotReadable
    // if they may not be read.
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

    // rc, uc: sends `count` packets from the middle of a SEND or WRITE with one SGE, beginning with `packet`.
    // Everything that they share is looked up once; `set` sets AckReq. Returns the number sent; with 0 the next one
    // needs its own look-up.
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

    // Counts a repeated request. The answer may not reach the peer at its present address.
    void note_duplicate(const QueuePair& qp) {
        ++counters[Counter::kRxDuplicate];
        sink.suspect(qp.path);
    }

    // mp: counts a sent packet that will be acknowledged.
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

    // Sends consecutive packets that are alike: at most `count`, with `bytes` of payload. `headers` have the BTH of the
    // first. Before each, `next(headers)` sets AckReq, VP and the headers behind BTH, and returns the payload; null
    // ends the burst. Returns the number of packets.
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
