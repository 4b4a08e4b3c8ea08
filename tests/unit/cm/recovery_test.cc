// SPDX-License-Identifier: Apache-2.0
// Tests two hosts: the cost of a lost MAD, and programs and peers that are slow or dead.
#include <cerrno>

#include "connect_fixture.h"

namespace rove::cm {
namespace {

using namespace test;
using enum EventKind;

TEST_F(CmConnect, ALostRequestCosts17ms) {
    listen(b);
    lose<Req>(1);
    const uint64_t start = network.now;
    connect();
    network.run(kSecond);
    EXPECT_LE(b.last(kConnectRequest).at_ns - start, 18 * kMs);
    EXPECT_EQ(b.count(kConnectRequest), 1u);
}

TEST_F(CmConnect, ALostResponseCosts17ms) {
    listen(b);
    lose<Rep>(1);
    connect();
    network.run(kMs);
    const uint64_t accepted = network.now;
    EXPECT_EQ(b.cm.accept(network.now, b.last(kConnectRequest).id, accept()), 0);
    network.run(kSecond);
    EXPECT_LE(a.last(kConnectResponse).at_ns - accepted, 18 * kMs);
    EXPECT_EQ(a.count(kConnectResponse), 1u);
}

// The REP is retransmitted, and so is the RTU that answers it.
TEST_F(CmConnect, ALostReadyToUse) {
    listen(b);
    lose<Rtu>(2);
    const Id id = connect();
    network.run(kMs);
    EXPECT_EQ(b.cm.accept(network.now, b.last(kConnectRequest).id, accept()), 0);
    network.run(kMs);
    const uint64_t confirmed = network.now;
    EXPECT_EQ(a.cm.confirm(network.now, id, bytes("thanks")), 0);
    network.run(kSecond);
    EXPECT_LE(b.last(kEstablished).at_ns - confirmed, 60 * kMs);
    EXPECT_TRUE(begins_with(b.last(kEstablished).private_data, "thanks"));
}

// An MRA made the peer wait, so it would repeat the REP only after 20 s.
TEST_F(CmConnect, ALostReadyToUseAfterAnMra) {
    listen(b);
    lose<Rtu>(3);
    const Id id = connect();
    network.run(kMs);
    EXPECT_EQ(b.cm.accept(network.now, b.last(kConnectRequest).id, accept()), 0);
    network.run(100 * kMs);
    ASSERT_TRUE(std::holds_alternative<Mra>(a.sent.back().body));
    const uint64_t confirmed = network.now;
    EXPECT_EQ(a.cm.confirm(network.now, id, {}), 0);
    network.run(2 * kSecond);
    EXPECT_LE(b.last(kEstablished).at_ns - confirmed, 130 * kMs);
    EXPECT_EQ(a.cm.state(id), State::kEstablished);
    EXPECT_EQ(a.cm.next_deadline(), UINT64_MAX);
}

// Data that the QP receives also proves that the connection is established.
TEST_F(CmConnect, ALostReadyToUseMayCostNothing) {
    listen(b);
    lose<Rtu>(100);
    const Id id = connect();
    network.run(kMs);
    const Id theirs = b.last(kConnectRequest).id;
    EXPECT_EQ(b.cm.accept(network.now, theirs, accept()), 0);
    network.run(kMs);
    EXPECT_EQ(a.cm.confirm(network.now, id, {}), 0);
    EXPECT_EQ(b.cm.establish(network.now, theirs), 0);
    EXPECT_EQ(b.last(kEstablished).id, theirs);
    EXPECT_EQ(b.cm.next_deadline(), UINT64_MAX);
    network.run(100 * kSecond);
    EXPECT_EQ(b.cm.state(theirs), State::kEstablished);
    EXPECT_EQ(b.count(kEstablished), 1u);
}

TEST_F(CmConnect, ALostRejectIsSaidAgain) {
    listen(b);
    lose<Rej>(3);
    connect();
    network.run(kMs);
    EXPECT_EQ(b.cm.reject(network.now, b.last(kConnectRequest).id, {.private_data = bytes("no")}), 0);
    EXPECT_EQ(b.cm.destroy(network.now, b.last(kConnectRequest).id), 0);
    network.run(kSecond);
    EXPECT_TRUE(begins_with(a.last(kRejected).private_data, "no"));
    EXPECT_EQ(b.count(kConnectRequest), 1u);
}

// An MRA made the peer wait, so it would repeat the REQ only after 20 s.
TEST_F(CmConnect, ALostRejectAfterAnMra) {
    listen(b);
    connect();
    network.run(100 * kMs);
    ASSERT_TRUE(std::holds_alternative<Mra>(b.sent.back().body));
    lose<Rej>(3);
    const uint64_t rejected = network.now;
    EXPECT_EQ(b.cm.reject(network.now, b.last(kConnectRequest).id, {}), 0);
    EXPECT_EQ(b.cm.destroy(network.now, b.last(kConnectRequest).id), 0);
    network.run(kSecond);
    EXPECT_LE(a.last(kRejected).at_ns - rejected, 130 * kMs);

    // If every REJ is lost, the peer receives one when it repeats the REQ.
    connect();
    network.run(100 * kMs);
    lose<Rej>(5);
    EXPECT_EQ(b.cm.reject(network.now, b.last(kConnectRequest).id, {}), 0);
    EXPECT_EQ(b.cm.destroy(network.now, b.last(kConnectRequest).id), 0);
    network.run(60 * kSecond);
    EXPECT_EQ(a.count(kRejected), 2u);
    EXPECT_EQ(b.count(kConnectRequest), 2u);
}

TEST_F(CmConnect, LostDisconnects) {
    listen(b);
    const Id id = establish();
    lose<Dreq>(2);
    EXPECT_EQ(a.cm.disconnect(network.now, id, {}), 0);
    EXPECT_EQ(a.cm.destroy(network.now, id), 0);  // the DREQ is still retransmitted
    network.run(kSecond);
    EXPECT_EQ(b.count(kDisconnected), 1u);
    EXPECT_EQ(a.count(kDisconnected), 0u);

    const Id second = establish();
    lose<Drep>(3);
    EXPECT_EQ(a.cm.disconnect(network.now, second, {}), 0);
    network.run(kSecond);
    EXPECT_EQ(b.count(kDisconnected), 2u);
    EXPECT_EQ(a.last(kDisconnected).id, second);
    EXPECT_EQ(a.last(kDisconnected).reason, RejReason::kNone);
}

TEST_F(CmConnect, BothDisconnect) {
    listen(b);
    const Id id = establish();
    EXPECT_EQ(a.cm.disconnect(network.now, id, {}), 0);
    EXPECT_EQ(b.cm.disconnect(network.now, b.last(kEstablished).id, {}), 0);
    network.run(2 * kSecond);
    EXPECT_EQ(a.count(kDisconnected), 1u);
    EXPECT_EQ(b.count(kDisconnected), 1u);
    EXPECT_EQ(a.count(kTimeWaitExit), 1u);
    EXPECT_EQ(b.count(kTimeWaitExit), 1u);
}

// A program may take minutes to answer. The MRA makes the peer wait at little cost.
TEST_F(CmConnect, ASlowProgram) {
    listen(b);
    const Id id = connect();
    network.run(120 * kSecond);
    EXPECT_EQ(a.cm.state(id), State::kReqSent);
    EXPECT_LE(a.sent.size(), 10u);
    EXPECT_EQ(b.count(kConnectRequest), 1u);
    EXPECT_EQ(b.cm.accept(network.now, b.last(kConnectRequest).id, accept()), 0);
    network.run(120 * kSecond);
    EXPECT_EQ(a.count(kConnectResponse), 1u);
    EXPECT_EQ(b.cm.state(b.last(kConnectRequest).id), State::kRepSent);
    EXPECT_EQ(a.cm.confirm(network.now, id, {}), 0);
    network.run(kMs);
    EXPECT_EQ(b.count(kEstablished), 1u);
}

// A request that its program has abandoned is withdrawn. A REP for an unknown request is rejected immediately.
TEST_F(CmConnect, AGivenUpRequest) {
    listen(b);
    Id id = connect();
    network.run(kMs);
    EXPECT_EQ(a.cm.destroy(network.now, id), 0);
    network.run(kMs);
    EXPECT_EQ(b.last(kRejected).reason, RejReason::kTimeout);

    lose<Rej>(1);
    id = connect();
    network.run(kMs);
    EXPECT_EQ(a.cm.destroy(network.now, id), 0);
    network.run(kMs);
    EXPECT_EQ(b.cm.accept(network.now, b.last(kConnectRequest).id, accept()), 0);
    network.run(kMs);
    EXPECT_EQ(b.count(kRejected), 2u);
    EXPECT_EQ(b.last(kRejected).reason, RejReason::kInvalidCommId);
}

TEST_F(CmConnect, ADeadPeer) {
    network.weather.cut = true;
    const uint64_t start = network.now;
    const Id id = connect();
    network.run(100 * kSecond);
    EXPECT_EQ(a.last(kUnreachable).id, id);
    EXPECT_NEAR(static_cast<double>(a.last(kUnreachable).at_ns - start), 38.6e9, 1e8);
}

}  // namespace
}  // namespace rove::cm
