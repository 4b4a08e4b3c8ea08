// SPDX-License-Identifier: Apache-2.0
// The headers of a RoCEv2 packet above UDP, decoded: BTH and the extended transport headers (IBTA vol. 1, ch. 9).
// Units: lengths in bytes, PSN/QPN/MSN 24-bit values in host order, keys in host order.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace rove::wire {

inline constexpr uint16_t kRoceUdpPort = 4791;       // IANA, RoCEv2 annex A17
inline constexpr uint32_t kMulticastQpn = 0xFFFFFF;  // IBTA 9.2.2: destination QP of multicast
inline constexpr uint16_t kDefaultPkey = 0xFFFF;     // IBTA 10.9.2: full member of the default partition
inline constexpr size_t kIcrcBytes = 4;

// IBTA 9.2.1: the three high bits name the transport service, the five low ones the operation. 0xC0 and up are the
// manufacturer's: there, RC's operations of the multi-path transport (docs/protocol/multipath.md).
enum class Service : uint8_t { kRc = 0x00, kUc = 0x20, kUd = 0x60, kCnp = 0x80, kXrc = 0xA0, kMp = 0xC0 };

enum class Op : uint8_t {
    kSendFirst = 0x00,
    kSendMiddle = 0x01,
    kSendLast = 0x02,
    kSendLastImm = 0x03,
    kSendOnly = 0x04,
    kSendOnlyImm = 0x05,
    kWriteFirst = 0x06,
    kWriteMiddle = 0x07,
    kWriteLast = 0x08,
    kWriteLastImm = 0x09,
    kWriteOnly = 0x0A,
    kWriteOnlyImm = 0x0B,
    kReadRequest = 0x0C,
    kReadResponseFirst = 0x0D,
    kReadResponseMiddle = 0x0E,
    kReadResponseLast = 0x0F,
    kReadResponseOnly = 0x10,
    kAck = 0x11,
    kAtomicAck = 0x12,
    kCompareSwap = 0x13,
    kFetchAdd = 0x14,
    kSendLastInv = 0x16,
    kSendOnlyInv = 0x17,
    kFlush = 0x1C,
    kAtomicWrite = 0x1D,
};

inline constexpr uint8_t kOpcodeCnp = 0x81;    // annex A17.9.3
inline constexpr uint8_t kOpcodeHello = 0xDF;  // ours: do you speak mp?

constexpr uint8_t opcode(Service service, Op op) {
    return static_cast<uint8_t>(service) | static_cast<uint8_t>(op);
}
constexpr Service service_of(uint8_t opcode) {
    return static_cast<Service>(opcode & 0xE0);
}
constexpr Op op_of(uint8_t opcode) {
    return static_cast<Op>(opcode & 0x1F);
}
// Of a responder: acknowledgements, and answers to READs and atomics.
constexpr bool is_response(Op op) {
    return op >= Op::kReadResponseFirst && op <= Op::kAtomicAck;
}

struct Bth {
    static constexpr uint8_t kSolicited = 0x80;
    static constexpr uint8_t kMigReq = 0x40;  // a hardware RC peer rejects packets without it
    static constexpr uint8_t kPad = 0x30;
    static constexpr uint8_t kFecn = 0x80, kBecn = 0x40;

    uint8_t opcode = 0;
    uint8_t flags = kMigReq;  // SE 1, M 1, Pad 2, TVer 4
    uint16_t pkey = kDefaultPkey;
    uint8_t ecn = 0;  // kFecn | kBecn
    bool ack_req = false;
    uint32_t dest_qpn = 0;
    uint32_t psn = 0;

    bool solicited() const { return (flags & kSolicited) != 0; }
    uint32_t pad_count() const { return flags >> 4 & 3; }  // bytes after the payload
    uint32_t version() const { return flags & 0xF; }       // 0
};

struct Deth {
    uint32_t qkey;
    uint32_t src_qpn;
};

struct Reth {
    uint64_t va;
    uint32_t rkey;
    uint32_t length;
};

struct AtomicEth {
    uint64_t va;
    uint32_t rkey;
    uint64_t swap_or_add;
    uint64_t compare;
};

// What a FLUSH makes sure of, and for which memory.
struct Feth {
    uint8_t placement;    // bits: 1 seen by all, 2 survives a loss of power
    uint8_t selectivity;  // 0: what RETH names, 1: the whole region of its key
};

