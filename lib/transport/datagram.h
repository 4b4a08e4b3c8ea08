// SPDX-License-Identifier: Apache-2.0
// The receiver of UD: one packet is one message, and its source goes into the first 40 bytes of the receive as a GRH.
// Units: bytes.
#pragma once

#include "transport/core.h"

namespace rove::transport {

inline constexpr uint32_t kGrhBytes = 40;  // IBTA 8.3; an IPv4 header is in the last 20 (annex A17.4.5.1)
// The trailer that a port's GSI gets behind the payload: the sender's MAC, so that it can answer without resolving it.
inline constexpr uint32_t kGsiTrailerBytes = sizeof(wire::MacAddress);
inline constexpr uint8_t kSlIpv6 = 1, kSlIpv4 = 2;  // wc.sl, as in the CQEs of mlx5

template <class S>
void receive_datagram(Core<S>& core, QueuePair& qp, const wire::ParsedFrame& frame) {
    const wire::Headers& h = frame.headers;
    const wire::Op op = wire::op_of(h.bth.opcode);
    if (op != wire::Op::kSendOnly && op != wire::Op::kSendOnlyImm) {
        ++core.counters[Counter::kDropService];
        return;
    }
    if (h.deth.qkey != qp.qkey) {
        ++core.counters[Counter::kDropQkey];
        return;
    }
    const uint32_t trailer_bytes = qp.qpn == QueuePairTable::kGsiQpn ? kGsiTrailerBytes : 0;
    // A receive that is held already belongs to this datagram, which is received once more (recover-inl.h).
    switch (qp.slot.taken ? Core<S>::ReceiveLookup::kYes
                          : core.take_receive(qp, kGrhBytes + frame.payload_bytes + trailer_bytes)) {
        case Core<S>::ReceiveLookup::kNone:
            ++core.counters[Counter::kDropNoReceive];
            return;
        case Core<S>::ReceiveLookup::kTooShort:
            ++core.counters[Counter::kDropLength];
            return;
        case Core<S>::ReceiveLookup::kYes:
            break;
    }
    uint8_t grh[kGrhBytes] = {};
    const bool ipv4 = wire::is_ipv4_mapped(frame.flow.src);
    std::memcpy(grh + (ipv4 ? 20 : 0), frame.l3, ipv4 ? 20 : 40);

    const ibv_sge* sges = qp.slot.sges.get();
    const uint32_t num_sge = qp.slot.wqe.num_sge;
    BytesReader source{grh};
    ibv_wc_status status = core.scatter(sges, num_sge, 0, source, kGrhBytes, qp.recv_pd);
    if (status == IBV_WC_SUCCESS) {
        BytesReader payload{frame.payload};
        status = core.scatter(sges, num_sge, kGrhBytes, payload, frame.payload_bytes, qp.recv_pd);
    }
    if (status == IBV_WC_SUCCESS && trailer_bytes != 0) {
        BytesReader mac{frame.flow.src_mac.data()};
        status = core.scatter(sges, num_sge, kGrhBytes + frame.payload_bytes, mac, trailer_bytes, qp.recv_pd);
    }
    core.complete_receive(qp, h.bth.solicited(), [&](ibv_wc& wc) {
        wc.status = status;
        wc.opcode = IBV_WC_RECV;
        wc.byte_len = kGrhBytes + frame.payload_bytes;
        wc.src_qp = h.deth.src_qpn;
        wc.wc_flags = IBV_WC_GRH;
        // RoCE frames carry no service level. This tells the format of the GRH, and UCX uses it.
        wc.sl = ipv4 ? kSlIpv4 : kSlIpv6;
        if (op == wire::Op::kSendOnlyImm) {
            wc.wc_flags |= IBV_WC_WITH_IMM;
            wc.imm_data = htobe32(h.immediate);
        }
    });
    if (status != IBV_WC_SUCCESS) core.enter_error(qp);
}

}  // namespace rove::transport
