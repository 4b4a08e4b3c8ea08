// SPDX-License-Identifier: Apache-2.0
// The requester of a QP in mp mode. It turns work requests into packets on many paths, places responses in memory in
// any order, and completes requests in the order of posting. Units are nanoseconds, bytes and packets.
//
// DESIGN NOTES
// 1. The request stream numbers requests. A READ or atomic takes one PSN there, and its response takes the next PSNs of
//    the response stream. Both ends count alike, because these requests execute in order.
// 2. There is no go-back-N. A lost packet is built again from its work request, which is found by its PSN.
// 3. Class Paths recovers losses and never gives up. The timeout and retry count of verbs only decide when the peer is
//    declared dead.
#pragma once

#include <algorithm>

#include "rove/verbs.h"
#include "transport/burst.h"
#include "transport/core.h"
#include "transport/mp/state.h"
#include "transport/outcome.h"
#include "transport/rnr_timer.h"
#include "transport/send_op.h"

namespace rove::transport {

template <class S>
class MpRequesterLogic {
  public:
    MpRequesterLogic(Core<S>& core, QueuePair& qp, Mp& mp)
        : core_(core), qp_(qp), mp_(mp), p_(qp.position), retry_(mp.retry), paths_(core.multipath->paths) {}

    uint32_t transmit(uint32_t budget);
    // Returns true if transmit() would find a request that only ordering can hold back.
    bool can_send() const {
        return qp_.state == IBV_QPS_RTS && p_.next_wqe != limit() && retry_.rnr_until <= core_.now_ns &&
               mp_.requests.awnd() > 0;
    }
    // Handles a request packet that was acknowledged with an error. `aack` has already been applied to the stream.
    void take_error(const wire::MpAckEntry& entry, uint8_t syndrome);
    // Completes requests whose packets are all done.
    void progress();
    // Restarts the retry counts after an acknowledgement.
    void on_progress() {
        retry_.rnr_retries_left = qp_.rnr_retry;
        retry_.progress_ns = core_.silence_ns();
        mp_.probes = 0;
        restart_timer();
    }
    // Handles a valid answer without news.
    void on_valid_response() { retry_.on_valid_response(core_.retry_policy(qp_), core_.silence_ns()); }
    // Handles a repeated acknowledgement: the peer may be too busy to answer a READ at once. This counts as a sign of
    // life for a limited number of probes.
    void note_repeated_ack() {
        if (mp_.probes < kMaxProbes) restart_timer();
    }
    // Receives a packet of path MTU size with READ data.
    [[gnu::always_inline]] inline DirectPlacement receive_in_place(const wire::ParsedFrame& frame);
    // Returns the kind of the acknowledgement for the packet.
    wire::MpAck receive_response(const wire::ParsedFrame& frame, wire::Op op);
    void expire();
    // Recovers from a fault (recover-inl.h) after `packets` of a run departed.
    void recover(uint32_t packets);
    uint64_t next_deadline() const {
        uint64_t deadline = std::min({core_.ack_deadline(retry_), mp_.sync_ns, paths_.next_timer(mp_.requests).at_ns,
                                      paths_.next_timer(mp_.responses).at_ns});
        const uint64_t ack_ns = mp_.delay.not_before;
        if (ack_ns > core_.now_ns) deadline = std::min(deadline, ack_ns);
        return retry_.rnr_until != 0 ? std::min(deadline, retry_.rnr_until) : deadline;
    }

  private:
    static constexpr uint8_t kMaxProbes = 100;

    uint32_t limit() const { return qp_.state == IBV_QPS_SQD ? p_.drain_wqe : qp_.sq.available_until(); }
    bool any_begun() const { return qp_.sq.consumed() != p_.begun_wqe; }
    SendWqe& oldest() { return qp_.sq.at(qp_.sq.consumed()); }
    bool is_begun(Psn psn) { return any_begun() && psn >= Psn(oldest().first_psn); }
    bool is_oldest(Psn psn) {
        return any_begun() && psn >= Psn(oldest().first_psn) && psn < Psn(oldest().first_psn) + oldest().packets;
    }
    uint32_t response_packets(const SendWqe& wqe) const {
        const uint32_t bytes = wqe.response_bytes();
        return bytes <= qp_.mtu ? 1 : (bytes + qp_.mtu - 1) / qp_.mtu;
    }
    [[gnu::always_inline]] inline bool next_is_ready(uint32_t end);
    [[gnu::always_inline]] inline bool must_wait(const SendWqe& wqe);
    void probe();
    void execute_local(SendWqe& wqe);
    [[gnu::always_inline]] inline void begin(SendWqe& wqe);
    [[gnu::always_inline]] inline bool emit(SendWqe& wqe, const Departure& departure, uint32_t& bytes);
    [[gnu::noinline]] uint32_t emit_burst(uint32_t end, uint32_t budget);
    uint32_t index_of(Psn psn);
    SendWqe* find_reader(Psn psn);
    void take_in_order(const wire::ParsedFrame& frame);
    void begin_waiting() {
        retry_.progress_ns = core_.silence_ns();
        restart_timer();
    }
    void restart_timer();
    void fail(ibv_wc_status status);

