// SPDX-License-Identifier: Apache-2.0
// Converts the entry of a multi-path acknowledgement for one packet between struct and wire. It is inline because there
// is one for every data packet.
#pragma once

#include <cstdint>

#include "wire/byte_order.h"
#include "wire/headers.h"

namespace rove::wire {

// The first word of an entry and of MPAETH: kind 2, ECE 1, ReTx 1, Resp 1, Trimmed 1, reserved 2, PSN 24.
inline uint32_t ack_entry_word(const MpAckEntry& entry) {
    return uint32_t{static_cast<uint8_t>(entry.kind)} << 30 | uint32_t{entry.ece} << 29 | uint32_t{entry.retx} << 28 |
           uint32_t{entry.response} << 27 | uint32_t{entry.trimmed} << 26 | (entry.psn & 0xFFFFFF);
}
inline MpAckEntry ack_entry(uint32_t word, uint16_t vp) {
    return {.kind = static_cast<MpAck>(word >> 30),
            .ece = (word >> 29 & 1) != 0,
            .retx = (word >> 28 & 1) != 0,
            .response = (word >> 27 & 1) != 0,
            .psn = word & 0xFFFFFF,
            .vp = vp,
            .trimmed = (word >> 26 & 1) != 0};
}

// BX-3: an entry in the payload, kMpAckEntryBytes.
inline void emit_ack_entry(uint8_t* out, const MpAckEntry& entry) {
    store_be32(out, ack_entry_word(entry));
    store_be32(out + 4, uint32_t{entry.vp} << 16);
}
inline MpAckEntry parse_ack_entry(const uint8_t* at) {
    return ack_entry(load_be32(at), load_be16(at + 4));
}

}  // namespace rove::wire
