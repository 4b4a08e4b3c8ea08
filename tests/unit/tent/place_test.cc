// SPDX-License-Identifier: Apache-2.0
// Tests where an engine listens, with and without a secret, and the address that it advertises.
#include "tent/control/place.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace rove::tent {

namespace {

SocketAddress numeric(const char* host) {
    return resolve(host, 0, 0).front();
}

struct PlaceTest : testing::Test {
    Status choose(bool has_secret, const char* hostname = "", const char* advertised = "") {
        Config config;
        config.rpc_server_hostname = hostname;
        config.advertised_address = advertised;
        place = {};
        return choose_place(config, has_secret, ports, &place);
    }
    bool listens_on(const std::string& host) const {
        return std::any_of(place.listen.begin(), place.listen.end(),
                           [&](const auto& one) { return one.host() == host; });
    }
    // The first address belongs to this host, the second does not.
    std::vector<SocketAddress> ports{numeric("127.0.0.5"), numeric("203.0.113.9")};
    Place place;
};

}  // namespace

TEST_F(PlaceTest, WithoutASecretOnlyWhereOneselfIs) {
    ASSERT_TRUE(choose(false).ok());
    EXPECT_TRUE(listens_on("127.0.0.1"));
    EXPECT_TRUE(listens_on("::1"));
    EXPECT_FALSE(listens_on("0.0.0.0"));
    EXPECT_FALSE(listens_on("::"));
    EXPECT_FALSE(listens_on("203.0.113.9")) << "the kernel does not have it";
    EXPECT_EQ(place.host, "127.0.0.1");
    EXPECT_NE(place.note.find("no secret"), std::string::npos);
    EXPECT_TRUE(choose(false, "127.0.0.1").ok());
    EXPECT_EQ(place.note, "");
    EXPECT_TRUE(choose(false, "203.0.113.9").ok()) << "a port's";
    for (const char* host : {"203.0.113.10", "0.0.0.0", "::", "2001:db8::1"})
        EXPECT_EQ(choose(false, host).code(), Code::kInvalidArgument) << host;
}

TEST_F(PlaceTest, WithASecretEverywhereOrWhereItIsTold) {
    ASSERT_TRUE(choose(true).ok());
    EXPECT_TRUE(listens_on("0.0.0.0"));
    EXPECT_TRUE(listens_on("::"));
    EXPECT_EQ(place.note, "");
    EXPECT_NE(place.host, "0.0.0.0");
    ASSERT_TRUE(choose(true, "203.0.113.10").ok());
    ASSERT_EQ(place.listen.size(), 1u);
    EXPECT_EQ(place.host, "203.0.113.10");
    ASSERT_TRUE(choose(true, "0.0.0.0").ok());
    EXPECT_NE(place.host, "0.0.0.0") << "nobody connects there";
    EXPECT_EQ(choose(true, "no-such-host.invalid").code(), Code::kInvalidArgument);
}

TEST_F(PlaceTest, WhatIsAdvertisedIsWhatOthersAreTold) {
    ASSERT_TRUE(choose(false, "127.0.0.1", "node-7.example").ok());
    EXPECT_EQ(place.host, "node-7.example");
    EXPECT_EQ(place.port, 0);
    ASSERT_TRUE(choose(false, "127.0.0.1", "[2001:db8::7]:99").ok());
    EXPECT_EQ(place.host, "2001:db8::7");
    EXPECT_EQ(place.port, 99);
    EXPECT_TRUE(listens_on("127.0.0.1"));
    EXPECT_EQ(choose(false, "127.0.0.1", "[2001:db8::7]").code(), Code::kInvalidArgument);
}

TEST(Place, APortsAddressIsItsGid) {
    const uint8_t mapped[16] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF, 10, 0, 0, 7};
    const uint8_t ipv6[16] = {0x20, 0x01, 0x0D, 0xB8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7};
    EXPECT_EQ(address_of(mapped).host(), "10.0.0.7");
    EXPECT_EQ(address_of(ipv6).host(), "2001:db8::7");
}

}  // namespace rove::tent
