// SPDX-License-Identifier: Apache-2.0
// The decoded headers of a RoCEv2 packet above UDP: BTH and the extended transport headers (IBTA vol. 1, ch. 9).
// Lengths are in bytes. PSNs, QPNs and MSNs are 24-bit values in host order, and keys are in host order.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace rove::wire {

inline constexpr uint16_t kRoceUdpPort = 4791;       // IANA, RoCEv2 annex A17
inline constexpr uint32_t kMulticastQpn = 0xFFFFFF;  // IBTA 9.2.2: destination QP of multicast
inline constexpr uint16_t kDefaultPkey = 0xFFFF;     // IBTA 10.9.2: full member of the default partition
inline constexpr size_t kIcrcBytes = 4;

// The transport service, in the three high bits of an opcode; the five low bits name the operation (IBTA 9.2.1).
// Opcodes from 0xC0 are the manufacturer's. rove uses those from 0xE0 for the RC operations of the multi-path transport
// (docs/protocol/multipath.md), because MRC (OCP 1.0) uses some from 0xC6 to 0xDE on the same UDP port.
enum class Service : uint8_t { kRc = 0x00, kUc = 0x20, kUd = 0x60, kCnp = 0x80, kXrc = 0xA0, kMp = 0xE0 };

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
inline constexpr uint8_t kOpcodeHello = 0xFF;  // rove's own; asks whether the peer speaks mp

constexpr uint8_t opcode(Service service, Op op) {
    return static_cast<uint8_t>(service) | static_cast<uint8_t>(op);
}
constexpr Service service_of(uint8_t opcode) {
    return static_cast<Service>(opcode & 0xE0);
}
constexpr Op op_of(uint8_t opcode) {
    return static_cast<Op>(opcode & 0x1F);
}
// Returns true for a responder's operations: acknowledgements, and answers to READs and atomics.
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

// The guarantee that a FLUSH asks for, and the memory it covers.
struct Feth {
    uint8_t placement;    // bits: 1 globally visible, 2 survives a loss of power
    uint8_t selectivity;  // 0: the range in RETH, 1: the whole region of its key
};

// The AETH syndrome, IBTA 9.7.5.2.1. Bits 6:5 say ACK, RNR NAK or NAK. Bits 4:0 hold the credit count, timer code or
// NAK code.
inline constexpr uint8_t kSyndromeAck = 0x1F;     // ACK without end-to-end credits
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

// The header of multi-path data packets (MP-RDMA fig. 3, Eunomia 3.2.1).
struct Mpeth {
    static constexpr uint8_t kRetx = 0x80;      // a retransmission
    static constexpr uint8_t kSync = 0x40;      // the operation carries the synchronise flag
    static constexpr uint8_t kLast = 0x20;      // no packet is queued after this one
    static constexpr uint8_t kResponse = 0x10;  // belongs to the response stream
    static constexpr uint8_t kEarly = 0x08;     // a WRITE that may be placed in memory before its turn

    uint8_t flags;  // the bits above
    uint32_t msn;   // number of earlier messages that consume a receive request
    uint32_t ipsn;  // index of the packet in its message

    bool retx() const { return (flags & kRetx) != 0; }
    bool sync() const { return (flags & kSync) != 0; }
    bool last() const { return (flags & kLast) != 0; }
    bool response() const { return (flags & kResponse) != 0; }
    bool early() const { return (flags & kEarly) != 0; }
};

