// SPDX-License-Identifier: Apache-2.0
// Converts the messages of the connection manager between structs and MADs: IBTA vol. 1, 12.6 (REQ .. DREP) and 12.11
// (SIDR). The fields of enhanced connection establishment (ECE) are where Linux has them. The header that carries IP
// addresses is defined in annex A11. Values are in host order. Timeouts are exponents t of 4.096 us * 2^t.
//
// Every MAD has 256 bytes, and private data fills the rest of a message. Private data has no length on the wire: a
// receiver sees zeros after the bytes that were sent.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <variant>

#include "wire/frame.h"

namespace rove::cm {

inline constexpr size_t kMadBytes = 256;
using Mad = std::array<uint8_t, kMadBytes>;

inline constexpr uint32_t kGsiQpn = 1;            // IBTA 3.5.3: the QP for management packets
inline constexpr uint32_t kGsiQkey = 0x80010000;  // IBTA 3.5.3, C9-50

// The attributes of IBTA table 106 and the tables after it. All management classes share 0x0001.
enum class Attribute : uint16_t {
    kClassPortInfo = 0x0001,
    kReq = 0x0010,
    kMra = 0x0011,
    kRej = 0x0012,
    kRep = 0x0013,
    kRtu = 0x0014,
    kDreq = 0x0015,
    kDrep = 0x0016,
    kSidrReq = 0x0017,
    kSidrRep = 0x0018,
    kLap = 0x0019,
    kApr = 0x001A,
};

// The reasons of IBTA table 109. ECE adds 35.
enum class RejReason : uint16_t {
    kNone = 0,
    kNoQp = 1,
    kNoResources = 3,
    kTimeout = 4,
    kUnsupported = 5,
    kInvalidCommId = 6,
    kInvalidCommInstance = 7,
    kInvalidServiceId = 8,
    kInvalidTransportType = 9,
    kStaleConnection = 10,
    kInvalidGid = 12,
    kInvalidMtu = 26,
    kConsumerDefined = 28,
    kInvalidRnrRetry = 29,
    kDuplicateCommId = 30,
    kInvalidClassVersion = 31,
    kVendorOption = 35,
};

enum class TransportService : uint8_t { kRc = 0, kUc = 1, kRd = 2, kExtended = 3 };  // used in REQ; kExtended means XRC
inline constexpr uint8_t kXrc = 1;                                                   // value of Req::extended_service

// The message that an MRA or REJ answers.
enum class Answered : uint8_t { kReq = 0, kRep = 1, kOther = 2 };  // kOther: in an MRA a LAP, in a REJ no message

// The vendor options on which two ends agree. All zeros mean that there are no options.
struct Ece {
    uint32_t vendor_id = 0;  // 24 bits
    uint32_t options = 0;
    bool operator==(const Ece&) const = default;
};

struct ReqPath {
    uint16_t local_lid = 0xFFFF, remote_lid = 0xFFFF;  // 0xFFFF, as RoCE has no LIDs
    wire::Gid local_gid{}, remote_gid{};               // addresses of the REQ's sender and of its receiver
    uint32_t flow_label = 0;                           // 20 bits
    uint8_t packet_rate = 0;                           // 6 bits, IBTA's code
    uint8_t traffic_class = 0;
    uint8_t hop_limit = 0;
    uint8_t sl = 0;  // 4 bits
    bool subnet_local = false;
    uint8_t local_ack_timeout = 0;  // 5 bits
    bool operator==(const ReqPath&) const = default;
};

struct Req {
    static constexpr size_t kPrivateBytes = 92;

