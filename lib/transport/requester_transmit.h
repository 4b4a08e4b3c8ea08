// SPDX-License-Identifier: Apache-2.0
// The requester of RC, UC and UD: work requests into packets.
#pragma once

#include <utility>

#include "transport/requester.h"

namespace rove::transport {

template <class S>
uint32_t RequesterLogic<S>::transmit(uint32_t budget) {
    if (qp_.state != IBV_QPS_RTS && qp_.state != IBV_QPS_SQD) return 0;
    if (r_.rnr_until > core_.now_ns) return 0;
    uint32_t packets = 0;
    const uint32_t end = limit();
    while (packets < budget && r_.next_wqe != end && !r_.failed) {
        const bool reliable = qp_.type == IBV_QPT_RC;
        if (reliable && !window_open()) break;
        if (qp_.congestion.limited() && qp_.congestion.next_send_ns() > core_.now_ns) {
            core_.deadlines.schedule(qp_, qp_.congestion.next_send_ns());
            break;
        }
        if (!core_.ready()) break;
        SendWqe& wqe = qp_.sq.at(r_.next_wqe);
        if (r_.next_packet == 0) {
            if (end - r_.next_wqe > 1 && wqe.is_plain()) {
                if (const uint32_t alike = emit_alike(end, budget - packets); alike != 0) {
                    packets += alike;
                    continue;
                }
            }
            const Begin what = begin(wqe);
            if (what == Begin::kWait) break;
            if (what == Begin::kDone) continue;
        } else if (wqe.is_read()) {
            if (read_waits(wqe)) break;  // each part counts
        } else if (const uint32_t middles = emit_middles(wqe, budget - packets); middles != 0) {
            packets += middles;
            continue;
        }
        ++packets;
        if (qp_.type == IBV_QPT_UD) {
            if (!send_datagram(wqe)) break;
            complete_unacknowledged();
            continue;
        }
        if (wqe.is_read()) {
            emit_read(wqe);
            continue;
        }
        if (wqe.is_atomic()) {
            emit_atomic(wqe);
            continue;
        }
        const bool last = r_.next_packet + 1 == wqe.packets;
        const Psn psn = r_.next_psn;
        if (!emit(wqe, r_.next_packet, psn, reliable && want_ack(wqe, last))) break;
        ++r_.next_packet;
        if (last) {
            ++r_.next_wqe;
            r_.next_packet = 0;
        }
        sent(psn, 1);
        if (last && !reliable) complete_unacknowledged();
    }
    if (r_.failed) fail_if_oldest();
    if (packets != 0 && qp_.type == IBV_QPT_RC) core_.deadlines.schedule(qp_, next_deadline());
    return packets;
}

// Whether the request at next_wqe may start now; gives it its PSNs.
template <class S>
auto RequesterLogic<S>::begin(SendWqe& wqe) -> Begin {
    if ((wqe.send_flags & IBV_SEND_FENCE) != 0 && r_.reads_outstanding != 0) return Begin::kWait;
    if (wqe.is_local()) {
        execute_local(wqe);
        return Begin::kDone;
    }
    if (wqe.is_read() && read_waits(wqe)) return Begin::kWait;
    if (wqe.is_atomic() && r_.reads_outstanding >= qp_.max_rd_atomic) return Begin::kWait;
    wqe.first_psn = r_.next_psn.value();
    wqe.packets = wqe.is_atomic() || wqe.length <= qp_.mtu ? 1 : (wqe.length + qp_.mtu - 1) / qp_.mtu;
    if (r_.next_wqe == r_.begun_wqe) ++r_.begun_wqe;
    return Begin::kSend;
}

template <class S>
bool RequesterLogic<S>::want_ack(const SendWqe& wqe, bool last) {
    return (last && ((wqe.send_flags & (IBV_SEND_SIGNALED | IBV_SEND_SOLICITED)) != 0 ||
                     r_.next_wqe + 1 == qp_.sq.available_until())) ||
           window_wants_ack(r_.next_psn);
}

// Packets from the middle of a SEND or WRITE: what is the same for all is looked up once. Returns how many; 0: the next
// one is the last, or to be looked at alone.
template <class S>
uint32_t RequesterLogic<S>::emit_middles(SendWqe& wqe, uint32_t budget) {
    const bool reliable = qp_.type == IBV_QPT_RC;
    uint32_t count = std::min(budget, wqe.packets - 1 - r_.next_packet);
    if (reliable) {
        count = std::min(count, core_.config.window_packets - static_cast<uint32_t>(r_.next_psn - r_.una));
        if (r_.next_psn < r_.max_psn) count = std::min(count, static_cast<uint32_t>(r_.max_psn - r_.next_psn));
    }
    if (count == 0 || wqe.num_sge > 1 || qp_.congestion.limited()) return 0;
    wire::Segment data;
    if (core_.gather(wqe, r_.next_packet * qp_.mtu, count * qp_.mtu, qp_.pd, &data) != 1) return 0;
    wire::Headers h;
    h.bth.opcode = wire::opcode(reliable ? wire::Service::kRc : wire::Service::kUc, send_op(wqe.opcode, false, false));
    h.bth.pkey = qp_.pkey;
    h.bth.dest_qpn = qp_.remote_qpn;
    h.bth.psn = r_.next_psn.value();
    const auto* at = static_cast<const uint8_t*>(data.data);
    count = core_.send_run(qp_.path, h, qp_.mtu, count, [&](wire::Headers& next) {
        next.bth.ack_req = reliable && window_wants_ack(Psn(next.bth.psn));
        r_.since_ack_req = next.bth.ack_req ? 0 : static_cast<uint16_t>(r_.since_ack_req + 1);
        return std::exchange(at, at + qp_.mtu);
    });
    r_.next_packet += count;
    sent(r_.next_psn, count, count);
    return count;
}

// RC: requests that are alike, from the next one on. Returns how many; 0: the next one is to be looked at alone.
template <class S>
uint32_t RequesterLogic<S>::emit_alike(uint32_t end, uint32_t budget) {
    Alike alike;
    if (qp_.type != IBV_QPT_RC || r_.next_wqe != r_.begun_wqe || qp_.congestion.limited()) return 0;
    if (!alike.begin(qp_, r_.next_wqe, core_.memory)) return 0;
    const Psn psn = r_.next_psn;
    wire::Headers h;
    Alike::fill(qp_, qp_.sq.at(r_.next_wqe), psn, h);
    // As want_ack(), of locals: to the compiler each store of the packet could be one to what they are copies of.
    const uint32_t window_ends = r_.next_wqe + core_.config.window_packets - static_cast<uint32_t>(psn - r_.una);
    const uint32_t posted = qp_.sq.available_until(), interval = core_.config.ack_interval_packets;
    uint32_t index = r_.next_wqe, since = r_.since_ack_req;
    const uint32_t most = std::min({end - index, budget, window_ends - index});
    const uint32_t count = core_.send_run(qp_.path, h, alike.length(), most, [&](wire::Headers& next) -> const void* {
        SendWqe& wqe = qp_.sq.at(index);
        const void* const data = alike.data(wqe);
        if (data == nullptr) return nullptr;
        wqe.first_psn = next.bth.psn;
        wqe.packets = 1;
        ++index;
        next.bth.ack_req = (wqe.send_flags & (IBV_SEND_SIGNALED | IBV_SEND_SOLICITED)) != 0 || index == posted ||
                           index == window_ends || ++since >= interval;
        if (next.bth.ack_req) since = 0;
        alike.fill_behind(wqe, next);
        return data;
    });
    if (count == 0) return 0;
    r_.next_wqe = r_.begun_wqe = index;
    r_.since_ack_req = static_cast<uint16_t>(since);
    sent(psn, count, count);
    return count;
}

// Packet number `packet` of a SEND or WRITE. False: its data may not be read; the request fails in its turn.
template <class S>
bool RequesterLogic<S>::emit(SendWqe& wqe, uint32_t packet, Psn psn, bool ack_req) {
    const uint32_t offset = packet * qp_.mtu;
    const bool first = packet == 0, last = packet + 1 == wqe.packets;
    const uint32_t bytes = std::min(qp_.mtu, wqe.length - offset);
    wire::Segment segments[kMaxSge];
    const int count = core_.gather(wqe, offset, bytes, qp_.pd, segments);
    if (count < 0) {
        r_.failed = true;
        r_.failure = IBV_WC_LOC_PROT_ERR;
        return false;
    }
    wire::Headers h;
    h.bth.opcode = wire::opcode(qp_.type == IBV_QPT_RC ? wire::Service::kRc : wire::Service::kUc,
                                send_op(wqe.opcode, first, last));
    if (last) h.bth.flags |= solicited_flag(wqe);
    h.bth.pkey = qp_.pkey;
    h.bth.dest_qpn = qp_.remote_qpn;
    h.bth.ack_req = ack_req;
    h.bth.psn = psn.value();
    h.reth = {wqe.remote_addr, wqe.rkey, wqe.length};
    h.immediate = h.invalidate_rkey = wqe.immediate;
    r_.since_ack_req = ack_req ? 0 : static_cast<uint16_t>(r_.since_ack_req + 1);
    core_.send(qp_.path, h, {segments, static_cast<size_t>(count)}, bytes);
    if (qp_.congestion.limited()) qp_.congestion.on_sent(core_.config.dcqcn, bytes + kHeaderBytes, core_.now_ns);
    return true;
}

template <class S>
void RequesterLogic<S>::emit_read(const SendWqe& wqe) {
    const uint32_t chunk = read_chunk();
    uint32_t end = wqe.packets;
    if (end > chunk) [[unlikely]]
        end = std::min(end, (r_.next_packet / chunk + 1) * chunk);  // for few READs: a division
    const uint32_t offset = r_.next_packet * qp_.mtu;
    const uint32_t length = end == wqe.packets ? wqe.length - offset : end * qp_.mtu - offset;
    wire::Headers h;
    h.bth.opcode = wire::opcode(wire::Service::kRc, wire::Op::kReadRequest);
    h.bth.pkey = qp_.pkey;
    h.bth.dest_qpn = qp_.remote_qpn;
    h.bth.ack_req = true;
    h.bth.psn = r_.next_psn.value();
    h.reth = {wqe.remote_addr + offset, wqe.rkey, length};
    core_.send(qp_.path, h, {}, 0);
    ++r_.reads_outstanding;
    r_.since_ack_req = 0;
    const Psn first = r_.next_psn;
    const uint32_t psns = end - r_.next_packet;
    r_.next_packet = end;
    if (end == wqe.packets) {
        ++r_.next_wqe;
        r_.next_packet = 0;
    }
    sent(first, psns);
}

template <class S>
void RequesterLogic<S>::emit_atomic(const SendWqe& wqe) {
    wire::Headers h;
    const bool swap = wqe.opcode == IBV_WR_ATOMIC_CMP_AND_SWP;
    h.bth.opcode = wire::opcode(wire::Service::kRc, swap ? wire::Op::kCompareSwap : wire::Op::kFetchAdd);
    h.bth.pkey = qp_.pkey;
    h.bth.dest_qpn = qp_.remote_qpn;
    h.bth.ack_req = true;
    h.bth.psn = r_.next_psn.value();
    h.atomic = {wqe.remote_addr, wqe.rkey, swap ? wqe.swap : wqe.compare_add, swap ? wqe.compare_add : 0};
    core_.send(qp_.path, h, {}, 0);
    ++r_.reads_outstanding;
    r_.since_ack_req = 0;
    const Psn first = r_.next_psn;
    ++r_.next_wqe;
    sent(first, 1);
}

template <class S>
bool RequesterLogic<S>::send_datagram(SendWqe& wqe) {
    wire::Segment segments[kMaxSge];
    const int count = core_.gather(wqe, 0, wqe.length, qp_.pd, segments);
    if (count < 0) {
        r_.failed = true;
        r_.failure = IBV_WC_LOC_PROT_ERR;
        return false;
    }
    wire::Headers h;
    h.bth.opcode = wire::opcode(wire::Service::kUd, send_op(wqe.opcode, true, true));
    h.bth.flags |= solicited_flag(wqe);
    h.bth.pkey = qp_.pkey;
    h.bth.dest_qpn = wqe.remote_qpn;
    h.bth.psn = r_.next_psn.value();
    h.deth = {wqe.remote_qkey, qp_.qpn};
    h.immediate = wqe.immediate;
    core_.send(*wqe.path, h, {segments, static_cast<size_t>(count)}, wqe.length);
    ++r_.next_wqe;
    ++r_.next_psn;
    return true;
}

// What is or asks for the packets [first, first + psns) went out, in so many packets.
template <class S>
void RequesterLogic<S>::sent(Psn first, uint32_t psns, uint32_t packets) {
    r_.next_psn = first + psns;
    if (qp_.type != IBV_QPT_RC) {
        r_.una = r_.max_psn = r_.next_psn;
        return;
    }
    if (r_.next_psn > r_.max_psn) {
        r_.max_psn = r_.next_psn;
        core_.counters[Counter::kPsnsSent] += psns;
    } else {
        count_again(r_.cause, psns, packets);
    }
    if (r_.ack_deadline == kNever) restart_timers();
}

// Packets went out once more, for `psns` that are taken as lost.
template <class S>
void RequesterLogic<S>::count_again(Counter cause, uint32_t psns, uint32_t packets) {
    core_.counters[cause] += packets;
    core_.counters[Counter::kRetransmittedPackets] += packets;
    core_.counters[Counter::kPsnsSent] += psns;
    core_.counters[Counter::kPsnsLost] += psns;
}

// UC and UD: done when sent.
template <class S>
void RequesterLogic<S>::complete_unacknowledged() {
    r_.begun_wqe = r_.next_wqe;
    r_.una = r_.max_psn = r_.next_psn;
    core_.complete_send(qp_, r_.next_wqe - 1, IBV_WC_SUCCESS);
    check_drained();
}

// A local operation takes no PSN: it is executed when its turn to be sent comes, and completes in its turn.
template <class S>
void RequesterLogic<S>::execute_local(SendWqe& wqe) {
    wqe.first_psn = r_.next_psn.value();
    wqe.packets = 0;
    if (r_.next_wqe == r_.begun_wqe) {          // not again after a rewind
        const bool bind = wqe.opcode == IBV_WR_BIND_MW;
        const bool done = bind ? core_.memory.bind(*wqe.window, wqe.immediate, wqe.rkey, wqe.remote_addr, wqe.swap,
                                                   wqe.bind_access, qp_)
                               : core_.memory.invalidate(wqe.immediate, qp_);
        if (!done) {
            r_.failed = true;
            r_.failure = bind ? IBV_WC_MW_BIND_ERR : IBV_WC_LOC_PROT_ERR;
            return;
        }
        ++r_.begun_wqe;
    }
    ++r_.next_wqe;
    if (r_.una == r_.max_psn) acknowledge(r_.una);
}

}  // namespace rove::transport