// The kind of a multi-path acknowledgement. It covers one data packet and, cumulatively, all packets before `aack_psn`.
enum class MpAck : uint8_t { kAck, kSack, kNack, kErr };
struct MpAckEntry {
    MpAck kind;
    bool ece;              // the data packet carried CE
    bool retx;             // echoes Mpeth
    bool response;         // the acknowledged stream
    uint32_t psn;          // PSN of the data packet
    uint16_t vp;           // UDP source port of the data packet
    bool trimmed = false;  // BX-10, in a kNack: a switch trimmed the packet to its headers
};
struct Mpaeth {
    MpAckEntry entry;
    uint8_t syndrome;   // used in a kErr; coded like AETH's
    uint32_t aack_psn;  // the first PSN not yet received in order
    // How many packets from the AACK on the receiver takes from this stream now: see encode_room(). 0 makes no
    // statement.
    uint8_t room = 0;
    uint8_t more;  // BX-3: number of entries of kMpAckEntryBytes each in the payload
};
// Return `packets`, at least one, as Mpaeth::room, and the packets for a room that is not 0. The code says 1, 8, 16,
// ... 1016 in steps of eight up to 128, and 1024, 1088, ... 9088 in steps of 64 from there on.
inline constexpr uint32_t kRoomPackets = 8, kRoomSteps = 64, kSteppedRoom = 129;
constexpr uint8_t encode_room(uint32_t packets) {
    constexpr uint32_t kFrom = (kSteppedRoom - 1) * kRoomPackets, kMost = 255;
    const uint32_t room = packets < kFrom ? 1 + packets / kRoomPackets : kSteppedRoom + (packets - kFrom) / kRoomSteps;
    return static_cast<uint8_t>(room < kMost ? room : kMost);
}
constexpr uint32_t decode_room(uint8_t room) {
    if (room >= kSteppedRoom) return (kSteppedRoom - 1) * kRoomPackets + (room - kSteppedRoom) * kRoomSteps;
    return room == 1 ? 1 : (room - 1u) * kRoomPackets;
}
inline constexpr size_t kMpAckEntryBytes = 8;

// The number of early packets that a QP can take as a receiver. 0 makes no statement.
struct ReceiveLimits {
    uint16_t reorder_packets = 0;  // each stream tracks packets up to this far ahead of the first missing one
    uint16_t early_kib = 0;        // KiB of early packets that it can hold until their turn
    bool operator==(const ReceiveLimits&) const = default;
};
// The handshake of kOpcodeHello, in which two QPs agree whether to speak mp with each other. BTH names the QP that
// receives the question or the answer.
struct Hello {
    uint8_t version;
    bool answer;     // false for a question
    bool mp;         // the sender will speak mp
    uint32_t qpn;    // the sender's QP
    uint32_t nonce;  // chosen by the question; its answer echoes it
    ReceiveLimits limits = {};
    uint32_t tick = 0;       // the sender's time, in a unit of its own; not 0
    uint32_t echo_tick = 0;  // in an answer: the question's tick
};
inline constexpr uint8_t kMpVersion = 2;

// The headers between UDP and the payload. The opcode decides which members besides `bth` are meaningful
// (OpcodeInfo::extensions). The others keep their old values and start uninitialized, because zeroing them all costs 20
// ns a packet.
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
    uint32_t xrc_srqn;  // XRCETH (annex A14): the SRQ that a request addresses
    // BX-15, in a CNP's reserved bytes: marked requests and responses since the last one; 0 and 0: not counted
    uint32_t cnp_requests, cnp_responses;
};

// The extended headers of an opcode as a bit set, in their order on the wire.
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
    kHasReserved = 2048,  // the 16 bytes of a CNP: BX-15's two counts of marks, and zeros
    kHasFeth = 4096,
    kHasXrceth = 8192,  // directly after BTH
};

struct OpcodeInfo {
    uint16_t extensions = 0;  // Extension bits
    bool known = false;
    uint8_t header_bytes = 0;  // BTH and the extended headers
};

// Describes all 256 opcodes. `known` is false for an opcode that IBTA reserves or whose service rove does not speak
// (RD).
extern const std::array<OpcodeInfo, 256> kOpcodeTable;
inline const std::array<OpcodeInfo, 256>& opcode_table() {
    return kOpcodeTable;
}
inline const OpcodeInfo& opcode_info(uint8_t opcode) {
    return kOpcodeTable[opcode];
}

}  // namespace rove::wire
