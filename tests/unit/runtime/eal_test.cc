// SPDX-License-Identifier: Apache-2.0
// Tests the arguments of EAL and the sizes of the pools, without starting EAL.
#include "runtime/eal.h"

#include <gtest/gtest.h>

namespace rove::datapath {
namespace {

Config with(uint32_t workers, std::vector<std::pair<std::string, uint16_t>> ports) {
    Config config;
    config.workers = workers;
    for (auto& [port, queues] : ports) {
        DeviceConfig& device = config.devices.emplace_back();
        device.port = port;
        device.queues = queues;
    }
    return config;
}

TEST(EalTest, APoolHasRoomForWhatTheRingsOfItsPortsKeep) {
    EXPECT_EQ(pool_mbufs(with(1, {{"net_af_xdp0,iface=a", 1}})), 4096u + 4095);
    EXPECT_GE(pool_mbufs(with(1, {{"net_af_xdp0,iface=a,queue_count=8", 8}})), 8u * 4096 + 4095);
    EXPECT_GE(pool_mbufs(with(1, {{"net_tap0", 4}, {"net_tap1", 4}})), 8u * 2048 + 4095);
    EXPECT_GE(pool_mbufs(with(1, {{"0000:03:00.0", 64}})), 64u * 2048 + 4095);
    // A pool counts the queues of its own worker only. Other workers have the other queues.
    EXPECT_EQ(pool_mbufs(with(8, {{"0000:03:00.0", 8}})), pool_mbufs(with(1, {{"0000:03:00.0", 1}})));
    EXPECT_EQ(pool_mbufs(with(8, {{"0000:03:00.0", 9}})), pool_mbufs(with(1, {{"0000:03:00.0", 2}})));
    EXPECT_EQ(pool_mbufs(with(8, {{"0000:03:00.0", 0}})), pool_mbufs(with(1, {{"0000:03:00.0", 1}})));
    // A memif keeps no mbufs.
    EXPECT_EQ(pool_mbufs(with(1, {{"net_memif0", 64}, {"net_memif1", 64}})), 4095u);
}

}  // namespace
}  // namespace rove::datapath
