// SPDX-License-Identifier: Apache-2.0
// Tests the addresses of engines: text forms, names, and both families.
#include "tent/control/address.h"

#include <gtest/gtest.h>

#include "tent/engine/clock.h"

namespace rove::tent {

TEST(Address, IsSplitAndJoined) {
    for (const auto& [host, text] : std::initializer_list<std::pair<std::string, std::string>>{
             {"10.0.0.7", "10.0.0.7:15000"}, {"node-7.cluster", "node-7.cluster:15000"}, {"::1", "[::1]:15000"}}) {
        EXPECT_EQ(join_address(host, 15000), text);
        const auto parts = split_address(text);
        ASSERT_TRUE(parts) << text;
        EXPECT_EQ(parts->host, host);
        EXPECT_EQ(parts->port, 15000);
    }
    for (const char* text : {"", ":", "host", "host:", ":1", "host:0", "host:65536", "host:1x", "host:-1", "::1:5",
                             "[]:5", "host:99999999999999999999"})
        EXPECT_FALSE(split_address(text)) << text;
}

TEST(Address, OfANameInTime) {
    const uint64_t soon = monotonic_ns() + 2'000'000'000;
    const auto ipv4 = resolve("127.0.0.1", 5, soon), ipv6 = resolve("::1", 5, soon);
    const auto name = resolve("localhost", 5, soon);
    ASSERT_EQ(ipv4.size(), 1u);
    EXPECT_EQ(ipv4[0].host(), "127.0.0.1");
    ASSERT_EQ(ipv6.size(), 1u);
    EXPECT_EQ(ipv6[0].host(), "::1");
    ASSERT_FALSE(name.empty());
    for (const auto& one : name) EXPECT_TRUE(one.is_loopback()) << one.host();
    const uint64_t begun = monotonic_ns();
    (void)resolve("no-such-host.invalid", 5, begun + 50'000'000);
    EXPECT_LT(monotonic_ns() - begun, 1'000'000'000u);
}

}  // namespace rove::tent
