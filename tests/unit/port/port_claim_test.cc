// SPDX-License-Identifier: Apache-2.0
// Tests that a port belongs to one process.
#include "port/factory/port_claim.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <optional>
#include <string>

namespace rove::datapath {
namespace {

DeviceConfig of(const std::string& port) {
    DeviceConfig config;
    config.port = port;
    return config;
}

TEST(PortClaim, TheSamePortIsKnownWhateverElseIsSaidOfIt) {
    const auto same = [](const char* a, const char* b) {
        return PortClaim::identity(of(a)) == PortClaim::identity(of(b));
    };
    EXPECT_TRUE(same("net_memif0,role=server,socket=a,rsize=8", "net_memif3,socket=a,role=master,id=0"));
    EXPECT_FALSE(same("net_memif0,role=server,socket=a", "net_memif0,role=client,socket=a")) << "the two ends";
    EXPECT_FALSE(same("net_memif0,role=server,socket=a", "net_memif0,role=server,socket=a,id=1"));
    EXPECT_FALSE(same("net_memif0,role=server,socket=a", "net_memif0,role=server,socket=ab"));
    EXPECT_TRUE(same("03:00.0", "0000:03:00.0,rx=1"));
    EXPECT_FALSE(same("03:00.0", "03:00.1"));
    EXPECT_FALSE(same("net_vhost0,iface=/tmp/x", "net_virtio_user0,path=/tmp/x")) << "the two ends";
    EXPECT_TRUE(same("net_af_xdp0,iface=eth0", "net_af_xdp1,iface=eth0,queue_count=2"));
    EXPECT_FALSE(same("interface:eth0", "interface:eth1"));
    EXPECT_TRUE(same("udp:fd00:0::1", "udp:fd00::1"));
    EXPECT_FALSE(same("udp:10.0.0.1", "udp:10.0.0.2"));
}

TEST(PortClaim, OfAnInterfaceThatAllSeeAnAddressIsTaken) {
    const auto packets = [](const char* port, const char* address, std::optional<uint16_t> vlan = std::nullopt) {
        DeviceConfig config = of(port);
        config.addresses = {address};
        config.vlan = vlan;
        return PortClaim::identity(config);
    };
    const std::string one = packets("net_af_packet0,iface=eth0", "10.0.0.1/24");
    EXPECT_EQ(packets("net_af_packet7,iface=eth0,qpairs=2", "10.0.0.1/24"), one);
    EXPECT_NE(packets("net_af_packet0,iface=eth1", "10.0.0.1/24"), one);
    EXPECT_NE(packets("net_af_packet0,iface=eth0", "10.0.0.2/24"), one);
    EXPECT_NE(packets("net_af_packet0,iface=eth0", "10.0.0.1/24", 7), one);
    EXPECT_EQ(PortClaim::identity(of("net_af_packet0,iface=eth0")), "") << "a bridge";
}

TEST(PortClaim, WhatAnyNumberMayOpenIsNobodys) {
    EXPECT_EQ(PortClaim::identity(of("mesh")), "");
    std::string error;
    const auto first = PortClaim::take(of("net_null0"), &error), second = PortClaim::take(of("net_null0"), &error);
    EXPECT_TRUE(first && second) << error;
}

TEST(PortClaim, AnotherProcessIsToldWhoHasItUntilThatEnds) {
    const DeviceConfig config = of("net_memif0,socket=port_claim_test-" + std::to_string(getpid()));
    int ready[2];
    // Without O_CLOEXEC, the child would treat the pipe as DPDK's and close it (dpdk_files.h).
    ASSERT_EQ(pipe2(ready, O_CLOEXEC), 0);
    const pid_t owner = fork();
    if (owner == 0) {
        std::string error;
        const auto claim = PortClaim::take(config, &error);
        const char taken = claim.has_value() && PortClaim::taken_by_other(config).empty();
        if (write(ready[1], &taken, 1) != 1) _exit(1);
        for (;;) pause();
    }
    char taken = 0;
    ASSERT_EQ(read(ready[0], &taken, 1), 1);
    EXPECT_EQ(taken, 1);
    std::string error;
    EXPECT_FALSE(PortClaim::take(config, &error));
    EXPECT_NE(error.find("process " + std::to_string(owner) + " (port_test)"), std::string::npos) << error;
    EXPECT_EQ(PortClaim::taken_by_other(config), error);
    kill(owner, SIGKILL);
    waitpid(owner, nullptr, 0);
    EXPECT_EQ(PortClaim::taken_by_other(config), "");
    EXPECT_TRUE(PortClaim::take(config, &error)) << error;
    close(ready[0]);
    close(ready[1]);
}

// Abstract socket names have no permissions. A process of another user may have taken the name of the port without the
// port itself.
TEST(PortClaim, AnotherUsersClaimIsNotBelieved) {
    if (geteuid() != 0) GTEST_SKIP() << "needs two users";
    const DeviceConfig config = of("udp:127.0.0.77");
    int ready[2];
    // Without O_CLOEXEC, the child would treat the pipe as DPDK's and close it (dpdk_files.h).
    ASSERT_EQ(pipe2(ready, O_CLOEXEC), 0);
    const pid_t squatter = fork();
    if (squatter == 0) {
        std::string error;
        if (setuid(65534) != 0) _exit(1);
        const auto claim = PortClaim::take(config, &error);
        if (!claim || claim->file() < 0 || write(ready[1], "", 1) != 1) _exit(1);
        for (;;) pause();
    }
    close(ready[1]);
    char taken;
    ASSERT_EQ(read(ready[0], &taken, 1), 1);
    EXPECT_EQ(PortClaim::taken_by_other(config), "");
    std::string error;
    EXPECT_TRUE(PortClaim::take(config, &error)) << error;
    kill(squatter, SIGKILL);
    waitpid(squatter, nullptr, 0);
    close(ready[0]);
}

// Any number of processes may query the owner of a port.
TEST(PortClaim, QuestionsDoNotFillTheOwnersQueue) {
    const DeviceConfig config = of("net_memif0,socket=port_claim_questions-" + std::to_string(getpid()));
    std::string error;
    const auto owner = PortClaim::take(config, &error);
    ASSERT_TRUE(owner) << error;
    for (int asked = 0; asked < 3 * SOMAXCONN; ++asked) {
        EXPECT_FALSE(PortClaim::take(config, &error));
        if (asked % 64 == 0) owner->forget_questions();
    }
}

}  // namespace
}  // namespace rove::datapath