    uint32_t local_comm_id = 0;
    Ece ece;
    uint64_t service_id = 0;
    uint64_t ca_guid = 0;
    uint32_t qkey = 0;
    uint32_t qpn = 0;  // 24 bits
    uint8_t responder_resources = 0, initiator_depth = 0;
    uint32_t local_eecn = 0, remote_eecn = 0;  // 24 bits
    uint8_t remote_response_timeout = 0;       // 5 bits; the receiver must answer within this time
    TransportService service = TransportService::kRc;
    bool flow_control = false;           // end-to-end flow control
    uint32_t starting_psn = 0;           // 24 bits
    uint8_t local_response_timeout = 0;  // 5 bits; the sender will answer within this time
    uint8_t retry_count = 0;             // 3 bits
    uint16_t pkey = wire::kDefaultPkey;
    uint8_t path_mtu = 0;  // 4 bits; 1 .. 5 for 256 .. 4096 bytes
    bool rdc_exists = false;
    uint8_t rnr_retry_count = 0;  // 3 bits
    uint8_t max_cm_retries = 0;   // 4 bits
    bool srq = false;
    uint8_t extended_service = 0;  // 3 bits; kXrc if `service` is kExtended
    ReqPath primary;
    ReqPath alternate{.local_lid = 0, .remote_lid = 0};
    bool sap_supported = false;
    std::array<uint8_t, kPrivateBytes> private_data{};
    bool operator==(const Req&) const = default;
};

struct Mra {
    static constexpr size_t kPrivateBytes = 222;

    uint32_t local_comm_id = 0, remote_comm_id = 0;
    Answered answered = Answered::kReq;
    uint8_t service_timeout = 0;  // 5 bits; the answer comes within this time
    std::array<uint8_t, kPrivateBytes> private_data{};
    bool operator==(const Mra&) const = default;
};

struct Rej {
    static constexpr size_t kPrivateBytes = 148, kAriBytes = 72;

    uint32_t local_comm_id = 0, remote_comm_id = 0;
    Answered answered = Answered::kReq;
    RejReason reason = RejReason::kNone;
    uint8_t ari_bytes = 0;                 // 7 bits; valid bytes of `ari`, up to kAriBytes
    std::array<uint8_t, kAriBytes> ari{};  // additional information that the reason defines
    std::array<uint8_t, kPrivateBytes> private_data{};
    bool operator==(const Rej&) const = default;
};

struct Rep {
    static constexpr size_t kPrivateBytes = 196;

    uint32_t local_comm_id = 0, remote_comm_id = 0;
    Ece ece;
    uint32_t qkey = 0;
    uint32_t qpn = 0;           // 24 bits
    uint32_t eecn = 0;          // 24 bits
    uint32_t starting_psn = 0;  // 24 bits
    uint8_t responder_resources = 0, initiator_depth = 0;
    uint8_t target_ack_delay = 0;   // 5 bits
    uint8_t failover_accepted = 0;  // 2 bits
    bool flow_control = false;
    uint8_t rnr_retry_count = 0;  // 3 bits
    bool srq = false;
    uint64_t ca_guid = 0;
    std::array<uint8_t, kPrivateBytes> private_data{};
    bool operator==(const Rep&) const = default;
};

struct Rtu {
    static constexpr size_t kPrivateBytes = 224;

    uint32_t local_comm_id = 0, remote_comm_id = 0;
    std::array<uint8_t, kPrivateBytes> private_data{};
    bool operator==(const Rtu&) const = default;
};

struct Dreq {
    static constexpr size_t kPrivateBytes = 220;

    uint32_t local_comm_id = 0, remote_comm_id = 0;
    uint32_t remote_qpn = 0;  // 24 bits; the receiver's QP
    std::array<uint8_t, kPrivateBytes> private_data{};
    bool operator==(const Dreq&) const = default;
};

struct Drep {
    static constexpr size_t kPrivateBytes = 224;

    uint32_t local_comm_id = 0, remote_comm_id = 0;
    std::array<uint8_t, kPrivateBytes> private_data{};
    bool operator==(const Drep&) const = default;
};

struct SidrReq {
    static constexpr size_t kPrivateBytes = 216;

