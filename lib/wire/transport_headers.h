// SPDX-License-Identifier: Apache-2.0
// Converts BTH and the extended transport headers between struct and wire (IBTA vol. 1, ch. 9.2 to 9.5). Internal to
// lib/wire. The caller must check lengths, which it knows from opcode_info().
#pragma once

#include <cstdint>
#include <cstring>

#include "wire/ack_entry.h"
#include "wire/byte_order.h"
#include "wire/headers.h"

namespace rove::wire {

inline constexpr uint32_t kMask24 = 0xFFFFFF;

// BTH, in bits: opcode 8, SE 1, M 1, Pad 2, TVer 4, P_Key 16; F 1, B 1, reserved 6, DestQP 24; A 1, reserved 7, PSN 24.
inline void parse_qpn_and_psn(const uint8_t* at, Bth& bth) {
    const uint32_t psn = load_be32(at + 8);
    bth.dest_qpn = load_be32(at + 4) & kMask24;
    bth.ack_req = psn >> 31;
    bth.psn = psn & kMask24;
}
inline void parse_bth(const uint8_t* at, Bth& bth) {
    bth.opcode = at[0];
    bth.flags = at[1];
    bth.pkey = load_be16(at + 2);
    bth.ecn = at[4] & (Bth::kFecn | Bth::kBecn);
    parse_qpn_and_psn(at, bth);
}

inline void emit_psn(uint8_t* at, const Bth& bth) {
    store_be32(at + 8, uint32_t{bth.ack_req} << 31 | (bth.psn & kMask24));
}
// Writes BTH with `pad` in place of bth.pad_count().
inline void emit_bth(uint8_t* at, const Bth& bth, uint32_t pad) {
    const uint32_t flags = (bth.flags & ~uint32_t{Bth::kPad}) | pad << 4;
    store_be32(at, uint32_t{bth.opcode} << 24 | flags << 16 | bth.pkey);
    store_be32(at + 4, uint32_t{bth.ecn} << 24 | (bth.dest_qpn & kMask24));
    emit_psn(at, bth);
}

// MPETH, in bits: ReTx 1, Sync 1, Last 1, Resp 1, Early 1, reserved 3, MSN 24; reserved 8, iPSN 24.
inline void parse_mpeth(const uint8_t* at, Mpeth& mp) {
    constexpr uint8_t kKnown = Mpeth::kRetx | Mpeth::kSync | Mpeth::kLast | Mpeth::kResponse | Mpeth::kEarly;
    mp = {.flags = static_cast<uint8_t>(at[0] & kKnown),
          .msn = load_be32(at) & kMask24,
          .ipsn = load_be32(at + 4) & kMask24};
}
inline void emit_mpeth(uint8_t* at, const Mpeth& mp) {
    store_be32(at, uint32_t{mp.flags} << 24 | (mp.msn & kMask24));
    store_be32(at + 4, mp.ipsn & kMask24);
}

// The extended headers that few packets carry. They are grouped so that other packets pay for a single test.
inline constexpr uint16_t kRareExtensions =
    kHasMpeth | kHasMpaeth | kHasHello | kHasReserved | kHasDeth | kHasAtomicEth | kHasFeth | kHasXrceth;

// FETH, in bits: reserved 26, selectivity 2, placement 4.
inline void parse_feth(const uint8_t* at, Feth& feth) {
    const uint32_t bits = load_be32(at);
    feth = {.placement = static_cast<uint8_t>(bits & 0xF), .selectivity = static_cast<uint8_t>(bits >> 4 & 3)};
}
inline void emit_feth(uint8_t* at, const Feth& feth) {
    store_be32(at, uint32_t{feth.selectivity & 3u} << 4 | (feth.placement & 0xFu));
}

// Reads the headers after BTH. MPETH, MPAETH or XRCETH comes first.
inline void parse_extensions(const uint8_t* at, uint16_t extensions, Headers& out) {
    if (extensions & kRareExtensions) [[unlikely]] {
        if (extensions & kHasMpeth) {
            parse_mpeth(at, out.mp);
            at += 8;
        } else if (extensions & kHasMpaeth) {
            const uint32_t second = load_be32(at + 4), third = load_be32(at + 8);
            out.mp_ack = {.entry = ack_entry(load_be32(at), static_cast<uint16_t>(third >> 16)),
                          .syndrome = static_cast<uint8_t>(second >> 24),
                          .aack_psn = second & kMask24,
                          .room = static_cast<uint8_t>(third >> 8),
                          .more = static_cast<uint8_t>(third)};
            at += 12;
        } else if (extensions & kHasHello) {
            out.hello = {.version = at[0],
                         .answer = (at[1] & 1) != 0,
                         .mp = (at[1] & 2) != 0,
                         .qpn = load_be32(at + 4) & kMask24,
                         .nonce = load_be32(at + 8),
                         .limits = {.reorder_packets = load_be16(at + 12), .early_kib = load_be16(at + 14)},
                         .tick = load_be32(at + 16),
                         .echo_tick = load_be32(at + 20)};
            at += 24;
        } else if (extensions & kHasReserved) {
            out.cnp_requests = load_be32(at);
            out.cnp_responses = load_be32(at + 4);
            at += 16;
        } else if (extensions & kHasXrceth) {
            out.xrc_srqn = load_be32(at) & kMask24;
            at += 4;
        }
        if (extensions & kHasDeth) {
            out.deth = {.qkey = load_be32(at), .src_qpn = load_be32(at + 4) & kMask24};
            at += 8;
        }
        if (extensions & kHasAtomicEth) {
            out.atomic = {.va = load_be64(at),
                          .rkey = load_be32(at + 8),
                          .swap_or_add = load_be64(at + 12),
                          .compare = load_be64(at + 20)};
            at += 28;
        }
        if (extensions & kHasFeth) {
            parse_feth(at, out.feth);
            at += 4;
        }
    }
    if (extensions & kHasReth) {
        out.reth = {.va = load_be64(at), .rkey = load_be32(at + 8), .length = load_be32(at + 12)};
        at += 16;
    }
    if (extensions & kHasAeth) {
        const uint32_t aeth = load_be32(at);
        out.aeth = {.syndrome = static_cast<uint8_t>(aeth >> 24), .msn = aeth & kMask24};
        if (extensions & kHasAtomicAckEth) out.atomic_original = load_be64(at + 4);
    }
    if (extensions & (kHasImmediate | kHasIeth))
        (extensions & kHasImmediate ? out.immediate : out.invalidate_rkey) = load_be32(at);
}

// Writes the headers after BTH. Returns a pointer to the byte after them.
inline uint8_t* emit_extensions(uint8_t* at, uint16_t extensions, const Headers& headers) {
    if (extensions & kRareExtensions) [[unlikely]] {
        if (extensions & kHasMpeth) {
            emit_mpeth(at, headers.mp);
            at += 8;
        } else if (extensions & kHasMpaeth) {
            const Mpaeth& ack = headers.mp_ack;
            store_be32(at, ack_entry_word(ack.entry));
            store_be32(at + 4, uint32_t{ack.syndrome} << 24 | (ack.aack_psn & kMask24));
            store_be32(at + 8, uint32_t{ack.entry.vp} << 16 | uint32_t{ack.room} << 8 | ack.more);
            at += 12;
        } else if (extensions & kHasHello) {
            const Hello& hello = headers.hello;
            store_be32(at, uint32_t{hello.version} << 24 | uint32_t{hello.mp} << 17 | uint32_t{hello.answer} << 16);
            store_be32(at + 4, hello.qpn & kMask24);
            store_be32(at + 8, hello.nonce);
            store_be16(at + 12, hello.limits.reorder_packets);
            store_be16(at + 14, hello.limits.early_kib);
            store_be32(at + 16, hello.tick);
            store_be32(at + 20, hello.echo_tick);
            at += 24;
        } else if (extensions & kHasReserved) {
            store_be32(at, headers.cnp_requests);
            store_be32(at + 4, headers.cnp_responses);
            std::memset(at + 8, 0, 8);
            at += 16;
        } else if (extensions & kHasXrceth) {
            store_be32(at, headers.xrc_srqn & kMask24);
            at += 4;
        }
        if (extensions & kHasDeth) {
            store_be32(at, headers.deth.qkey);
            store_be32(at + 4, headers.deth.src_qpn & kMask24);
            at += 8;
        }
        if (extensions & kHasAtomicEth) {
            store_be64(at, headers.atomic.va);
            store_be32(at + 8, headers.atomic.rkey);
            store_be64(at + 12, headers.atomic.swap_or_add);
            store_be64(at + 20, headers.atomic.compare);
            at += 28;
        }
        if (extensions & kHasFeth) {
            emit_feth(at, headers.feth);
            at += 4;
        }
    }
    if (extensions & kHasReth) {
        store_be64(at, headers.reth.va);
        store_be32(at + 8, headers.reth.rkey);
        store_be32(at + 12, headers.reth.length);
        at += 16;
    }
    if (extensions & kHasAeth) {
        store_be32(at, uint32_t{headers.aeth.syndrome} << 24 | (headers.aeth.msn & kMask24));
        at += 4;
        if (extensions & kHasAtomicAckEth) {
            store_be64(at, headers.atomic_original);
            at += 8;
        }
    }
    if (extensions & (kHasImmediate | kHasIeth)) {
        store_be32(at, extensions & kHasImmediate ? headers.immediate : headers.invalidate_rkey);
        at += 4;
    }
    return at;
}

}  // namespace rove::wire
