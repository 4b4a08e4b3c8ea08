// SPDX-License-Identifier: Apache-2.0
// The memif protocol, version 2.0: two processes exchange frames through memory that they share.
//
// The client creates the memory and connects to the server's SOCK_SEQPACKET socket. The messages below are sent over
// this socket and describe the memory. File descriptors accompany them as SCM_RIGHTS. Frames pass through rings in the
// memory. Integers are in the byte order of the machine. Sources: VPP's memif documentation, DPDK's
// drivers/net/memif/memif.h.
#pragma once

#include <cstddef>
#include <cstdint>

namespace rove::datapath {

constexpr uint32_t kMemifCookie = 0x3E31F20;  // first word of every ring
constexpr uint16_t kMemifVersion = 2 << 8 | 0;
constexpr size_t kMemifNameBytes = 32;  // including the 0 at the end
constexpr size_t kMemifSecretBytes = 24;
constexpr size_t kMemifReasonBytes = 96;
constexpr uint8_t kMemifMaxLog2Slots = 14;

enum class MemifType : uint16_t {
    kAck = 1,         // answers INIT, ADD_REGION and ADD_RING
    kHello = 2,       // the server's first message
    kInit = 3,        // the client's first message
    kAddRegion = 4,   // with the memory's descriptor
    kAddRing = 5,     // with the doorbell's descriptor, an eventfd
    kConnect = 6,     // the client's last message
    kConnected = 7,   // the server's answer to CONNECT: frames may be sent
    kDisconnect = 8,  // from either side
};

#pragma pack(push, 1)
struct MemifHello {
    char name[kMemifNameBytes];
    uint16_t min_version, max_version;
    uint16_t max_region, max_s2c_ring, max_c2s_ring;  // highest allowed index
    uint8_t max_log2_slots;
};

struct MemifInit {
    uint16_t version;
    uint32_t id;   // number of the interface behind the socket
    uint8_t mode;  // kMemifEthernet
    char secret[kMemifSecretBytes];
    char name[kMemifNameBytes];
};
constexpr uint8_t kMemifEthernet = 0;

struct MemifAddRegion {
    uint16_t index;
    uint64_t bytes;
};

struct MemifAddRing {
    uint16_t flags;  // kMemifClientToServer, or 0 for server to client
    uint16_t index;  // index among the rings of its direction
    uint16_t region;
    uint32_t offset;  // offset of the MemifRing in its region, bytes
    uint8_t log2_slots;
    uint16_t private_header_bytes;
};
constexpr uint16_t kMemifClientToServer = 1;

struct MemifConnect {
    char name[kMemifNameBytes];
};

struct MemifConnected {
    char name[kMemifNameBytes];
    uint16_t bell;  // for a mesh only: the client's bell in the page that comes with the message (bells.h)
};

struct MemifDisconnect {
    uint32_t code;
    char reason[kMemifReasonBytes];
};

struct MemifMessage {
    MemifType type;
    union {
        uint8_t bytes[126];
        MemifHello hello;
        MemifInit init;
        MemifAddRegion add_region;
        MemifAddRing add_ring;
        MemifConnect connect;
        MemifConnected connected;
        MemifDisconnect disconnect;
    };
};
#pragma pack(pop)
static_assert(sizeof(MemifMessage) == 128);

// One buffer of a frame. The side that fills it writes flags and length. The client, which provides the buffer, writes
// region, offset and, as the available room, length.
struct MemifDescriptor {
    uint16_t flags;  // kMemifNext
    uint16_t region;
    uint32_t length;  // bytes
    uint32_t offset;  // offset of the buffer in its region, bytes
    uint32_t metadata;
};
constexpr uint16_t kMemifNext = 1;  // the frame continues in the next descriptor
static_assert(sizeof(MemifDescriptor) == 16);

// A ring. From client to server, the client fills slots and moves `head`, and the server empties them and moves `tail`.
// From server to client, the client provides empty buffers and moves `head`, and the server fills them and moves
// `tail`. Both indices count modulo 2^16. A slot is an index modulo the number of slots.
struct MemifRing {
    alignas(64) uint32_t cookie;
    uint16_t flags;             // kMemifMaskInterrupt
    uint16_t head;              // written by the client
    alignas(64) uint16_t tail;  // written by the server
    alignas(64) MemifDescriptor descriptors[];
};
constexpr uint16_t kMemifMaskInterrupt = 1;  // the receiver polls, so the doorbell need not be rung
static_assert(offsetof(MemifRing, head) == 6 && offsetof(MemifRing, tail) == 64 && sizeof(MemifRing) == 128);

}  // namespace rove::datapath
