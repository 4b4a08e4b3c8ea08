// SPDX-License-Identifier: Apache-2.0
// See datagram.h.
#include "wire/datagram.h"

#include <bit>
#include <cstring>

#include "wire/crc32_constants.h"
#include "wire/icrc.h"
#include "wire/network_headers.h"

namespace rove::wire {

namespace {

// Polynomials modulo the CRC's, as in the CRC's register: x^0 in bit 31, x^31 in bit 0.
constexpr uint32_t kOne = uint32_t{1} << 31, kX = uint32_t{1} << 30;
constexpr auto kFeedback = static_cast<uint32_t>(crc32_constants::kReflectedG >> 1);  // x^32
// 1/x: the CRC's polynomial without x^0, divided by x.
constexpr auto kInverseX = static_cast<uint32_t>(crc32_constants::kReflectedG);

constexpr uint32_t multiply(uint32_t a, uint32_t b) {
    uint32_t product = 0;
    for (int i = 31; i >= 0; --i) {
        product ^= b & -(a >> i & 1);
        b = b >> 1 ^ (kFeedback & -(b & 1));
    }
    return product;
}
static_assert(multiply(kX, kInverseX) == kOne);

constexpr uint32_t power(uint32_t base, size_t exponent) {
    uint32_t result = kOne;
    for (; exponent != 0; exponent >>= 1, base = multiply(base, base))
        if ((exponent & 1) != 0) result = multiply(result, base);
    return result;
}

// Returns the power of x by which the CRC multiplies the field's last bit: the number of bits after the field, and 32
// for the CRC.
constexpr size_t bits_behind(size_t packet_bytes) {
    return 8 * (packet_bytes - ipv4::kId - sizeof(uint16_t)) + 32;
}

// Returns the field's bits in the CRC's order, the lowest bit of each byte first, which is the highest power. The field
// occupies x^15 to x^0 in the upper half of the register.
constexpr uint32_t polynomial_of(uint16_t bits) {
    return uint32_t{big_endian(bits)} << 16;
}

bool is_ipv4(const uint8_t* l3) {
    return l3[ipv4::kVersionIhl] == ipv4::kVersion4Ihl5;
}

uint8_t* l4_of(uint8_t* l3) {
    return l3 + (is_ipv4(l3) ? kIpv4Bytes : kIpv6Bytes);
}

}  // namespace

Identification::Identification(size_t packet_bytes)
    : back_(packet_bytes < kIpv4Bytes ? 0 : power(kInverseX, bits_behind(packet_bytes))) {
    const uint32_t to_end = packet_bytes < kIpv4Bytes ? 0 : power(kX, bits_behind(packet_bytes));
    for (size_t bit = 0; bit < sums_.size(); ++bit)
        sums_[bit] = multiply(polynomial_of(static_cast<uint16_t>(1u << bit)), to_end);
}

uint32_t Identification::sum_of(uint16_t bits) const {
    uint32_t sum = 0;
    for (; bits != 0; bits &= static_cast<uint16_t>(bits - 1))
        sum ^= sums_[static_cast<size_t>(std::countr_zero(bits))];
    return sum;
}

std::optional<uint16_t> Identification::bits_of(uint32_t sum) const {
    const uint32_t polynomial = multiply(sum, back_);
    if ((polynomial & 0xFFFF) != 0) return std::nullopt;
    return big_endian(static_cast<uint16_t>(polynomial >> 16));
}

const Identification& Identifications::of(size_t packet_bytes) {
    Known& known = known_[packet_bytes / 4 % known_.size()];
    if (known.packet_bytes != packet_bytes) known = {packet_bytes, Identification(packet_bytes)};
    return known.identification;
}

void Identifications::change(uint8_t* l3, size_t bytes, uint16_t identification) {
    const auto bits = static_cast<uint16_t>(load_be16(l3 + ipv4::kId) ^ identification);
    if (bits == 0) return;
    store(l3 + bytes, load<uint32_t>(l3 + bytes) ^ of(bytes).sum_of(bits));
    set_identification(l3, identification);
}

std::optional<uint16_t> Identifications::find(const uint8_t* l3, size_t bytes) {
    const uint16_t assumed = load_be16(l3 + ipv4::kId);
    const uint32_t wrong = icrc(l3, bytes) ^ load<uint32_t>(l3 + bytes);
    if (wrong == 0) return assumed;
    const auto bits = of(bytes).bits_of(wrong);
    if (!bits) return std::nullopt;
    return static_cast<uint16_t>(assumed ^ *bits);
}

std::optional<Outgoing> find_datagram(std::span<uint8_t> frame) {
    if (frame.size() < kEthernetBytes + kIpv4Bytes + kUdpBytes + kMinDatagramBytes) return std::nullopt;
    uint8_t* const l3 = frame.data() + kEthernetBytes;
    const uint16_t type = load_be16(frame.data() + ethernet::kType);
    const bool v4 = type == kEtherTypeIpv4;
    const size_t l3_bytes = v4 ? kIpv4Bytes : kIpv6Bytes;
    if (!v4 && type != kEtherTypeIpv6) return std::nullopt;
    if ((v4 ? l3[ipv4::kProtocol] : l3[ipv6::kNextHeader]) != kProtocolUdp) return std::nullopt;
    if (frame.size() < kEthernetBytes + l3_bytes + kUdpBytes + kMinDatagramBytes) return std::nullopt;
    const uint8_t* const l4 = l3 + l3_bytes;
    if (load_be16(l4 + udp::kDstPort) != kRoceUdpPort) return std::nullopt;
    const uint8_t* const datagram = l4 + kUdpBytes;
    const auto bytes = static_cast<size_t>(frame.data() + frame.size() - datagram);
    return Outgoing{.l3 = l3,
                    .datagram = {datagram, bytes},
                    .udp_src = load_be16(l4 + udp::kSrcPort),
                    .traffic_class = v4 ? l3[ipv4::kTos] : static_cast<uint8_t>(load_be16(l3) >> 4),
                    .hop_limit = v4 ? l3[ipv4::kTtl] : l3[ipv6::kHopLimit],
                    .ipv4 = v4};
}

void set_source_port(Outgoing& frame, uint16_t port) {
    const auto to_datagram = static_cast<uint32_t>(frame.datagram.data() - frame.l3);
    store_be16(frame.l3 + to_datagram - kUdpBytes + udp::kSrcPort, port);
    frame.udp_src = port;
    const PendingIcrc packet[] = {{frame.l3, to_datagram + static_cast<uint32_t>(frame.datagram.size() - kIcrcBytes)}};
    seal(packet);
}

void set_identification(uint8_t* l3, uint16_t identification) {
    store_be16(l3 + ipv4::kId, identification);
    store<uint16_t>(l3 + ipv4::kChecksum, 0);
    store(l3 + ipv4::kChecksum, static_cast<uint16_t>(~fold_checksum(sum_ipv4_header(l3))));
}

uint16_t identification(const uint8_t* l3) {
    return load_be16(l3 + ipv4::kId);
}

void set_datagram_bytes(uint8_t* l3, size_t datagram_bytes) {
    const auto udp_bytes = static_cast<uint16_t>(kUdpBytes + datagram_bytes);
    store_be16(l4_of(l3) + udp::kLength, udp_bytes);
    set_udp_checksum(l3, 0);
    if (is_ipv4(l3)) {
        store_be16(l3 + ipv4::kLength, static_cast<uint16_t>(kIpv4Bytes + udp_bytes));
        set_identification(l3, identification(l3));
    } else {
        store_be16(l3 + ipv6::kLength, udp_bytes);
    }
}

void set_udp_checksum(uint8_t* l3, uint16_t checksum) {
    store(l4_of(l3) + udp::kChecksum, checksum);
}

uint16_t sum_pseudo_header(const uint8_t* l3) {
    const uint8_t* const l4 = l3 + (is_ipv4(l3) ? kIpv4Bytes : kIpv6Bytes);
    uint64_t sum = uint64_t{load<uint16_t>(l4 + udp::kLength)} + big_endian(uint16_t{kProtocolUdp});
    for (const uint8_t* at = l3 + (is_ipv4(l3) ? ipv4::kSrc : ipv6::kSrc); at != l4; at += 4) sum += load<uint32_t>(at);
    return fold_checksum(sum);
}

void write_lower_headers(uint8_t* frame, const FlowTemplate& flow, const Incoming& packet, size_t datagram_bytes) {
    std::memcpy(frame, flow.bytes.data(), flow.size);
    uint8_t* const l3 = frame + flow.l3_offset;
    uint8_t* const l4 = frame + flow.size - kUdpBytes;
    const auto udp_bytes = static_cast<uint16_t>(kUdpBytes + datagram_bytes);
    store_be16(l4 + udp::kSrcPort, packet.udp_src);
    store_be16(l4 + udp::kLength, udp_bytes);
    if (l3[0] == ipv4::kVersion4Ihl5) {
        l3[ipv4::kTos] = packet.traffic_class;
        store_be16(l3 + ipv4::kLength, static_cast<uint16_t>(kIpv4Bytes + udp_bytes));
        l3[ipv4::kTtl] = packet.hop_limit;
        set_identification(l3, 0);
    } else {
        store_be16(l3, static_cast<uint16_t>(6u << 12 | uint32_t{packet.traffic_class} << 4 | (l3[1] & 0xF)));
        store_be16(l3 + ipv6::kLength, udp_bytes);
        l3[ipv6::kHopLimit] = packet.hop_limit;
    }
}

}  // namespace rove::wire
