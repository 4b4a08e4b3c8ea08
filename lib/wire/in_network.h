// SPDX-License-Identifier: Apache-2.0
// The fields of a RoCEv2 frame that a network between the two ends reads or writes.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "wire/frame.h"
#include "wire/network_headers.h"

namespace rove::wire {

struct Transit {
    size_t l3;         // offset of the IP header in the frame
    uint16_t udp_src;  // the field by which switches spread flows
};

// Returns nothing if the frame is not RoCEv2 or its IP or UDP header is invalid. The ICRC is not checked.
std::optional<Transit> find_transit(std::span<const uint8_t> frame);

// Returns the ECN field of the IPv4 or IPv6 header at `l3`.
inline uint8_t ecn(const uint8_t* l3) {
    return (l3[0] >> 4 == 4 ? l3[ipv4::kTos] : l3[1] >> 4) & kEcnCe;
}

// Sets the ECN field to Congestion Experienced, which the ICRC does not cover (IBTA A17.3.3). IPv4's checksum is
// updated incrementally (RFC 1624, equation 3), so that it still detects earlier damage.
inline void mark_ce(uint8_t* l3) {
    if (l3[0] >> 4 == 6) {
        l3[1] |= kEcnCe << 4;
        return;
    }
    const auto before = load<uint16_t>(l3);
    l3[ipv4::kTos] |= kEcnCe;
    const auto complement = [](uint16_t word) { return static_cast<uint16_t>(~word); };
    const uint64_t sum =
        uint64_t{complement(load<uint16_t>(l3 + ipv4::kChecksum))} + complement(before) + load<uint16_t>(l3);
    store(l3 + ipv4::kChecksum, complement(fold_checksum(sum)));
}

}  // namespace rove::wire
