// SPDX-License-Identifier: Apache-2.0
// What a worker's datapath counts beside the transport: frames that reached no QP, and frames that could not leave.
// Free-running, never reset. Units: frames.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>

#include "wire/frame.h"

namespace rove::datapath {

// When a value is added, name it in to_string() too.
enum class PortCounter : uint8_t {
    kRxSegments,      // came in more pieces than one mbuf holds
    kRxVlan,          // of another VLAN than the device's
    kRxNotOurs,       // to another MAC or IP address
    kRxHandedOver,    // to the worker that owns the QP
    kRxHandOverFull,  // dropped: that worker's ring was full
    kRxNoMbuf,        // dropped while the pool was empty: a frame in a peer's memory that was to be kept
    kTxLinkDown,      // dropped: the port has no peer or no carrier
    kTxFull,          // dropped: no room for one that waits for none, as answers to ARP
    kTxTooLong,       // dropped: an mbuf does not hold it; a fault of rove's
    kTxNoMbuf,        // refusals of work while the pool was empty; nothing is lost by it
    kLoopbackNoMbuf,  // dropped while the pool was empty: a datagram's copy to our own members of its group
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
    std::array<uint64_t, kParseErrors> parse{};  // by wire::ParseError
    uint64_t& operator[](PortCounter counter) { return values[static_cast<size_t>(counter)]; }
};

// Of a port's whole life. Frames and bytes.
struct PortStatistics {
    uint64_t rx_frames = 0, rx_bytes = 0, rx_missed = 0, rx_errors = 0, rx_no_mbuf = 0;
    uint64_t tx_frames = 0, tx_bytes = 0, tx_errors = 0;
    uint64_t tx_over_mtu = 0;  // dropped: longer than the kernel's interface carries
};

}  // namespace rove::datapath
