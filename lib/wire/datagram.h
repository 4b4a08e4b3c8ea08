// SPDX-License-Identifier: Apache-2.0
// RoCEv2 packets in the form that UDP sockets send and receive: a datagram is the part of a packet after the UDP
// header. The kernel writes the Ethernet, IP and UDP headers, and the ICRC covers all of these but the first (IBTA
// annex A17.3.3).
//
// IPv4's identification is the one covered field that a socket can neither choose nor see. A CRC is linear: changed
// bits of a packet change its sum by an amount that depends only on those bits and on their distance from the end. The
// ICRC can therefore follow a changed identification without another pass over the packet. In the other direction, the
// identification that makes an ICRC correct can be computed, if one exists. This leaves 16 of the 32 check bits: a
// damaged packet finds a matching identification with a probability of 2^-16. Lengths are in bytes, and fields are in
// host order.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "wire/frame.h"

namespace rove::wire {

// The maximum length of an untagged frame's headers before its datagram.
inline constexpr size_t kMaxLowerBytes = 14 + 40 + 8;
// BTH and ICRC.
inline constexpr size_t kMinDatagramBytes = 12 + 4;

// The datagram of an untagged frame, with the values that the kernel needs to send it.
struct Outgoing {
    uint8_t* l3;
    std::span<const uint8_t> datagram;
    uint16_t udp_src;
    uint8_t traffic_class, hop_limit;
    bool ipv4;
    std::span<const uint8_t> dst() const { return {l3 + (ipv4 ? 16 : 24), ipv4 ? size_t{4} : size_t{16}}; }
    std::span<const uint8_t> addresses() const { return {l3 + (ipv4 ? 12 : 8), ipv4 ? size_t{8} : size_t{32}}; }
};
// Finds the datagram of a frame that build_frame() has made. Returns nothing if the frame is not UDP to port 4791, such
// as ARP, ND, IGMP or MLD.
std::optional<Outgoing> find_datagram(std::span<uint8_t> frame);
// Changes the source port, and the ICRC with it.
void set_source_port(Outgoing& frame, uint16_t port);

// The values that the kernel reports for a datagram, apart from the addresses, which `FlowTemplate` has.
struct Incoming {
    uint16_t udp_src;
    uint8_t traffic_class, hop_limit;
};
// Writes the headers of a frame whose datagram of `datagram_bytes` starts `flow.size` bytes after `frame`. DF is set.
// IPv4's identification is 0, and so is the UDP checksum, because the kernel has already checked the received one.
void write_lower_headers(uint8_t* frame, const FlowTemplate& flow, const Incoming& packet, size_t datagram_bytes);

// Writes the identification and updates the IPv4 header's checksum.
void set_identification(uint8_t* l3, uint16_t identification);
uint16_t identification(const uint8_t* l3);

// Sets the lengths in the IP and UDP headers at `l3` for a datagram of `datagram_bytes`. The UDP checksum is set to 0.
void set_datagram_bytes(uint8_t* l3, size_t datagram_bytes);
void set_udp_checksum(uint8_t* l3, uint16_t checksum);
// Returns the folded sum of the pseudo header (RFC 768, RFC 8200 8.1). The layer that completes a packet's UDP checksum
// expects this sum in the checksum field.
uint16_t sum_pseudo_header(const uint8_t* l3);

// The effect of IPv4's identification on the ICRC of packets of one length.
class Identification {
  public:
    // `packet_bytes` is the length from the IP header up to the ICRC.
    explicit Identification(size_t packet_bytes);
    // Returns the difference (XOR) of the ICRCs of two packets whose identifications differ by `bits` and which are
    // otherwise equal.
    uint32_t sum_of(uint16_t bits) const;
    // Returns the only difference of identifications that makes ICRCs differ by `sum`, or nothing if there is no such
    // difference.
    std::optional<uint16_t> bits_of(uint32_t sum) const;

  private:
    std::array<uint32_t, 16> sums_;  // ICRC difference for each bit
    uint32_t back_;
};

// A cache of Identification objects by packet length, because constructing one takes longer than using it.
class Identifications {
  public:
    // Changes the identification of the finished IPv4 packet at `l3`, and its ICRC, which is `bytes` after `l3`.
    void change(uint8_t* l3, size_t bytes, uint16_t identification);
    // Returns the identification with which the packet at `l3` is intact, or nothing if no identification fits. The
    // ICRC is `bytes` after `l3`. The packet's current identification is tried first. The 14 bytes before `l3` must be
    // readable.
    std::optional<uint16_t> find(const uint8_t* l3, size_t bytes);

  private:
    struct Known {
        size_t packet_bytes = 0;
        Identification identification{0};
    };
    const Identification& of(size_t packet_bytes);

    std::array<Known, 16> known_{};
};

}  // namespace rove::wire
