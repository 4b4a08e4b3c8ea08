// SPDX-License-Identifier: Apache-2.0
// The requester of RC: work requests into packets.
#pragma once

#include <algorithm>

#include "transport/requester.h"

namespace rove::transport {

template <class S, class P>
uint32_t RcRequesterLogic<S, P>::transmit(uint32_t budget) {
    if (qp_.state != IBV_QPS_RTS && qp_.state != IBV_QPS_SQD) return 0;
    if (retry_.rnr_until > core_.now_ns) return 0;
    uint32_t packets = 0;
    const uint32_t end = limit();
    while (packets < budget && p_.next_wqe != end && !p_.failed) {
        if (!window_open()) break;
        if (r_.pace_ns > core_.now_ns) [[unlikely]] {
            core_.deadlines.schedule(qp_, r_.pace_ns);
            break;
        }
        if (congestion_.limited() && congestion_.next_send_ns() > core_.now_ns) {
            core_.deadlines.schedule(qp_, congestion_.next_send_ns());
            break;
        }
        if (!core_.ready(qp_.path)) break;
        SendWqe& wqe = qp_.sq.at(p_.next_wqe);
        if (p_.next_packet == 0) {
            if (!kIsXrc && end - p_.next_wqe > 1 && wqe.is_plain()) {  // requests of XRC may be for different SRQs
                if (const uint32_t sent = emit_burst(end, budget - packets); sent != 0) {
                    packets += sent;
                    continue;
                }
            }
            const Begin what = begin(wqe);
            if (what == Begin::kWait) break;
            if (what == Begin::kDone) continue;
        } else if (wqe.is_read()) {
            if (read_waits(wqe)) break;  // each part counts
        } else if (const uint32_t middles = emit_middle_packets(wqe, budget - packets); middles != 0) {
            packets += middles;
            continue;
        }
        ++packets;
        if (wqe.is_read()) {
            emit_read(wqe);
            continue;
        }
        if (wqe.is_atomic()) {
            emit_atomic(wqe);
            continue;
        }
        if (wqe.awaits_empty_response()) {
            if (!emit_empty_answered(wqe)) break;
            continue;
        }
        const bool last = p_.next_packet + 1 == wqe.packets;
        const Psn psn = r_.next_psn;
        if (!emit(wqe, p_.next_packet, psn, needs_ack_req(wqe, last))) break;
        ++p_.next_packet;
        if (last) {
            ++p_.next_wqe;
            p_.next_packet = 0;
        }
        sent(psn, 1);
    }
    if (p_.failed) fail_if_oldest();
    if (packets != 0) core_.deadlines.schedule(qp_, next_deadline());
    return packets;
}

// Starts the request at next_wqe, if it may start now, and gives it its PSNs.
template <class S, class P>
auto RcRequesterLogic<S, P>::begin(SendWqe& wqe) -> Begin {
    if ((wqe.send_flags & IBV_SEND_FENCE) != 0 && r_.reads_outstanding != 0) return Begin::kWait;
    if (wqe.is_local()) {
        execute_local(wqe);
        return Begin::kDone;
    }
    if (wqe.is_read() && read_waits(wqe)) return Begin::kWait;
    const bool is_single = wqe.is_atomic() || wqe.awaits_empty_response();
    if (is_single && r_.reads_outstanding >= qp_.max_rd_atomic) return Begin::kWait;
    wqe.first_psn = r_.next_psn.value();
    wqe.packets = is_single || wqe.length <= qp_.mtu ? 1 : (wqe.length + qp_.mtu - 1) / qp_.mtu;
    if (p_.next_wqe == p_.begun_wqe) ++p_.begun_wqe;
    return Begin::kSend;
}

template <class S, class P>
bool RcRequesterLogic<S, P>::needs_ack_req(const SendWqe& wqe, bool last) {
    return (last && ((wqe.send_flags & (IBV_SEND_SIGNALED | IBV_SEND_SOLICITED)) != 0 || p_.next_wqe + 1 == limit())) ||
           ack_req_for_window(r_.next_psn);
}

// Sends packets from the middle of a SEND or WRITE, which share one look-up. Returns their number; with 0 the next one
// is the last or needs its own look-up.
template <class S, class P>
uint32_t RcRequesterLogic<S, P>::emit_middle_packets(SendWqe& wqe, uint32_t budget) {
    uint32_t count = std::min(budget, wqe.packets - 1 - p_.next_packet);
    count = std::min(count, r_.window_packets - static_cast<uint32_t>(r_.next_psn - r_.una));
    if (r_.next_psn < r_.max_psn) count = std::min(count, static_cast<uint32_t>(r_.max_psn - r_.next_psn));
    if (count == 0 || wqe.num_sge > 1 || congestion_.limited()) return 0;
    count =
        core_.send_middle_packets(qp_, P::kService, wqe, p_.next_packet, r_.next_psn, count, [&](wire::Headers& next) {
            next.bth.ack_req = ack_req_for_window(Psn(next.bth.psn));
            r_.since_ack_req = next.bth.ack_req ? 0 : static_cast<uint16_t>(r_.since_ack_req + 1);
        });
    if (count == 0) return 0;
    p_.next_packet += count;
    sent(r_.next_psn, count, count);
    return count;
}

// Sends a burst from the next request on. Returns its length; with 0 the next one needs its own look-up.
template <class S, class P>
uint32_t RcRequesterLogic<S, P>::emit_burst(uint32_t end, uint32_t budget) {
    Burst burst;
    if (p_.next_wqe != p_.begun_wqe || congestion_.limited()) return 0;
    if (!burst.begin(qp_, p_.next_wqe, core_.memory)) return 0;
    const Psn psn = r_.next_psn;
    wire::Headers h;
    Burst::fill(qp_, qp_.sq.at(p_.next_wqe), psn, h);
    // This is needs_ack_req() on locals: the compiler must assume that a store to the packet may change the originals.
    const uint32_t window_ends = p_.next_wqe + r_.window_packets - static_cast<uint32_t>(psn - r_.una);
    const uint32_t posted = limit(), interval = core_.config.ack_interval_packets;
    uint32_t index = p_.next_wqe, since = r_.since_ack_req;
    const uint32_t most = std::min({end - index, budget, window_ends - index});
    const uint32_t count = core_.send_burst(
        BurstKind::kRequests, qp_.path, h, burst.length(), most, [&](wire::Headers& next) -> const void* {
            SendWqe& wqe = qp_.sq.at(index);
            const void* const data = burst.data(wqe);
            if (data == nullptr) return nullptr;
            wqe.first_psn = next.bth.psn;
            wqe.packets = 1;
            ++index;
            next.bth.ack_req = (wqe.send_flags & (IBV_SEND_SIGNALED | IBV_SEND_SOLICITED)) != 0 || index == posted ||
                               index == window_ends || ++since >= interval;
            if (next.bth.ack_req) since = 0;
            burst.fill_behind(wqe, next);
            return data;
        });
    if (count == 0) return 0;
    p_.next_wqe = p_.begun_wqe = index;
    r_.since_ack_req = static_cast<uint16_t>(since);
    sent(psn, count, count);
    return count;
}

// Sends packet number `packet` of a SEND or WRITE. Returns false if its data may not be read; the request fails in its
// turn.
template <class S, class P>
bool RcRequesterLogic<S, P>::emit(SendWqe& wqe, uint32_t packet, Psn psn, bool ack_req) {
    const uint32_t bytes = core_.send_packet(qp_, P::kService, wqe, packet, psn, ack_req);
    if (bytes == Core<S>::kNotReadable) {
        p_.fail(p_.next_wqe, IBV_WC_LOC_PROT_ERR);
        return false;
    }
    r_.since_ack_req = ack_req ? 0 : static_cast<uint16_t>(r_.since_ack_req + 1);
    if (congestion_.limited()) congestion_.on_sent(core_.config.dcqcn, bytes + kHeaderBytes, core_.now_ns);
    return true;
}

template <class S, class P>
void RcRequesterLogic<S, P>::emit_read(const SendWqe& wqe) {
    const uint32_t chunk = read_chunk();
    uint32_t end = wqe.packets;
    if (end > chunk) [[unlikely]]
        end = std::min(end, (p_.next_packet / chunk + 1) * chunk);  // rarely needed: a division
    const uint32_t offset = p_.next_packet * qp_.mtu;
    const uint32_t length = end == wqe.packets ? wqe.length - offset : end * qp_.mtu - offset;
    wire::Headers h;
    h.bth.opcode = wire::opcode(P::kService, wire::Op::kReadRequest);
    h.bth.pkey = qp_.pkey;
    h.bth.dest_qpn = qp_.remote_qpn;
    h.bth.ack_req = true;
    h.bth.psn = r_.next_psn.value();
    h.reth = {wqe.remote_addr + offset, wqe.rkey, length};
    if constexpr (kIsXrc) h.xrc_srqn = wqe.xrc_srqn;
    core_.send(qp_.path, h, {}, 0);
    ++r_.reads_outstanding;
    r_.since_ack_req = 0;
    const Psn first = r_.next_psn;
    const uint32_t psns = end - p_.next_packet;
    p_.next_packet = end;
    if (end == wqe.packets) {
        ++p_.next_wqe;
        p_.next_packet = 0;
    }
    sent(first, psns);
}

template <class S, class P>
void RcRequesterLogic<S, P>::emit_atomic(const SendWqe& wqe) {
    wire::Headers h;
    const bool swap = wqe.opcode == IBV_WR_ATOMIC_CMP_AND_SWP;
    h.bth.opcode = wire::opcode(P::kService, swap ? wire::Op::kCompareSwap : wire::Op::kFetchAdd);
    h.bth.pkey = qp_.pkey;
    h.bth.dest_qpn = qp_.remote_qpn;
    h.bth.ack_req = true;
    h.bth.psn = r_.next_psn.value();
    h.atomic = {wqe.remote_addr, wqe.rkey, swap ? wqe.swap : wqe.compare_add, swap ? wqe.compare_add : 0};
    if constexpr (kIsXrc) h.xrc_srqn = wqe.xrc_srqn;
    core_.send(qp_.path, h, {}, 0);
    ++r_.reads_outstanding;
    r_.since_ack_req = 0;
    const Psn first = r_.next_psn;
    ++p_.next_wqe;
    sent(first, 1);
}

// Sends an ATOMIC WRITE or FLUSH. Returns false as emit() does.
template <class S, class P>
bool RcRequesterLogic<S, P>::emit_empty_answered(SendWqe& wqe) {
    wire::Segment segments[kMaxSge];
    wire::Headers h;
    wire::Op op;
    const int count = core_.fill_empty_answered(wqe, qp_.pd, h, op, segments);
    if (count < 0) {
        p_.fail(p_.next_wqe, IBV_WC_LOC_PROT_ERR);
        return false;
    }
    h.bth.opcode = wire::opcode(P::kService, op);
    h.bth.pkey = qp_.pkey;
    h.bth.dest_qpn = qp_.remote_qpn;
    h.bth.ack_req = true;
    h.bth.psn = r_.next_psn.value();
    if constexpr (kIsXrc) h.xrc_srqn = wqe.xrc_srqn;
    core_.send(qp_.path, h, {segments, static_cast<size_t>(count)}, count != 0 ? kAtomicWriteBytes : 0);
    ++r_.reads_outstanding;
    r_.since_ack_req = 0;
    const Psn first = r_.next_psn;
    ++p_.next_wqe;
    sent(first, 1);
    return true;
}

// Repairs the state after a fault in the program's memory ended the turn.
template <class S, class P>
void RcRequesterLogic<S, P>::recover(uint32_t packets) {
    if (packets != 0) {
        if (p_.next_packet == 0)
            p_.next_wqe = p_.begun_wqe = p_.next_wqe + packets;
        else
            p_.next_packet += packets;
        sent(r_.next_psn, packets, packets);
    }
    if (core_.in_timeout) rewind(Counter::kResentEarly);  // like an unreadable probe
    core_.deadlines.schedule(qp_, next_deadline());
}

// Accounts for the packets [first, first + psns), or a request for them, sent in `packets` packets.
template <class S, class P>
void RcRequesterLogic<S, P>::sent(Psn first, uint32_t psns, uint32_t packets) {
    r_.next_psn = first + psns;
    if (r_.next_psn > r_.max_psn) {
        r_.max_psn = r_.next_psn;
        r_.undo.valid = false;  // everything that it would skip has been sent again
        if (r_.sample_ns == 0 && r_.since_ack_req == 0) {
            // A READ is measured by the first packet of its answer.
            r_.sample_psn = packets == psns ? r_.next_psn.previous() : first;
            r_.sample_ns = core_.now_ns;
        }
        core_.counters[Counter::kPsnsSent] += psns;
    } else {
        count_again(r_.cause, psns, packets);
    }
    if (r_.cwnd_fixed < AdaptiveWindow::kOne) [[unlikely]]
        r_.pace_ns = core_.now_ns + AdaptiveWindow::spacing_ns(r_.cwnd_fixed, r_.latest_rtt_ns, random_of(first));
    if (retry_.ack_deadline == kNever) {
        retry_.progress_ns = core_.silence_ns();
        restart_timers();
    }
}

// Counts packets sent once more for `psns` that are considered lost.
template <class S, class P>
void RcRequesterLogic<S, P>::count_again(Counter cause, uint32_t psns, uint32_t packets) {
    core_.counters[cause] += packets;
    core_.counters[Counter::kRetransmittedPackets] += packets;
    core_.counters[Counter::kPsnsSent] += psns;
    core_.counters[Counter::kPsnsLost] += psns;
}

// Executes a local operation, which takes no PSN, in its turn to be sent; it completes in its turn.
template <class S, class P>
void RcRequesterLogic<S, P>::execute_local(SendWqe& wqe) {
    wqe.first_psn = r_.next_psn.value();
    wqe.packets = 0;
    if (p_.next_wqe == p_.begun_wqe) {  // not again after a rewind
        if (!core_.execute_local(qp_, wqe)) return;
        ++p_.begun_wqe;
    }
    ++p_.next_wqe;
    if (r_.una == r_.max_psn) acknowledge(r_.una);
}

}  // namespace rove::transport