// AETH syndrome, IBTA 9.7.5.2.1: bits 6:5 say ACK, RNR NAK or NAK; bits 4:0 the credit count, timer code or NAK code.
inline constexpr uint8_t kSyndromeAck = 0x1F;     // ACK, end-to-end credits not used
inline constexpr uint8_t kSyndromeRnrNak = 0x20;  // | RNR timer code
inline constexpr uint8_t kSyndromeNakSequence = 0x60;
inline constexpr uint8_t kSyndromeNakInvalidRequest = 0x61;
inline constexpr uint8_t kSyndromeNakRemoteAccess = 0x62;
inline constexpr uint8_t kSyndromeNakRemoteOperation = 0x63;
inline constexpr uint8_t kSyndromeNakInvalidRdRequest = 0x64;

struct Aeth {
    uint8_t syndrome;
    uint32_t msn;
};

// Multi-path data packets (MP-RDMA fig. 3, Eunomia 3.2.1).
struct Mpeth {
    static constexpr uint8_t kRetx = 0x80;      // a retransmission
    static constexpr uint8_t kSync = 0x40;      // the operation carries the synchronise flag
    static constexpr uint8_t kLast = 0x20;      // nothing is queued behind this packet
    static constexpr uint8_t kResponse = 0x10;  // of the response stream
    static constexpr uint8_t kEarly = 0x08;     // a WRITE that may be in memory before its turn

    uint8_t flags;  // of these
    uint32_t msn;   // messages before this one that take a receive request
    uint32_t ipsn;  // index of the packet in its message

    bool retx() const { return (flags & kRetx) != 0; }
    bool sync() const { return (flags & kSync) != 0; }
    bool last() const { return (flags & kLast) != 0; }
    bool response() const { return (flags & kResponse) != 0; }
    bool early() const { return (flags & kEarly) != 0; }
};

// Multi-path acknowledgement of one data packet, and cumulatively of all before `aack_psn`.
enum class MpAck : uint8_t { kAck, kSack, kNack, kErr };
struct MpAckEntry {
    MpAck kind;
    bool ece;              // the data packet carried CE
    bool retx;             // echoes Mpeth
    bool response;         // the stream that is acknowledged
    uint32_t psn;          // the data packet's
    uint16_t vp;           // its UDP source port
    bool trimmed = false;  // BX-10, of kNack: a switch has left nothing but its headers
};
struct Mpaeth {
    MpAckEntry entry;
    uint8_t syndrome;   // of kErr, as in AETH
    uint32_t aack_psn;  // the first PSN not yet received in order
    uint8_t more;       // BX-3: entries of kMpAckEntryBytes each in the payload
};
inline constexpr size_t kMpAckEntryBytes = 8;

// kOpcodeHello: whether two QPs shall speak mp with each other. BTH names the one that is asked, or answered.
struct Hello {
    uint8_t version;
    bool answer;     // and not a question
    bool mp;         // the sender will speak it
    uint32_t qpn;    // the sender's
    uint32_t nonce;  // of the question; its answer echoes it
};
inline constexpr uint8_t kMpVersion = 1;

// What stands between UDP and the payload. Which members beside `bth` mean anything follows from the opcode
// (extensions_of); the others are left as they were, uninitialized to begin with: zeros for all cost 20 ns a packet.
struct Headers {
    Bth bth;
    Deth deth;
    Reth reth;
    AtomicEth atomic;
    Feth feth;
    Aeth aeth;
    uint64_t atomic_original;  // AtomicAckETH
    uint32_t immediate;        // ImmDt, host order of the 32 bits on the wire
    uint32_t invalidate_rkey;  // IETH
    Mpeth mp;
    Mpaeth mp_ack;
    uint16_t vp;  // UDP source port of a multi-path packet: its virtual path
    Hello hello;
    uint32_t xrc_srqn;  // XRCETH (annex A14): the SRQ that a request is for
};

// The extended headers an opcode carries, as a bit set, in the order in which they stand on the wire.
enum Extension : uint16_t {
    kHasDeth = 1,
    kHasReth = 2,
    kHasAtomicEth = 4,
    kHasAeth = 8,
    kHasAtomicAckEth = 16,
    kHasImmediate = 32,
    kHasIeth = 64,
    kHasPayload = 128,
    kHasMpeth = 256,
    kHasMpaeth = 512,
    kHasHello = 1024,
    kHasReserved = 2048,  // the 16 bytes of a CNP
    kHasFeth = 4096,
    kHasXrceth = 8192,  // directly behind BTH
};

struct OpcodeInfo {
    uint16_t extensions = 0;  // Extension bits
    bool known = false;
    uint8_t header_bytes = 0;  // BTH and the extended headers
};

// Describes all 256 opcodes; `known` is false for those that IBTA reserves or that rove does not speak (RD).
extern const std::array<OpcodeInfo, 256> kOpcodeTable;
inline const std::array<OpcodeInfo, 256>& opcode_table() {
    return kOpcodeTable;
}
inline const OpcodeInfo& opcode_info(uint8_t opcode) {
    return kOpcodeTable[opcode];
}

}  // namespace rove::wire