    uint32_t request_id = 0;
    uint16_t pkey = wire::kDefaultPkey;
    uint64_t service_id = 0;
    std::array<uint8_t, kPrivateBytes> private_data{};
    bool operator==(const SidrReq&) const = default;
};

// The statuses of IBTA table 122.
enum class SidrStatus : uint8_t {
    kValid = 0,
    kUnsupported = 1,  // the service id is not supported
    kReject = 2,
    kNoQp = 3,
    kRedirect = 4,
    kUnsupportedVersion = 5,
};

struct SidrRep {
    static constexpr size_t kPrivateBytes = 136, kInfoBytes = 72;

    uint32_t request_id = 0;
    SidrStatus status = SidrStatus::kValid;
    Ece ece;
    uint32_t qpn = 0;  // 24 bits
    uint64_t service_id = 0;
    uint32_t qkey = 0;
    uint8_t info_bytes = 0;  // valid bytes of `info`
    std::array<uint8_t, kInfoBytes> info{};
    std::array<uint8_t, kPrivateBytes> private_data{};
    bool operator==(const SidrRep&) const = default;
};

// A load of an alternate path. rove only refuses it, so this struct has only the ids.
struct Lap {
    uint32_t local_comm_id = 0, remote_comm_id = 0;
    bool operator==(const Lap&) const = default;
};
struct Apr {
    uint32_t local_comm_id = 0, remote_comm_id = 0;
    uint8_t status = 0;  // 2: automatic path migration is not supported
    bool operator==(const Apr&) const = default;
};

// The query for the capabilities of the class, and its answer.
struct ClassPortInfo {
    bool response = false;
    bool operator==(const ClassPortInfo&) const = default;
};

struct Message {
    uint64_t transaction_id = 0;  // an answer repeats the id of its request
    std::variant<Req, Mra, Rej, Rep, Rtu, Dreq, Drep, SidrReq, SidrRep, Lap, Apr, ClassPortInfo> body;
    bool operator==(const Message&) const = default;
};

enum class ParseError : uint8_t {
    kNone,
    kLength,     // not 256 bytes
    kVersion,    // version of the MAD or of the class
    kClass,      // another management class than communication management
    kMethod,     // neither SEND nor the query for ClassPortInfo
    kAttribute,  // an unknown message
};
const char* to_string(ParseError error);

// Parses a MAD into `out`, which is meaningful only if the result is kNone. It never reads outside `mad` and ignores
// reserved fields.
ParseError parse(std::span<const uint8_t> mad, Message& out);

// Builds the MAD of a message. Reserved fields are 0. If a member is wider than its field on the wire, its low bits are
// written.
Mad build(const Message& message);

// The header at the start of the private data of REQ and SIDR_REQ if the service is an IP port (annex A11.3). The
// program's own data follows it.
struct CmaHeader {
    static constexpr size_t kBytes = 36;

    uint16_t src_port = 0;   // the destination port is in the service id
    wire::Gid src{}, dst{};  // both IPv4-mapped, or both IPv6
    bool operator==(const CmaHeader&) const = default;
};
// Returns the header at the start of `data`. Returns nothing if `data` is shorter than kBytes, the version is not 0, or
// the header is neither IPv4's nor IPv6's.
std::optional<CmaHeader> parse_cma_header(std::span<const uint8_t> data);
void build_cma_header(const CmaHeader& header, std::span<uint8_t> data);

// Returns the service id of a port: the port space of rdma_cm (0x0106 TCP, 0x0111 UDP, 0x0002 IPoIB) followed by the
// port.
constexpr uint64_t service_id_of(uint16_t port_space, uint16_t port) {
    return uint64_t{port_space} << 16 | port;
}

// Returns the duration of a 5-bit exponent.
constexpr uint64_t timeout_ns(uint8_t exponent) {
    return uint64_t{4096} << exponent;
}

}  // namespace rove::cm
