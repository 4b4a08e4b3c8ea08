// SPDX-License-Identifier: Apache-2.0
// The layout of each message is in one function, layout(), which both Reader and Writer execute. Parsing and building
// therefore cannot disagree. Offsets are from IBTA's tables and count from the end of the MAD header.
#include "cm/messages.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "wire/byte_order.h"

namespace rove::cm {

namespace {

using namespace wire;

// The common MAD header, IBTA 13.4.2.
namespace header {
constexpr size_t kBaseVersion = 0, kClass = 1, kClassVersion = 2, kMethod = 3, kTransactionId = 8, kAttribute = 16,
                 kModifier = 20, kBytes = 24;
}
constexpr uint8_t kBaseVersion = 1, kClassCommunication = 0x07, kClassVersion = 2;
constexpr uint8_t kMethodGet = 0x01, kMethodSend = 0x03, kMethodGetResponse = 0x81;

class Reader {
  public:
    explicit Reader(const uint8_t* mad) : mad_(mad), at_(mad + header::kBytes) {}
    // `low` is the lowest of the `width` bits in the byte.
    template <class T>
    void bits(size_t offset, int low, int width, T& value) const {
        value = static_cast<T>(at_[offset] >> low & ((1 << width) - 1));
    }
    template <class T>
    void u8(size_t offset, T& value) const {
        value = static_cast<T>(at_[offset]);
    }
    template <class T>
    void u16(size_t offset, T& value) const {
        value = static_cast<T>(load_be16(at_ + offset));
    }
    void u20(size_t offset, uint32_t& value) const { value = load_be32(at_ + offset) >> 12; }
    void u24(size_t offset, uint32_t& value) const { value = load_be32(at_ + offset) >> 8; }
    void u32(size_t offset, uint32_t& value) const { value = load_be32(at_ + offset); }
    void u64(size_t offset, uint64_t& value) const { value = load_be64(at_ + offset); }
    template <size_t N>
    void bytes(size_t offset, std::array<uint8_t, N>& value) const {
        std::memcpy(value.data(), at_ + offset, N);
    }
    void modifier(uint32_t& value) const { value = load_be32(mad_ + header::kModifier); }
    // Reads a value whose bytes are at separate offsets, the highest byte first.
    void vendor(std::array<size_t, 3> offsets, uint32_t& value) const {
        value = 0;
        for (const size_t offset : offsets) value = value << 8 | at_[offset];
    }
    void constant(size_t, uint8_t) const {}

  private:
    const uint8_t *mad_, *at_;
};

// Writes into zeroed memory. If fields share a word, the field with the lower offset must be written first.
class Writer {
  public:
    explicit Writer(uint8_t* mad) : mad_(mad), at_(mad + header::kBytes) {}
    template <class T>
    void bits(size_t offset, int low, int width, const T& value) const {
        at_[offset] |= static_cast<uint8_t>((static_cast<unsigned>(value) & ((1u << width) - 1)) << low);
    }
    template <class T>
    void u8(size_t offset, const T& value) const {
        at_[offset] = static_cast<uint8_t>(value);
    }
    template <class T>
    void u16(size_t offset, const T& value) const {
        store_be16(at_ + offset, static_cast<uint16_t>(value));
    }
    void u20(size_t offset, uint32_t value) const { store_be32(at_ + offset, value << 12); }
    void u24(size_t offset, uint32_t value) const {
        store_be16(at_ + offset, static_cast<uint16_t>(value >> 8));
        at_[offset + 2] = static_cast<uint8_t>(value);
    }
    void u32(size_t offset, uint32_t value) const { store_be32(at_ + offset, value); }
    void u64(size_t offset, uint64_t value) const { store_be64(at_ + offset, value); }
    template <size_t N>
    void bytes(size_t offset, const std::array<uint8_t, N>& value) const {
        std::memcpy(at_ + offset, value.data(), N);
    }
    void modifier(uint32_t value) const { store_be32(mad_ + header::kModifier, value); }
    void vendor(std::array<size_t, 3> offsets, uint32_t value) const {
        for (size_t i = 0; i < 3; ++i) at_[offsets[i]] = static_cast<uint8_t>(value >> (16 - 8 * i));
    }
    void constant(size_t offset, uint8_t value) const { at_[offset] = value; }

