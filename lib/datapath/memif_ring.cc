// SPDX-License-Identifier: Apache-2.0
// How a memif's rings are found, and what is seldom done with them.
#include "datapath/memif_ring.h"

#include <rte_version.h>

#include <array>
#include <string_view>

// Of ethdev's interface for drivers, which Debian has no headers for.
extern "C" struct rte_eth_dev* rte_eth_dev_allocated(const char* name);

namespace rove::datapath {

namespace {

constexpr uint32_t kCookie = 0x3e31f20;  // of the protocol: begins every ring
constexpr uint8_t kMostLog2Slots = 14;

// As much of 22.11's rte_eth_dev as leads to what the driver keeps for this process.
struct EthDevice {
    std::array<void*, 6> functions;
    void* data;
    void* process_private;
};

}  // namespace

MemifRing::MemifRing(uint16_t port, uint16_t queue, Use use) : port_(port), queue_(queue), use_(use) {
    rte_eth_dev_info info{};
    std::array<char, RTE_ETH_NAME_MAX_LEN> name;
    if (!std::string_view(rte_version()).starts_with("DPDK 22.11.") || rte_eth_dev_info_get(port, &info) != 0 ||
        std::string_view(info.driver_name) != "net_memif" || rte_eth_dev_get_name_by_port(port, name.data()) != 0)
        return;
    const auto* const device = reinterpret_cast<const EthDevice*>(rte_eth_dev_allocated(name.data()));
    if (device != nullptr) regions_ = static_cast<Region* const*>(device->process_private);
}

void MemifRing::hand_over(uint16_t count) {
    for (; count != 0; --count) {
        const auto back = static_cast<uint16_t>(-count);
        const uint8_t* const frame = buffer(back);
        rte_cldemote(frame);
        rte_cldemote(frame + RTE_CACHE_LINE_SIZE);
        rte_cldemote(descriptors() + slot(back));
    }
}

bool MemifRing::meet(Ring* ring) {
    if (driver_->port != port_ || driver_->region != 0 || driver_->log2_slots > kMostLog2Slots ||
        ring->cookie != kCookie) {
        regions_ = nullptr;
        return false;
    }
    ring_ = ring;
    learn();
    return true;
}

}  // namespace rove::datapath
