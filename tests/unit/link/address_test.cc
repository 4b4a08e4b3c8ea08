// SPDX-License-Identifier: Apache-2.0
#include "link/address.h"

#include <gtest/gtest.h>

namespace rove::datapath {
namespace {

TEST(AddressTest, ASubnetEndsWhereItsPrefixSays) {
    const auto contains = [](const char* subnet, const char* address) {
        return parse_subnet(subnet)->contains(*parse_address(address));
    };
    EXPECT_TRUE(contains("10.0.0.1/25", "10.0.0.127"));
    EXPECT_FALSE(contains("10.0.0.1/25", "10.0.0.128"));
    EXPECT_TRUE(contains("10.0.0.1/31", "10.0.0.0"));
    EXPECT_FALSE(contains("10.0.0.1/31", "10.0.0.2"));
    EXPECT_TRUE(contains("fd00::1/63", "fd00:0:0:1::1"));
    EXPECT_FALSE(contains("fd00::1/63", "fd00:0:0:2::1"));
    EXPECT_FALSE(contains("fd00::1/127", "fd00::2"));
    EXPECT_FALSE(contains("fd00::1", "fd00::2")) << "a host of its own";
}

// RFC 5771: 224.0.0.0/4 is multicast; class E behind it is reserved.
TEST(AddressTest, GroupsAreClassDAndFf) {
    for (const char* group : {"224.0.0.0", "239.255.255.255", "ff00::", "ff02::1"})
        EXPECT_TRUE(is_multicast(*parse_address(group))) << group;
    for (const char* host : {"223.255.255.255", "240.0.0.1", "255.255.255.255", "fe80::1", "fd00::1"})
        EXPECT_FALSE(is_multicast(*parse_address(host))) << host;
}

}  // namespace
}  // namespace rove::datapath
