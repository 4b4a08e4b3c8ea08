// SPDX-License-Identifier: Apache-2.0
// UC, and the requester of UD: a request is done when it is sent, and data that does not fit is dropped. Units: bytes,
// packets.
#pragma once

#include <type_traits>

#include "transport/core.h"
#include "transport/message_receiver.h"

namespace rove::transport {

template <class S, class Protocol>
class UnreliableRequesterLogic {
  public:
    UnreliableRequesterLogic(Core<S>& core, QueuePair& qp, Protocol& protocol)
        : core_(core), qp_(qp), s_(protocol), p_(qp.position) {}

    uint32_t transmit(uint32_t budget) {
        if (qp_.state != IBV_QPS_RTS && qp_.state != IBV_QPS_SQD) return 0;
        uint32_t packets = 0;
        const uint32_t end = qp_.state == IBV_QPS_SQD ? p_.drain_wqe : qp_.sq.available_until();
        while (packets < budget && p_.next_wqe != end && !is_paced()) {
            SendWqe& wqe = qp_.sq.at(p_.next_wqe);
            if (!core_.ready(path_of(wqe))) break;
            if (p_.next_packet == 0 && !begin(wqe)) {
                if (p_.failed) break;
                continue;
            }
            const uint32_t sent = send(wqe, budget - packets);
            if (sent == 0) break;
            packets += sent;
            if (p_.next_packet != wqe.packets) continue;
            p_.next_packet = 0;
            complete_next();
        }
        if (p_.failed) fail();
        return packets;
    }

    // Repairs the state after a fault (recover-inl.h); `packets` of a burst were sent.
    void recover(uint32_t packets) { advance(packets); }

  private:
    const Path& path_of(const SendWqe& wqe) const {
        if constexpr (std::is_same_v<Protocol, Ud>)
            if (!wqe.is_local()) return *wqe.path;
        return qp_.path;
    }
    bool is_paced() const {
        if constexpr (std::is_same_v<Protocol, Uc>) {
            if (s_.congestion.rate.limited() && s_.congestion.rate.next_send_ns() > core_.now_ns) {
                core_.deadlines.schedule(qp_, s_.congestion.rate.next_send_ns());
                return true;
            }
        }
        return false;
    }

    // Gives the next request its PSNs. Returns false if it has no packet to send.
    bool begin(SendWqe& wqe) {
        if (wqe.is_local()) {
            if (core_.execute_local(qp_, wqe)) complete_next();
            return false;
        }
        wqe.first_psn = s_.next_psn.value();
        const bool one = std::is_same_v<Protocol, Ud> || wqe.length <= qp_.mtu;
        wqe.packets = one ? 1 : (wqe.length + qp_.mtu - 1) / qp_.mtu;
        p_.begun_wqe = p_.next_wqe + 1;
        return true;
    }

    // Sends packets of `wqe` from next_packet on. Returns their number, or 0 if the request fails.
    uint32_t send(SendWqe& wqe, uint32_t budget) {
        if constexpr (std::is_same_v<Protocol, Ud>) {
            return send_datagram(wqe);
        } else {
            Dcqcn& rate = s_.congestion.rate;
            const uint32_t middles = std::min(budget, wqe.packets - 1 - p_.next_packet);
            if (p_.next_packet != 0 && middles != 0 && wqe.num_sge <= 1 && !rate.limited()) {
                const uint32_t sent = core_.send_middle_packets(qp_, wire::Service::kUc, wqe, p_.next_packet,
                                                                s_.next_psn, middles, [](wire::Headers&) {});
                if (sent != 0) return advance(sent);
            }
            const uint32_t bytes = core_.send_packet(qp_, wire::Service::kUc, wqe, p_.next_packet, s_.next_psn, false);
            if (bytes == Core<S>::kNotReadable) {
                p_.fail(p_.next_wqe, IBV_WC_LOC_PROT_ERR);
                return 0;
            }
            if (rate.limited()) rate.on_sent(core_.config.dcqcn, bytes + kHeaderBytes, core_.now_ns);
            return advance(1);
        }
    }

    uint32_t send_datagram(SendWqe& wqe) {
        if (wqe.length > qp_.port_mtu) {  // a datagram is one packet (IBTA 9.8.4)
            p_.fail(p_.next_wqe, IBV_WC_LOC_LEN_ERR);
            return 0;
        }
        wire::Segment segments[kMaxSge];
        const int count = core_.gather(wqe, 0, wqe.length, qp_.pd, segments);
        if (count < 0) {
            p_.fail(p_.next_wqe, IBV_WC_LOC_PROT_ERR);
            return 0;
        }
        wire::Headers h;
        h.bth.opcode = wire::opcode(wire::Service::kUd, send_op(wqe.opcode, true, true));
        h.bth.flags |= solicited_flag(wqe);
        h.bth.pkey = qp_.pkey;
        h.bth.dest_qpn = wqe.remote_qpn;
        h.bth.psn = s_.next_psn.value();
        h.deth = {wqe.remote_qkey, qp_.qpn};
        h.immediate = wqe.immediate;
        core_.send(*wqe.path, h, {segments, static_cast<size_t>(count)}, wqe.length);
        return advance(1);
    }

    uint32_t advance(uint32_t packets) {
        p_.next_packet += packets;
        s_.next_psn = s_.next_psn + packets;
        return packets;
    }

    void complete_next() {
        p_.begun_wqe = ++p_.next_wqe;
        core_.complete_send(qp_, p_.next_wqe - 1, IBV_WC_SUCCESS);
        core_.check_drained(qp_);
    }

    // Ends the send queue alone, after all earlier requests are complete (IBTA 10.3.1.7).
    void fail() {
        core_.complete_send(qp_, p_.next_wqe, p_.failure);
        qp_.state = IBV_QPS_SQE;
        core_.flush_sends(qp_);
    }

    Core<S>& core_;
    QueuePair& qp_;
    Protocol& s_;
    SendPosition& p_;
};

// UC: a packet that does not fit is dropped with its message (IBTA 9.8.3).
template <class S>
void receive_unreliable(Core<S>& core, QueuePair& qp, Uc& uc, const wire::ParsedFrame& frame) {
    using Kind = MessageInProgress::Kind;
    MessageInProgress& m = uc.message;
    const wire::Op op = wire::op_of(frame.headers.bth.opcode);
    const Psn psn(frame.headers.bth.psn);
    if (psn != uc.epsn || is_first(op)) m.kind = Kind::kNone;
    uc.epsn = psn + 1;
    if (!is_first(op) && m.kind == Kind::kNone) {
        ++core.counters[Counter::kDropSequence];
        return;
    }
    MessageReceiver<S> receiver(core, qp, m);
    const Outcome outcome = is_send(op) ? receiver.execute_send(frame, op) : receiver.execute_write(frame, op);
    if (outcome == Outcome::kDone) return;
    m.kind = Kind::kNone;
    const Consequence& consequence = consequence_of(outcome);
    if (consequence.uc_is_error) {
        Executor<S>(core, qp).apply(consequence);
    } else {
        ++core.counters[outcome == Outcome::kNoReceive ? Counter::kDropNoReceive : Counter::kDropLength];
    }
}

}  // namespace rove::transport
