// SPDX-License-Identifier: Apache-2.0
// Tests which ids may bind which port of rdma_cm.
#include "rdmacm/ports.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <set>
#include <string>

namespace rove::verbs::ucma {
namespace {

constexpr uint16_t kTcp = 0x0106, kUdp = 0x0111;

Ports::Binding at(const std::string& address, uint16_t port) {
    return {.address = socket_address_of(*datapath::parse_address(address), port)};
}

class UcmaPorts : public testing::Test {
  protected:
    int bind(uint16_t space, Ports::Binding binding, const void* owner) { return ports_.bind(space, binding, owner); }
    Ports ports_{1};
    char a_ = 0, b_ = 0, c_ = 0;
};

TEST_F(UcmaPorts, AnAddressHasAPortOnce) {
    EXPECT_EQ(bind(kTcp, at("10.0.0.1", 7), &a_), 0);
    EXPECT_EQ(bind(kTcp, at("10.0.0.1", 7), &b_), EADDRINUSE);
    EXPECT_EQ(bind(kTcp, at("10.0.0.2", 7), &b_), 0);
    EXPECT_EQ(bind(kUdp, at("10.0.0.1", 7), &c_), 0) << "another port space";
    ports_.release(kTcp, 7, &a_);
    EXPECT_EQ(bind(kTcp, at("10.0.0.1", 7), &a_), 0);
}

TEST_F(UcmaPorts, AWildcardHasItOnAllAddresses) {
    EXPECT_EQ(bind(kTcp, at("0.0.0.0", 7), &a_), 0);
    EXPECT_EQ(bind(kTcp, at("10.0.0.1", 7), &b_), EADDRINUSE);
    EXPECT_EQ(bind(kTcp, at("fd00::1", 7), &b_), 0) << "of the other family";
    EXPECT_EQ(bind(kTcp, at("::", 8), &b_), 0);
    EXPECT_EQ(bind(kTcp, at("10.0.0.1", 8), &c_), EADDRINUSE) << ":: is IPv4's too";
    Ports::Binding only = at("::", 7);
    only.ipv6_only = true;
    EXPECT_EQ(bind(kTcp, only, &c_), EADDRINUSE);
    ports_.release(kTcp, 7, &b_);
    EXPECT_EQ(bind(kTcp, only, &c_), 0) << "unless it is said not to be";
}

TEST_F(UcmaPorts, ThoseWhoBothShareDoUntilOneListens) {
    Ports::Binding shared = at("10.0.0.1", 7);
    shared.reuse = true;
    EXPECT_EQ(bind(kTcp, shared, &a_), 0);
    EXPECT_EQ(bind(kTcp, at("10.0.0.1", 7), &b_), EADDRINUSE) << "one does not";
    EXPECT_EQ(bind(kTcp, shared, &b_), 0);
    EXPECT_EQ(ports_.listen(kTcp, 7, &a_), EADDRINUSE);
    ports_.release(kTcp, 7, &b_);
    EXPECT_EQ(ports_.listen(kTcp, 7, &a_), 0);
    EXPECT_EQ(bind(kTcp, shared, &b_), EADDRINUSE);
    EXPECT_EQ(ports_.listen(kTcp, 7, &b_), EINVAL) << "not bound";
}

TEST_F(UcmaPorts, PortZeroIsAFreeOneUntilThereIsNone) {
    std::set<uint16_t> given;
    constexpr int kCount = Ports::kLastEphemeral - Ports::kFirstEphemeral + 1;
    std::vector<char> owners(kCount + 1);
    for (int i = 0; i < kCount; ++i) {
        Ports::Binding binding = at("10.0.0.1", 0);
        ASSERT_EQ(ports_.bind(kTcp, binding, &owners[static_cast<size_t>(i)]), 0);
        ASSERT_GE(binding.address.port(), Ports::kFirstEphemeral);
        ASSERT_LE(binding.address.port(), Ports::kLastEphemeral);
        ASSERT_TRUE(given.insert(binding.address.port()).second);
    }
    EXPECT_EQ(bind(kTcp, at("10.0.0.1", 0), &owners[kCount]), EADDRNOTAVAIL);
    EXPECT_EQ(bind(kUdp, at("10.0.0.1", 0), &owners[kCount]), 0);
}

}  // namespace
}  // namespace rove::verbs::ucma
