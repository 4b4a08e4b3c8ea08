// SPDX-License-Identifier: Apache-2.0
// Tests which device and address rdma_cm selects.
#include "rdmacm/address.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>

#include <string>

namespace rove::verbs::ucma {
namespace {

SocketAddress ip(const std::string& text, uint16_t port = 0, uint32_t scope_id = 0) {
    SocketAddress address = socket_address_of(*datapath::parse_address(text), port);
    if (address.family == AF_INET6) address.v6.sin6_scope_id = scope_id;
    return address;
}

Interface interface(std::initializer_list<const char*> subnets) {
    Interface made;
    for (const char* subnet : subnets) made.own.push_back(*datapath::parse_subnet(subnet));
    return made;
}

const std::vector<Interface> kTwo = {interface({"fe80::1/64", "10.0.0.1/8", "fd00::1/64"}),
                                     interface({"fe80::2/64", "10.1.0.1/16", "192.168.0.1/24"})};

TEST(UcmaAddress, AnOwnAddressMeansItsDevice) {
    EXPECT_EQ(find_local(kTwo, ip("10.1.0.1")), (Local{1, 1}));
    EXPECT_EQ(find_local(kTwo, ip("fd00::1")), (Local{0, 2}));
    EXPECT_EQ(find_local(kTwo, ip("10.1.0.2")), std::nullopt);
    EXPECT_EQ(find_source(kTwo, ip("192.168.0.1")), (Local{1, 2})) << "itself, not only its subnet";
}

TEST(UcmaAddress, TheLongestPrefixWins) {
    EXPECT_EQ(find_source(kTwo, ip("10.1.2.3")), (Local{1, 1}));
    EXPECT_EQ(find_source(kTwo, ip("10.2.2.3")), (Local{0, 1}));
    EXPECT_EQ(find_source(kTwo, ip("172.16.0.1")), std::nullopt) << "nobody's, and no gateway";
    EXPECT_EQ(find_source(kTwo, ip("2001:db8::1")), std::nullopt);
}

TEST(UcmaAddress, BeyondTheSubnetsGoesByTheGatewayOfTheFamily) {
    std::vector<Interface> devices = kTwo;
    devices[1].has_gateway_ipv4 = true;
    devices[0].has_gateway_ipv6 = true;
    EXPECT_EQ(find_source(devices, ip("172.16.0.1")), (Local{1, 1}));
    EXPECT_EQ(find_source(devices, ip("2001:db8::1")), (Local{0, 2})) << "not from the link-local address";
}

TEST(UcmaAddress, LoopbackMeansTheFirstDevice) {
    for (const char* text : {"127.0.0.1", "127.1.2.3"}) {
        EXPECT_EQ(find_local(kTwo, ip(text)), (Local{0, 1}));
        EXPECT_EQ(destination_gid(*find_local(kTwo, ip(text)), ip(text)), *datapath::parse_address("10.0.0.1"));
    }
    EXPECT_EQ(find_source(kTwo, ip("::1")), (Local{0, 0}));
    EXPECT_EQ(destination_gid(*find_local(kTwo, ip("10.0.0.1")), ip("10.0.0.9")), *datapath::parse_address("10.0.0.9"));
    EXPECT_EQ(find_local({}, ip("127.0.0.1")), std::nullopt);
}

TEST(UcmaAddress, LinkLocalAddressesAreOfALink) {
    std::vector<Interface> devices = kTwo;
    devices[1].kernel_index = 7;
    EXPECT_EQ(find_source(devices, ip("fe80::99", 0, 7)), (Local{1, 0}));
    EXPECT_EQ(find_source(devices, ip("fe80::99", 0, 8)), std::nullopt);
    EXPECT_EQ(find_source(devices, ip("fe80::99")), (Local{0, 0})) << "no scope: the first that fits";
    EXPECT_EQ(find_local(devices, ip("fe80::2", 0, 7)), (Local{1, 0}));
    EXPECT_EQ(find_source(std::span(devices).first(1), ip("fe80::99", 0, 42)), (Local{0, 0})) << "there is but one";
}

TEST(UcmaAddress, GroupsAreReachedFromTheFirstAddressOfTheirFamily) {
    EXPECT_EQ(find_source(kTwo, ip("224.1.2.3")), (Local{0, 1}));
    EXPECT_EQ(find_source(kTwo, ip("ff15::1")), (Local{0, 0}));
}

TEST(UcmaAddress, SocketAddressesAreReadAsFarAsTheyGo) {
    const sockaddr_in v4{.sin_family = AF_INET, .sin_port = htons(7), .sin_addr = {htonl(0x0A000001)}, .sin_zero = {}};
    EXPECT_EQ(SocketAddress(&v4, sizeof(v4)).gid(), *datapath::parse_address("10.0.0.1"));
    EXPECT_EQ(SocketAddress(&v4, sizeof(v4)).port(), 7);
    EXPECT_FALSE(SocketAddress(&v4, sizeof(v4) - 1).is_ip());
    EXPECT_FALSE(SocketAddress(&v4, 0).is_ip());
    sockaddr_in6 other{};
    other.sin6_family = 27;  // AF_IB
    EXPECT_FALSE(SocketAddress(&other, sizeof(other)).is_ip());
    EXPECT_TRUE(any_address(AF_INET).is_any());
    EXPECT_TRUE(any_address(AF_INET6).is_any());
    EXPECT_FALSE(ip("::1").is_any());
}

}  // namespace
}  // namespace rove::verbs::ucma
