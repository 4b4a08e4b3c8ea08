// SPDX-License-Identifier: Apache-2.0
// The invariant CRC of RoCEv2 (IBTA annex A17.3.3). Internal to lib/wire.
#pragma once

#include <cstddef>
#include <cstdint>

namespace rove::wire {

// The ICRC of a packet whose IP header (IPv4 without options, or IPv6) is at `l3`, over `bytes` bytes from there: IP, UDP
// and BTH at least, and what follows up to the ICRC. It stands on the wire in little-endian order.
// The result can be continued with crc32() and crc32_copy().
uint32_t icrc(const uint8_t* l3, size_t bytes);

}  // namespace rove::wire