    Core<S>& core_;
    QueuePair& qp_;
    Mp& mp_;
    SendPosition& p_;
    RetryTimer& retry_;
    Paths& paths_;
};

template <class S>
uint32_t MpRequesterLogic<S>::transmit(uint32_t budget) {
    uint32_t packets = 0;
    if ((qp_.state != IBV_QPS_RTS && qp_.state != IBV_QPS_SQD) || retry_.rnr_until > core_.now_ns) budget = 0;
    if (mp_.probing && packets < budget && core_.ready(qp_.path)) {
        probe();
        ++packets;
    }
    const uint32_t end = limit();
    while (packets < budget && core_.ready(qp_.path) && qp_.state != IBV_QPS_ERR) {
        if (end - p_.next_wqe > 1 && qp_.sq.at(p_.next_wqe).is_plain()) {
            if (const uint32_t sent = emit_burst(end, budget - packets); sent != 0) {
                packets += sent;
                continue;
            }
        }
        const bool more = next_is_ready(end);
        if (qp_.state == IBV_QPS_ERR) return packets;
        Departure departure;
        if (!paths_.next(mp_.requests, more, core_.now_ns, departure)) break;
        const bool fresh = !departure.again;
        SendWqe* wqe = &qp_.sq.at(fresh ? p_.next_wqe : index_of(departure.psn));
        if (fresh && p_.next_packet == 0) begin(*wqe);
        uint32_t bytes = 0;
        if (!emit(*wqe, departure, bytes)) {
            // The request's memory was deregistered. Requests posted before it complete first, and no new ones begin.
            const uint32_t index = fresh ? p_.next_wqe : index_of(departure.psn);
            p_.fail(index, IBV_WC_LOC_PROT_ERR);
            if (qp_.sq.consumed() == p_.failed_wqe) fail(p_.failure);
            if (fresh || qp_.state == IBV_QPS_ERR) break;
            // The packet counts as lost in the network: packets of earlier requests may still need retransmission.
        }
        ++packets;
        paths_.sent(mp_.requests, departure, core_.now_ns, bytes + kHeaderBytes);
        core_.count_sent(departure.again);
        if (fresh) {
            if (mp_.delayed) [[unlikely]] {
                ++core_.counters[Counter::kDelayedPackets];
                mp_.delayed = false;
            }
            if (++p_.next_packet == wqe->packets) {
                ++p_.next_wqe;
                p_.next_packet = 0;
                mp_.ended_ns = core_.now_ns;
            }
        }
        if (retry_.ack_deadline == kNever) begin_waiting();
    }
    if (qp_.state != IBV_QPS_ERR) core_.deadlines.schedule(qp_, next_deadline());
    return packets;
}

// Sends the last request again after every request was acknowledged but a response is missing. It earns another ACK.
template <class S>
void MpRequesterLogic<S>::probe() {
    mp_.probing = false;
    const Psn last = mp_.requests.una.previous();
    if (!is_begun(last) || mp_.requests.outstanding()) return;
    ++mp_.probes;
    ++core_.counters[Counter::kTailProbes];
    // Changes, since a path may be dead.
    const auto vp = static_cast<uint16_t>(kFirstVp | (qp_.path.flow.udp_src + mp_.probes));
    uint32_t bytes = 0;
    emit(qp_.sq.at(index_of(last)), {.psn = last, .vp = vp, .again = true}, bytes);
}

// Returns true if a packet of the requests before `end` was never sent and may go now. Executes local operations on the
// way.
template <class S>
bool MpRequesterLogic<S>::next_is_ready(uint32_t end) {
    while (!p_.failed && p_.next_wqe != end) {
        SendWqe& wqe = qp_.sq.at(p_.next_wqe);
        if (p_.next_packet == 0) {
            const uint32_t reads = mp_.reads.size();
            if ((wqe.send_flags & IBV_SEND_FENCE) != 0 && reads != 0) return false;
            if (wqe.is_local()) {
                execute_local(wqe);
                if (qp_.state == IBV_QPS_ERR) return false;
                continue;
            }
            if (wqe.awaits_response() && reads >= qp_.max_rd_atomic) return false;
        }
        if (!must_wait(wqe)) return true;
        mp_.delayed = true;
        return false;
    }
    return false;
}

// Returns true if the next packet, one of `wqe`, must wait until the packets before it are acknowledged (EU-7, MP-12).
template <class S>
bool MpRequesterLogic<S>::must_wait(const SendWqe& wqe) {
    mp_.sync_ns = kNever;
    if (!mp_.requests.outstanding()) return false;
    const bool sync = p_.next_packet == 0 && (wqe.send_flags & ROVE_SEND_SYNC) != 0;
    switch (core_.config.ordering) {
        case Ordering::kReceiverHold:
            return false;
        case Ordering::kSenderDelay:
            return sync || (wqe.is_write() && uint64_t{p_.next_packet + 1} * qp_.mtu >= wqe.length);
        case Ordering::kOptimistic:
            break;
    }
    if (!sync) return false;
    const uint64_t due = mp_.ended_ns + paths_.sync_delay_ns(mp_.requests);
    if (due <= core_.now_ns) return false;
    mp_.sync_ns = due;
    return true;
}

template <class S>
void MpRequesterLogic<S>::execute_local(SendWqe& wqe) {
    wqe.first_psn = mp_.requests.nxt.value();
    wqe.packets = 0;
    if (!core_.execute_local(qp_, wqe)) {
        if (qp_.sq.consumed() == p_.failed_wqe) fail(p_.failure);
        return;
    }
    p_.begun_wqe = ++p_.next_wqe;
    progress();
}

template <class S>
void MpRequesterLogic<S>::begin(SendWqe& wqe) {
    wqe.first_psn = mp_.requests.nxt.value();
    wqe.packets = wqe.awaits_response() || wqe.length <= qp_.mtu ? 1 : (wqe.length + qp_.mtu - 1) / qp_.mtu;
    p_.begun_wqe = p_.next_wqe + 1;
    if (wqe.awaits_response()) {
        wqe.mp_first_response = mp_.next_response.value();
        mp_.next_response = mp_.next_response + response_packets(wqe);
        mp_.reads.push(p_.next_wqe);
        return;
    }
    wqe.mp_msn = mp_.msn_out;
    if (wqe.opcode != IBV_WR_RDMA_WRITE) mp_.msn_out = (mp_.msn_out + 1) & Psn::kMask;
}

// See RequesterLogic::emit_burst().
template <class S>
uint32_t MpRequesterLogic<S>::emit_burst(uint32_t end, uint32_t budget) {
    Burst burst;
    if (p_.failed || p_.next_packet != 0 || core_.config.ordering != Ordering::kReceiverHold) return 0;
    const uint32_t room = paths_.room(mp_.requests);
    if (room == 0 || !burst.begin(qp_, p_.next_wqe, core_.memory)) return 0;
    const SendWqe& first = qp_.sq.at(p_.next_wqe);
    wire::Headers h;
    Burst::fill(qp_, first, mp_.requests.nxt, h);
    h.mp = {.flags = (first.send_flags & ROVE_SEND_SYNC) != 0 ? wire::Mpeth::kSync : uint8_t{0}, .msn = 0, .ipsn = 0};
    const uint32_t posted = qp_.sq.available_until(), messages = first.opcode != IBV_WR_RDMA_WRITE;
    uint32_t index = p_.next_wqe;
    const uint32_t most = std::min({end - index, budget, room});
    const uint32_t count = core_.send_burst(
        BurstKind::kRequests, qp_.path, h, burst.length(), most, [&](wire::Headers& next) -> const void* {
            SendWqe& wqe = qp_.sq.at(index);
            const void* const data = burst.data(wqe);
            if (data == nullptr || !paths_.depart(mp_.requests, burst.length() + kHeaderBytes, core_.now_ns, next.vp)) {
                return nullptr;
            }
            wqe.first_psn = next.bth.psn;
            wqe.packets = 1;
            wqe.mp_msn = next.mp.msn = mp_.msn_out;
            mp_.msn_out = (mp_.msn_out + messages) & Psn::kMask;
            if (++index == posted) next.mp.flags |= wire::Mpeth::kLast;
            burst.fill_behind(wqe, next);
            return data;
        });
    if (count == 0) return 0;
    p_.next_wqe = p_.begun_wqe = index;
    mp_.ended_ns = core_.now_ns;
    core_.counters[Counter::kPsnsSent] += count;
    if (retry_.ack_deadline == kNever) begin_waiting();
    return count;
}

// Recovers after an access to memory that is no longer registered. Packets that departed, and the one that was not
// built, count as sent: the latter is detected as lost and fails when it is built again.
template <class S>
void MpRequesterLogic<S>::recover(uint32_t packets) {
    if (packets != 0) {
        p_.next_wqe = p_.begun_wqe = p_.next_wqe + packets;
        mp_.ended_ns = core_.now_ns;
        core_.counters[Counter::kPsnsSent] += packets;
        if (retry_.ack_deadline == kNever) restart_timer();
    }
    core_.deadlines.schedule(qp_, next_deadline());
}

// Sends packet `departure.psn` of `wqe` and sets `bytes` to its payload. Returns false if its data may not be read.
template <class S>
bool MpRequesterLogic<S>::emit(SendWqe& wqe, const Departure& departure, uint32_t& bytes) {
    const auto packet = static_cast<uint32_t>(departure.psn - Psn(wqe.first_psn));
    const bool first = packet == 0, last = packet + 1 == wqe.packets;
    wire::Segment segments[kMaxSge];
    int count = 0;
    wire::Headers h;
    wire::Op op;
    if (wqe.is_read()) {
        op = wire::Op::kReadRequest;
        h.reth = {wqe.remote_addr, wqe.rkey, wqe.length};
    } else if (wqe.is_atomic()) {
        const bool swap = wqe.opcode == IBV_WR_ATOMIC_CMP_AND_SWP;
        op = swap ? wire::Op::kCompareSwap : wire::Op::kFetchAdd;
        h.atomic = {wqe.remote_addr, wqe.rkey, swap ? wqe.swap : wqe.compare_add, swap ? wqe.compare_add : 0};
    } else if (wqe.awaits_empty_response()) {
        count = core_.fill_empty_answered(wqe, qp_.pd, h, op, segments);
        if (count < 0) return false;
        bytes = count != 0 ? kAtomicWriteBytes : 0;
    } else {
        const uint32_t offset = packet * qp_.mtu;
        bytes = std::min(qp_.mtu, wqe.length - offset);
        count = core_.gather(wqe, offset, bytes, qp_.pd, segments);
        if (count < 0) return false;
        op = send_op(wqe.opcode, first, last);
        h.reth = {wqe.remote_addr + offset, wqe.rkey, wqe.length - offset};
        h.immediate = h.invalidate_rkey = wqe.immediate;
    }
    h.bth.opcode = wire::opcode(wire::Service::kMp, op);
    if (last) h.bth.flags |= solicited_flag(wqe);
    h.bth.pkey = qp_.pkey;
    h.bth.dest_qpn = qp_.remote_qpn;
    h.bth.psn = departure.psn.value();
    uint8_t flags = 0;
    if (departure.again) flags |= wire::Mpeth::kRetx;
    if ((wqe.send_flags & ROVE_SEND_SYNC) != 0) flags |= wire::Mpeth::kSync;
    if (last && &wqe == &qp_.sq.at(qp_.sq.available_until() - 1)) flags |= wire::Mpeth::kLast;
    if (core_.config.ordering != Ordering::kReceiverHold) flags |= wire::Mpeth::kEarly;
    h.mp = {.flags = flags, .msn = wqe.awaits_response() ? 0 : wqe.mp_msn, .ipsn = packet};
    h.vp = departure.vp;
    core_.send(qp_.path, h, {segments, static_cast<size_t>(count)}, bytes);
    return true;
}

// Returns the SQ index of the request that contains the packet `psn`, which is in flight. A binary search works because
// first PSNs ascend.
template <class S>
uint32_t MpRequesterLogic<S>::index_of(Psn psn) {
    uint32_t low = qp_.sq.consumed(), high = p_.begun_wqe;
    while (high - low > 1) {
        const uint32_t middle = low + (high - low) / 2;
        (Psn(qp_.sq.at(middle).first_psn) <= psn ? low : high) = middle;
    }
    return low;
}

// Returns the READ or atomic that the response packet `psn` answers, or null.
template <class S>
SendWqe* MpRequesterLogic<S>::find_reader(Psn psn) {
    for (uint32_t at = mp_.reads.head; at != mp_.reads.tail; ++at) {
        SendWqe& wqe = qp_.sq.at(mp_.reads.at(at));
        const Psn first(wqe.mp_first_response);
        if (psn < first) return nullptr;
        if (psn < first + response_packets(wqe)) return &wqe;
    }
    return nullptr;
}

template <class S>
void MpRequesterLogic<S>::progress() {
    const uint32_t first = qp_.sq.consumed();
    const Psn una = mp_.requests.una;
    uint32_t at = first;
    while (at != p_.begun_wqe && at != p_.next_wqe) {
        SendWqe& wqe = qp_.sq.at(at);
        if (una - Psn(wqe.first_psn) < static_cast<int32_t>(wqe.packets)) break;
        if (wqe.awaits_response()) {
            if (Psn(wqe.mp_first_response) + response_packets(wqe) > mp_.responses_in.expected) break;
            ++mp_.reads.head;
        }
        if (wqe.is_signaled()) core_.complete_send(qp_, at, IBV_WC_SUCCESS);
        ++at;
    }
    if (at == first) return;
    qp_.sq.consume_to(at);
    if (p_.failed && at == p_.failed_wqe) {
        fail(p_.failure);
        return;
    }
    core_.check_drained(qp_);
}

template <class S>
void MpRequesterLogic<S>::restart_timer() {
    retry_.retries_left = qp_.retry_cnt;
    retry_.ack_deadline = any_begun() ? retry_.next(core_.retry_policy(qp_), core_.silence_ns()) : kNever;
}

template <class S>
void MpRequesterLogic<S>::fail(ibv_wc_status status) {
    core_.complete_send(qp_, qp_.sq.consumed(), status);
    core_.enter_error(qp_);
}

template <class S>
void MpRequesterLogic<S>::take_error(const wire::MpAckEntry& entry, uint8_t syndrome) {
    const Psn psn(entry.psn);
    if (syndrome >> 5 == 1) {
        if (psn < mp_.requests.una || psn >= mp_.requests.nxt) return;
        ++core_.counters[Counter::kRxNakRnr];
        if (retry_.rnr_until > core_.now_ns) return;  // an earlier RNR NAK has set the timer
        if (qp_.rnr_retry != 7 && is_oldest(psn) && retry_.rnr_retries_left-- == 0) {
            fail(IBV_WC_RNR_RETRY_EXC_ERR);
            return;
        }
        restart_timer();  // the peer answers
        retry_.rnr_until = core_.now_ns + rnr_timer_ns(syndrome & 0x1F);
        core_.deadlines.schedule(qp_, retry_.rnr_until);
        return;
    }
    // Only the oldest request can have failed, because the AACK of this packet completed those before it.
    if (!is_oldest(psn)) {
        ++core_.counters[Counter::kDropResponse];
        return;
    }
    ++core_.counters[Counter::kRxNakError];
    fail(status_of_nak(syndrome));
}

template <class S>
DirectPlacement MpRequesterLogic<S>::receive_in_place(const wire::ParsedFrame& frame) {
    const Psn psn(frame.headers.bth.psn);
    if (psn != mp_.responses_in.expected) return DirectPlacement::kNotEligible;
    SendWqe* wqe = find_reader(psn);
    if (wqe == nullptr || !wqe->is_read()) return DirectPlacement::kNotEligible;
    const auto packet = static_cast<uint32_t>(psn - Psn(wqe->mp_first_response));
    if (packet == 0 || packet + 1 >= response_packets(*wqe)) return DirectPlacement::kNotEligible;
    wire::VerifyingReader payload(frame);
    if (core_.scatter(wqe->sges(), wqe->num_sge, packet * qp_.mtu, payload, qp_.mtu, qp_.pd) != IBV_WC_SUCCESS)
        return DirectPlacement::kNotEligible;
    if (!payload.icrc_matches()) return DirectPlacement::kBadIcrc;
    take_in_order(frame);
    return DirectPlacement::kPlaced;
}

template <class S>
wire::MpAck MpRequesterLogic<S>::receive_response(const wire::ParsedFrame& frame, wire::Op op) {
    Reorder& reorder = core_.multipath->reorder;
    ReorderStream& stream = mp_.responses_in;
    const Psn psn(frame.headers.bth.psn);
    const Arrival arrival = reorder.classify(stream, psn);
    if (arrival == Arrival::kDuplicate) {
        ++core_.counters[Counter::kRxDuplicate];
        return psn < stream.expected ? wire::MpAck::kAck : wire::MpAck::kSack;
    }
    if (arrival != Arrival::kInOrder && arrival != Arrival::kOutOfOrder) return wire::MpAck::kNack;
    SendWqe* wqe = find_reader(psn);
    if (wqe == nullptr || wqe->is_atomic() != (op == wire::Op::kAtomicAck)) {
        ++core_.counters[Counter::kDropResponse];
        return wire::MpAck::kNack;
    }
    const auto packet = static_cast<uint32_t>(psn - Psn(wqe->mp_first_response));
    const uint32_t offset = packet * qp_.mtu;
    ibv_wc_status status = IBV_WC_SUCCESS;
    if (wqe->is_atomic()) {
        BytesReader original{reinterpret_cast<const uint8_t*>(&frame.headers.atomic_original)};
        status = core_.scatter(wqe->sges(), wqe->num_sge, 0, original, sizeof frame.headers.atomic_original, qp_.pd);
    } else if (frame.payload_bytes != std::min(qp_.mtu, wqe->response_bytes() - offset) ||
               op != read_response_op(packet == 0, packet + 1 == response_packets(*wqe))) {
        status = IBV_WC_BAD_RESP_ERR;
    } else if (frame.payload_bytes != 0) {
        BytesReader payload{frame.payload};
        status = core_.scatter(wqe->sges(), wqe->num_sge, offset, payload, frame.payload_bytes, qp_.pd);
    }
    if (status != IBV_WC_SUCCESS) {
        // The error is reported in order: earlier requests may still wait for their responses.
        if (arrival == Arrival::kInOrder && wqe == &oldest()) fail(status);
        return wire::MpAck::kNack;
    }
    if (arrival == Arrival::kOutOfOrder) {
        on_progress();
        core_.multipath->record_reorder_distance(static_cast<uint32_t>(psn - stream.expected), mp_.responses_in_degree);
        reorder.track(stream, psn, Slot::kReceived, frame.headers.mp.last());
        return wire::MpAck::kSack;
    }
    take_in_order(frame);
    return wire::MpAck::kAck;
}

// The expected response packet has been placed.
template <class S>
void MpRequesterLogic<S>::take_in_order(const wire::ParsedFrame& frame) {
    on_progress();
    ++core_.multipath->counters.degrees[0];
    core_.multipath->reorder.advance(mp_.responses_in, frame.headers.mp.last(), [](Psn, Slot) { return true; });
    progress();
}

template <class S>
void MpRequesterLogic<S>::expire() {
    if (retry_.rnr_until != 0 && retry_.rnr_until <= core_.now_ns) {
        retry_.rnr_until = 0;
        mp_.requests.credits = std::max(mp_.requests.credits, std::max(mp_.requests.lost, 1u));
    }
    if (mp_.sync_ns <= core_.now_ns) mp_.sync_ns = kNever;
    if (retry_.ack_deadline <= core_.silence_ns()) {
        if (!any_begun()) {
            retry_.ack_deadline = kNever;
        } else {
            ++core_.counters[Counter::kTimeouts];
            core_.sink.suspect(qp_.path);
            if (retry_.retries_left == 0) {
                fail(IBV_WC_RETRY_EXC_ERR);
                return;
            }
            --retry_.retries_left;
            retry_.ack_deadline = retry_.next(core_.retry_policy(qp_), core_.silence_ns());
            mp_.probing = !mp_.requests.outstanding();
            mp_.requests.pace_ns = 0;  // each timeout repeats a packet, whatever the pause of a small window
            paths_.hasten(mp_.requests, core_.now_ns);  // a retry counts as one whatever the backoff
        }
    }
    paths_.expire(mp_.requests, core_.now_ns);
    if (mp_.requests.backoff >= kSuspectProbes) core_.sink.suspect(qp_.path);
    // A requester that was closed no longer acknowledges responses, and no other packet shows this.
    if (mp_.responses.backoff == Mp::kSilence) mp_.responses.timer_ns = mp_.responses.burst_ns = 0;
    paths_.expire(mp_.responses, core_.now_ns);
    if (mp_.responses.backoff >= kSuspectProbes) core_.sink.suspect(qp_.path);
    core_.deadlines.schedule(qp_, next_deadline());
}

}  // namespace rove::transport
