// SPDX-License-Identifier: Apache-2.0
// The counters of a worker's datapath outside the transport: frames that reached no QP, and frames that could not be
// sent. They are never reset. Units: frames.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>

#include "wire/frame.h"

namespace rove::datapath {

// A counter. A new value also needs a name in to_string().
enum class PortCounter : uint8_t {
    kRxSegments,      // received in more pieces than one mbuf
    kRxVlan,          // on another VLAN than the device's
    kRxNotOurs,       // for another MAC or IP address
    kRxHandedOver,    // passed to the worker that owns the QP
    kRxHandOverFull,  // dropped: the ring of the owning worker was full
    kRxNoMbuf,        // dropped while the pool was empty: a frame in a peer's memory that had to be kept
    kTxLinkDown,      // dropped: the port has no peer or no carrier
    kTxFull,          // dropped: no room for a frame that does not wait for room, such as an ARP reply
    kTxTooLong,       // dropped: an mbuf does not hold it, which is a bug in rove
    kTxNoMbuf,        // refusals of work while the pool was empty; nothing is lost
    kLoopbackNoMbuf,  // dropped while the pool was empty: a datagram's copy for our own members of its group
    kCount,
};

constexpr const char* to_string(PortCounter counter) {
    switch (counter) {
        case PortCounter::kRxSegments:
            return "rx_drop_segments";
        case PortCounter::kRxVlan:
            return "rx_drop_vlan";
        case PortCounter::kRxNotOurs:
            return "rx_drop_not_ours";
        case PortCounter::kRxHandedOver:
            return "rx_handed_over";
        case PortCounter::kRxHandOverFull:
            return "rx_drop_hand_over_full";
        case PortCounter::kRxNoMbuf:
            return "rx_drop_no_mbuf";
        case PortCounter::kTxLinkDown:
            return "tx_drop_link_down";
        case PortCounter::kTxFull:
            return "tx_drop_full";
        case PortCounter::kTxTooLong:
            return "tx_drop_too_long";
        case PortCounter::kTxNoMbuf:
            return "tx_no_mbuf";
        case PortCounter::kLoopbackNoMbuf:
            return "loopback_drop_no_mbuf";
        case PortCounter::kCount:
            break;
    }
    return "unknown";
}

inline constexpr size_t kParseErrors = static_cast<size_t>(wire::ParseError::kIcrc) + 1;

struct PortCounters {
    std::array<uint64_t, static_cast<size_t>(PortCounter::kCount)> values{};
    std::array<uint64_t, kParseErrors> parse{};  // indexed by wire::ParseError
    uint64_t& operator[](PortCounter counter) { return values[static_cast<size_t>(counter)]; }
};

// The counters of a port over its whole life. Units: frames, bytes.
struct PortStatistics {
    uint64_t rx_frames = 0, rx_bytes = 0, rx_missed = 0, rx_errors = 0, rx_no_mbuf = 0;
    uint64_t tx_frames = 0, tx_bytes = 0, tx_errors = 0;
    uint64_t tx_over_mtu = 0;  // dropped: longer than the MTU of the kernel's interface
};

}  // namespace rove::datapath
