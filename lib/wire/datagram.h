// SPDX-License-Identifier: Apache-2.0
// RoCEv2 packets as UDP sockets take and give them: a datagram is what follows the UDP header. The kernel writes the
// Ethernet, IP and UDP headers, all of which but the first the ICRC covers (IBTA annex A17.3.3).
//
// IPv4's identification is the one covered field that a socket can neither choose nor see. A CRC is linear: changing
// bits of a packet changes its sum by an amount that depends only on those bits and on how far they are from the end.
// So the ICRC can follow a changed identification without another pass over the packet, and the identification that
// makes an ICRC right can be computed, if one does. Of the 32 bits of check, this leaves 16: a damaged packet finds
// a matching identification by a chance of 2^-16.
// Units: bytes; fields in host order.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "wire/frame.h"

namespace rove::wire {

// The most that stands in a frame, without a VLAN tag, before its datagram.
inline constexpr size_t kMaxLowerBytes = 14 + 40 + 8;
// BTH and ICRC.
inline constexpr size_t kMinDatagramBytes = 12 + 4;

// An untagged frame's datagram, and what the kernel has to be told of it.
struct Outgoing {
    uint8_t* l3;
    std::span<const uint8_t> datagram;
    uint16_t udp_src;
    uint8_t traffic_class, hop_limit;
    bool ipv4;
    std::span<const uint8_t> dst() const { return {l3 + (ipv4 ? 16 : 24), ipv4 ? size_t{4} : size_t{16}}; }
    std::span<const uint8_t> addresses() const { return {l3 + (ipv4 ? 12 : 8), ipv4 ? size_t{8} : size_t{32}}; }
};
// Of a frame that build_frame() has made. Nothing for what is not UDP to port 4791: ARP, ND, IGMP, MLD.
std::optional<Outgoing> find_datagram(std::span<uint8_t> frame);
// Gives it another source port, and the ICRC that goes with it.
void set_source_port(Outgoing& frame, uint16_t port);

// What the kernel told of a datagram, beside the addresses that `FlowTemplate` has.
struct Incoming {
    uint16_t udp_src;
    uint8_t traffic_class, hop_limit;
};
// Writes the headers of the frame whose datagram, of so many bytes, stands `flow.size` behind `frame`. DF is set,
// IPv4's identification 0, and so is the UDP checksum: the kernel has looked at the one that was there.
void write_lower_headers(uint8_t* frame, const FlowTemplate& flow, const Incoming& packet, size_t datagram_bytes);

// Writes an identification, and the IPv4 header's checksum that goes with it.
void set_identification(uint8_t* l3, uint16_t identification);
uint16_t identification(const uint8_t* l3);

// Makes the IP and UDP headers at `l3` those of a datagram of so many bytes; there is no UDP checksum.
void set_datagram_bytes(uint8_t* l3, size_t datagram_bytes);
void set_udp_checksum(uint8_t* l3, uint16_t checksum);
// Of RFC 768 and RFC 8200 8.1, folded: whoever completes a packet's UDP checksum finds it in its place.
uint16_t sum_pseudo_header(const uint8_t* l3);

// What IPv4's identification does to the ICRC of packets of one length.
class Identification {
  public:
    // `packet_bytes`: from the IP header up to the ICRC.
    explicit Identification(size_t packet_bytes);
    // By what the ICRCs of two packets differ that differ in their identification, and in nothing else, by `bits`.
    uint32_t sum_of(uint16_t bits) const;
    // The only such bits that make ICRCs differ by `sum`, if there are any.
    std::optional<uint16_t> bits_of(uint32_t sum) const;

  private:
    std::array<uint32_t, 16> sums_;  // of each bit
    uint32_t back_;
};

// Identification by length, of the lengths that are in use: to make one takes longer than to use it.
class Identifications {
  public:
    // Gives the finished IPv4 packet at `l3` another identification, and the ICRC, `bytes` from there, that goes with
    // it.
    void change(uint8_t* l3, size_t bytes, uint16_t identification);
    // The identification with which the packet at `l3` is intact, of which the ICRC stands `bytes` from there. The one
    // that stands in it is tried first. Nothing: there is none. The 14 bytes before `l3` can be read.
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