  private:
    uint8_t *mad_, *at_;
};

// Matches a message type. `M` is const for a Writer.
template <class M, class T>
concept Is = std::is_same_v<std::remove_const_t<M>, T>;

template <class Codec, Is<ReqPath> M>
void layout(const Codec& c, size_t base, M& m) {
    c.u16(base, m.local_lid);
    c.u16(base + 2, m.remote_lid);
    c.bytes(base + 4, m.local_gid);
    c.bytes(base + 20, m.remote_gid);
    c.u20(base + 36, m.flow_label);
    c.bits(base + 39, 0, 6, m.packet_rate);
    c.u8(base + 40, m.traffic_class);
    c.u8(base + 41, m.hop_limit);
    c.bits(base + 42, 4, 4, m.sl);
    c.bits(base + 42, 3, 1, m.subnet_local);
    c.bits(base + 43, 3, 5, m.local_ack_timeout);
}

// Table 106.
template <class Codec, Is<Req> M>
void layout(const Codec& c, M& m) {
    c.modifier(m.ece.options);
    c.u32(0, m.local_comm_id);
    c.vendor({5, 6, 7}, m.ece.vendor_id);
    c.u64(8, m.service_id);
    c.u64(16, m.ca_guid);
    c.u32(28, m.qkey);
    c.u24(32, m.qpn);
    c.u8(35, m.responder_resources);
    c.u24(36, m.local_eecn);
    c.u8(39, m.initiator_depth);
    c.u24(40, m.remote_eecn);
    c.bits(43, 3, 5, m.remote_response_timeout);
    c.bits(43, 1, 2, m.service);
    c.bits(43, 0, 1, m.flow_control);
    c.u24(44, m.starting_psn);
    c.bits(47, 3, 5, m.local_response_timeout);
    c.bits(47, 0, 3, m.retry_count);
    c.u16(48, m.pkey);
    c.bits(50, 4, 4, m.path_mtu);
    c.bits(50, 3, 1, m.rdc_exists);
    c.bits(50, 0, 3, m.rnr_retry_count);
    c.bits(51, 4, 4, m.max_cm_retries);
    c.bits(51, 3, 1, m.srq);
    c.bits(51, 0, 3, m.extended_service);
    layout(c, 52, m.primary);
    layout(c, 96, m.alternate);
    c.bits(139, 2, 1, m.sap_supported);
    c.bytes(140, m.private_data);
}

// Table 107.
template <class Codec, Is<Mra> M>
void layout(const Codec& c, M& m) {
    c.u32(0, m.local_comm_id);
    c.u32(4, m.remote_comm_id);
    c.bits(8, 6, 2, m.answered);
    c.bits(9, 3, 5, m.service_timeout);
    c.bytes(10, m.private_data);
}

// Table 108.
template <class Codec, Is<Rej> M>
void layout(const Codec& c, M& m) {
    c.u32(0, m.local_comm_id);
    c.u32(4, m.remote_comm_id);
    c.bits(8, 6, 2, m.answered);
    c.bits(9, 1, 7, m.ari_bytes);
    c.u16(10, m.reason);
    c.bytes(12, m.ari);
    c.bytes(84, m.private_data);
}

// Table 110.
template <class Codec, Is<Rep> M>
void layout(const Codec& c, M& m) {
    c.modifier(m.ece.options);
    c.u32(0, m.local_comm_id);
    c.u32(4, m.remote_comm_id);
    c.u32(8, m.qkey);
    c.u24(12, m.qpn);
    c.u24(16, m.eecn);
    c.u24(20, m.starting_psn);
    c.vendor({15, 19, 23}, m.ece.vendor_id);
    c.u8(24, m.responder_resources);
    c.u8(25, m.initiator_depth);
    c.bits(26, 3, 5, m.target_ack_delay);
    c.bits(26, 1, 2, m.failover_accepted);
    c.bits(26, 0, 1, m.flow_control);
    c.bits(27, 5, 3, m.rnr_retry_count);
    c.bits(27, 4, 1, m.srq);
    c.u64(28, m.ca_guid);
    c.bytes(36, m.private_data);
}

// Tables 111 and 113.
template <class Codec, class M>
requires Is<M, Rtu> || Is<M, Drep>
void layout(const Codec& c, M& m) {
    c.u32(0, m.local_comm_id);
    c.u32(4, m.remote_comm_id);
    c.bytes(8, m.private_data);
}

// Table 112.
template <class Codec, Is<Dreq> M>
void layout(const Codec& c, M& m) {
    c.u32(0, m.local_comm_id);
    c.u32(4, m.remote_comm_id);
    c.u24(8, m.remote_qpn);
    c.bytes(12, m.private_data);
}

// Table 119.
template <class Codec, Is<SidrReq> M>
void layout(const Codec& c, M& m) {
    c.u32(0, m.request_id);
    c.u16(4, m.pkey);
    c.u64(8, m.service_id);
    c.bytes(16, m.private_data);
}

// Table 120.
template <class Codec, Is<SidrRep> M>
void layout(const Codec& c, M& m) {
    c.modifier(m.ece.options);
    c.u32(0, m.request_id);
    c.u8(4, m.status);
    c.u8(5, m.info_bytes);
    c.u24(8, m.qpn);
    c.vendor({6, 7, 11}, m.ece.vendor_id);
    c.u64(12, m.service_id);
    c.u32(20, m.qkey);
    c.bytes(24, m.info);
    c.bytes(96, m.private_data);
}

// Table 115.
template <class Codec, Is<Lap> M>
void layout(const Codec& c, M& m) {
    c.u32(0, m.local_comm_id);
    c.u32(4, m.remote_comm_id);
}

// Table 116.
template <class Codec, Is<Apr> M>
void layout(const Codec& c, M& m) {
    c.u32(0, m.local_comm_id);
    c.u32(4, m.remote_comm_id);
    c.u8(9, m.status);
}

// IBTA 13.4.8.1: the versions, no capabilities, and the response time that REQs promise.
template <class Codec, Is<ClassPortInfo> M>
void layout(const Codec& c, M& m) {
    if (!m.response) return;
    c.constant(0, kBaseVersion);
    c.constant(1, kClassVersion);
    c.constant(7, 20);
}

template <class M>
constexpr Attribute kAttributeOf = Attribute::kClassPortInfo;
template <>
constexpr Attribute kAttributeOf<Req> = Attribute::kReq;
template <>
constexpr Attribute kAttributeOf<Mra> = Attribute::kMra;
template <>
constexpr Attribute kAttributeOf<Rej> = Attribute::kRej;
template <>
constexpr Attribute kAttributeOf<Rep> = Attribute::kRep;
template <>
constexpr Attribute kAttributeOf<Rtu> = Attribute::kRtu;
template <>
constexpr Attribute kAttributeOf<Dreq> = Attribute::kDreq;
template <>
constexpr Attribute kAttributeOf<Drep> = Attribute::kDrep;
template <>
constexpr Attribute kAttributeOf<SidrReq> = Attribute::kSidrReq;
template <>
constexpr Attribute kAttributeOf<SidrRep> = Attribute::kSidrRep;
template <>
constexpr Attribute kAttributeOf<Lap> = Attribute::kLap;
template <>
constexpr Attribute kAttributeOf<Apr> = Attribute::kApr;

template <class M>
ParseError read(const uint8_t* mad, Message& out) {
    layout(Reader(mad), out.body.emplace<M>());
    return ParseError::kNone;
}

}  // namespace

const char* to_string(ParseError error) {
    switch (error) {
        case ParseError::kNone:
            return "none";
        case ParseError::kLength:
            return "length";
        case ParseError::kVersion:
            return "version";
        case ParseError::kClass:
            return "class";
        case ParseError::kMethod:
            return "method";
        case ParseError::kAttribute:
            return "attribute";
    }
    return "unknown";
}

ParseError parse(std::span<const uint8_t> mad, Message& out) {
    if (mad.size() != kMadBytes) return ParseError::kLength;
    const uint8_t* const at = mad.data();
    if (at[header::kBaseVersion] != kBaseVersion) return ParseError::kVersion;
    if (at[header::kClass] != kClassCommunication) return ParseError::kClass;
    if (at[header::kClassVersion] != kClassVersion) return ParseError::kVersion;
    out.transaction_id = load_be64(at + header::kTransactionId);
    const Attribute attribute{load_be16(at + header::kAttribute)};
    const uint8_t method = at[header::kMethod];
    if (method == kMethodGet || method == kMethodGetResponse) {
        if (attribute != Attribute::kClassPortInfo) return ParseError::kAttribute;
        out.body = ClassPortInfo{.response = method == kMethodGetResponse};
        return ParseError::kNone;
    }
    if (method != kMethodSend) return ParseError::kMethod;
    switch (attribute) {
        case Attribute::kReq:
            return read<Req>(at, out);
        case Attribute::kMra:
            return read<Mra>(at, out);
        case Attribute::kRej:
            read<Rej>(at, out);
            // The field has seven bits, which can exceed the length of `ari`.
            std::get<Rej>(out.body).ari_bytes = std::min<uint8_t>(std::get<Rej>(out.body).ari_bytes, Rej::kAriBytes);
            return ParseError::kNone;
        case Attribute::kRep:
            return read<Rep>(at, out);
        case Attribute::kRtu:
            return read<Rtu>(at, out);
        case Attribute::kDreq:
            return read<Dreq>(at, out);
        case Attribute::kDrep:
            return read<Drep>(at, out);
        case Attribute::kSidrReq:
            return read<SidrReq>(at, out);
        case Attribute::kSidrRep:
            read<SidrRep>(at, out);
            std::get<SidrRep>(out.body).info_bytes =
                std::min<uint8_t>(std::get<SidrRep>(out.body).info_bytes, SidrRep::kInfoBytes);
            return ParseError::kNone;
        case Attribute::kLap:
            return read<Lap>(at, out);
        case Attribute::kApr:
            return read<Apr>(at, out);
        case Attribute::kClassPortInfo:
            break;
    }
    return ParseError::kAttribute;
}

Mad build(const Message& message) {
    Mad mad{};
    mad[header::kBaseVersion] = kBaseVersion;
    mad[header::kClass] = kClassCommunication;
    mad[header::kClassVersion] = kClassVersion;
    mad[header::kMethod] = kMethodSend;
    store_be64(&mad[header::kTransactionId], message.transaction_id);
    std::visit(
        [&mad]<class M>(const M& body) {
            store_be16(&mad[header::kAttribute], static_cast<uint16_t>(kAttributeOf<M>));
            if constexpr (std::is_same_v<M, ClassPortInfo>)
                mad[header::kMethod] = body.response ? kMethodGetResponse : kMethodGet;
            layout(Writer(mad.data()), body);
        },
        message.body);
    return mad;
}

// Annex A11: version, IP version, port, source, destination.
namespace cma {
constexpr size_t kVersion = 0, kIpVersion = 1, kPort = 2, kSource = 4, kDestination = 20, kIpv4Offset = 12;
}

std::optional<CmaHeader> parse_cma_header(std::span<const uint8_t> data) {
    if (data.size() < CmaHeader::kBytes || data[cma::kVersion] != 0) return {};
    const uint8_t version = data[cma::kIpVersion] >> 4;
    if (version != 4 && version != 6) return {};
    const auto address = [&](size_t offset) {
        Gid gid{};
        std::memcpy(gid.data(), &data[offset], gid.size());
        if (version == 4) {
            std::fill_n(gid.begin(), 10, uint8_t{0});
            std::fill_n(gid.begin() + 10, 2, uint8_t{0xFF});
        }
        return gid;
    };
    return CmaHeader{
        .src_port = load_be16(&data[cma::kPort]), .src = address(cma::kSource), .dst = address(cma::kDestination)};
}

void build_cma_header(const CmaHeader& header, std::span<uint8_t> data) {
    const bool ipv4 = is_ipv4_mapped(header.src);
    std::fill_n(data.begin(), CmaHeader::kBytes, uint8_t{0});
    data[cma::kIpVersion] = ipv4 ? 0x40 : 0x60;
    store_be16(&data[cma::kPort], header.src_port);
    const size_t skip = ipv4 ? cma::kIpv4Offset : 0;
    std::memcpy(&data[cma::kSource + skip], header.src.data() + skip, header.src.size() - skip);
    std::memcpy(&data[cma::kDestination + skip], header.dst.data() + skip, header.dst.size() - skip);
}

}  // namespace rove::cm
