// SPDX-License-Identifier: Apache-2.0
// Tests the limits of the connection manager: tables, backlogs, and the share that one source gets.
#include <algorithm>
#include <cerrno>

#include "connect_fixture.h"

namespace rove::cm {
namespace {

using namespace test;
using enum EventKind;

TEST(CmBounds, Tables) {
    Network network;
    Host& a = network.add(ipv4(1), {.max_connections = 3, .max_listeners = 2});
    Host& b = network.add(ipv4(2), {.max_connections = 2});
    Id id;
    for (uint64_t service = 1; service <= 2; ++service) EXPECT_EQ(a.cm.listen({.service_id = service}, nullptr, id), 0);
    EXPECT_EQ(a.cm.listen({.service_id = 3}, nullptr, id), ENOMEM);
    EXPECT_EQ(b.cm.listen({.service_id = 1, .cma_header = false}, nullptr, id), 0);
    const auto connect = [&] {
        Connect connect{.path = a.to(b), .service_id = 1};
        connect.local.qpn = static_cast<uint32_t>(a.sent.size());
        return a.cm.connect(network.now, connect, nullptr, id);
    };
    for (int i = 0; i < 3; ++i) EXPECT_EQ(connect(), 0);
    EXPECT_EQ(connect(), ENOMEM);
    EXPECT_EQ(a.cm.sidr_request(network.now, {.path = a.to(b), .service_id = 1}, nullptr, id), ENOMEM);
    network.run(kMs);
    EXPECT_EQ(b.count(kConnectRequest), 2u);
    EXPECT_EQ(b.counter(Counter::kDropTable), 1u);
    EXPECT_EQ(b.cm.usage().connections, 2u);
    // The third request is retransmitted, and finds room.
    EXPECT_EQ(b.cm.destroy(network.now, b.last(kConnectRequest).id), 0);
    network.run(100 * kMs);
    EXPECT_EQ(b.count(kConnectRequest), 3u);
}

// A client connects and disconnects 1000 times a second, with 1 % loss, while 2000 other connections stay. Every
// connect succeeds, and the manager keeps ended connections for a second only.
TEST(CmBounds, AChurnOfConnections) {
    Network network;
    network.weather.loss = 0.01;
    Host& a = network.add(ipv4(1));
    Host& b = network.add(ipv4(2));
    Id listener;
    EXPECT_EQ(b.cm.listen({.service_id = 1, .cma_header = false}, nullptr, listener), 0);
    std::vector<Id> to_accept, to_confirm, to_disconnect, to_destroy;
    size_t established = 0, failed = 0;
    a.on_event = [&](const Event& event) {
        if (event.kind == kConnectResponse) to_confirm.push_back(event.id);
        failed += event.kind == kRejected || event.kind == kUnreachable;
    };
    b.on_event = [&](const Event& event) {
        if (event.kind == kConnectRequest) to_accept.push_back(event.id);
        if (event.kind == kDisconnected) to_destroy.push_back(event.id);
        established += event.kind == kEstablished;
        failed += event.kind == kRejected || event.kind == kUnreachable;
    };
    constexpr size_t kStay = 2000, kConnects = 10'000;
    uint32_t qpn = 16;
    size_t most_lingering = 0, confirmed = 0;
    for (size_t i = 0; i < kConnects + 2000; ++i) {
        if (i < kConnects) {
            Connect connect{.path = a.to(b), .service_id = 1};
            connect.local = {.qpn = ++qpn, .ca_guid = 1};
            Id id;
            ASSERT_EQ(a.cm.connect(network.now, connect, nullptr, id), 0);
        }
        network.run(kMs);
        a.events.clear(), b.events.clear(), a.sent.clear(), b.sent.clear();
        for (const Id id : std::exchange(to_accept, {}))
            ASSERT_EQ(b.cm.accept(network.now, id, {.local = {.qpn = ++qpn}}), 0);
        for (const Id id : std::exchange(to_disconnect, {})) ASSERT_EQ(a.cm.destroy(network.now, id), 0);
        for (const Id id : std::exchange(to_confirm, {})) {
            ASSERT_EQ(a.cm.confirm(network.now, id, {}), 0);
            if (++confirmed > kStay) to_disconnect.push_back(id);
        }
        for (const Id id : std::exchange(to_destroy, {})) ASSERT_EQ(b.cm.destroy(network.now, id), 0);
        most_lingering = std::max({most_lingering, a.cm.usage().lingering, b.cm.usage().lingering});
    }
    EXPECT_EQ(failed, 0u);
    EXPECT_EQ(confirmed, kConnects);
    EXPECT_GE(established, kConnects - kConnects / 100);  // a DREQ may overtake a lost RTU
    EXPECT_EQ(a.cm.usage().connections, kStay);
    EXPECT_EQ(b.cm.usage().connections, kStay);
    EXPECT_LE(most_lingering, 1000u);
    EXPECT_EQ(a.counter(Counter::kTimeWaitCut) + b.counter(Counter::kTimeWaitCut), 0u);
}

TEST(CmBounds, LingeringRecordsMakeRoom) {
    Network network;
    Host& a = network.add(ipv4(1));
    Host& b = network.add(ipv4(2), {.max_lingering = 10});
    Id id;
    EXPECT_EQ(b.cm.listen({.service_id = 1, .cma_header = false}, nullptr, id), 0);
    for (uint32_t i = 0; i < 50; ++i) {
        Connect connect{.path = a.to(b), .service_id = 1};
        connect.local.qpn = i;
        EXPECT_EQ(a.cm.connect(network.now, connect, nullptr, id), 0);
        network.run(kMs);
        EXPECT_EQ(b.cm.destroy(network.now, b.last(kConnectRequest).id), 0);
        EXPECT_LE(b.cm.usage().lingering, 10u);
    }
    EXPECT_EQ(b.counter(Counter::kTimeWaitCut), 40u);
    EXPECT_EQ(b.cm.usage().connections, 0u);
}

// The server accepts every request. Requests whose sender stays silent afterwards must not fill its tables.
TEST(CmBounds, HalfOpenConnections) {
    Network network;
    Host& a = network.add(ipv4(1));
    Host& b = network.add(ipv4(2), {.max_half_open = 8});
    Host& c = network.add(ipv4(3));
    Id listener, id;
    EXPECT_EQ(b.cm.listen({.service_id = 1, .cma_header = false}, nullptr, listener), 0);
    std::vector<Id> to_accept;
    b.on_event = [&](const Event& event) {
        if (event.kind == kConnectRequest) to_accept.push_back(event.id);
    };
    uint32_t qpn = 1;
    const auto connect = [&](Host& from) {
        Connect connect{.path = from.to(b), .service_id = 1};
        connect.local.qpn = ++qpn;
        EXPECT_EQ(from.cm.connect(network.now, connect, nullptr, id), 0);
        network.run(kMs);
        for (const Id request : std::exchange(to_accept, {}))
            EXPECT_EQ(b.cm.accept(network.now, request, {.local = {.qpn = ++qpn}}), 0);
        network.run(kMs);
        return id;
    };
    for (int i = 0; i < 20; ++i) connect(a);
    EXPECT_EQ(b.count(kConnectRequest), 6u);
    for (int i = 0; i < 20; ++i) connect(c);
    EXPECT_EQ(b.count(kConnectRequest), 8u);
    // A connection makes room when it is established, and also when it ends.
    EXPECT_EQ(a.cm.confirm(network.now, a.events[0].id, {}), 0);
    network.run(kMs);
    EXPECT_EQ(b.cm.establish(network.now, b.events[1].id), 0);
    EXPECT_EQ(b.cm.destroy(network.now, b.events[2].id), 0);
    EXPECT_EQ(a.cm.reject(network.now, a.events[3].id, {}), 0);
    network.run(kSecond);
    EXPECT_EQ(b.count(kConnectRequest), 12u);
    network.run(100 * kSecond);
    EXPECT_EQ(b.cm.destroy(network.now, listener), 0);
}

// The program never answers. Requests that it has forgotten must not block its listener.
TEST(CmBounds, ForgottenRequests) {
    Network network;
    Host& a = network.add(ipv4(1));
    Host& b = network.add(ipv4(2));
    Id listener, id;
    EXPECT_EQ(b.cm.listen({.service_id = 1, .backlog = 1, .cma_header = false}, nullptr, listener), 0);
    for (uint32_t i = 0; i < 3; ++i) {
        Connect connect{.path = a.to(b), .service_id = 1};
        connect.local.qpn = 16 + i;
        network.weather.cut = false;
        EXPECT_EQ(a.cm.connect(network.now, connect, nullptr, id), 0);
        network.run(kMs);
        EXPECT_EQ(b.count(kConnectRequest), i + 1);
        network.weather.cut = true;  // the peer dies
        network.run(200 * kSecond);
        EXPECT_EQ(b.cm.state(b.last(kConnectRequest).id), State::kReqReceived);
    }
}

TEST(CmBounds, BacklogAndTheShareOfOneSource) {
    Network network;
    Host& a = network.add(ipv4(1));
    Host& b = network.add(ipv4(2));
    Host& c = network.add(ipv4(3));
    Id listener, id;
    EXPECT_EQ(b.cm.listen({.service_id = 1, .backlog = 8, .cma_header = false}, nullptr, listener), 0);
    uint32_t qpn = 1;
    const auto connect = [&](Host& from) {
        Connect connect{.path = from.to(b), .service_id = 1};
        connect.local.qpn = ++qpn;
        EXPECT_EQ(from.cm.connect(network.now, connect, nullptr, id), 0);
        network.run(20'000);
    };
    for (int i = 0; i < 20; ++i) connect(a);
    EXPECT_EQ(b.count(kConnectRequest), 6u);
    for (int i = 0; i < 20; ++i) connect(c);
    EXPECT_EQ(b.count(kConnectRequest), 8u);
    EXPECT_GE(b.counter(Counter::kDropBacklog), 32u);
    // An answered request makes room, whatever the answer is.
    EXPECT_EQ(b.cm.accept(network.now, b.events[0].id, {}), 0);
    EXPECT_EQ(b.cm.reject(network.now, b.events[1].id, {}), 0);
    EXPECT_EQ(b.cm.destroy(network.now, b.events[2].id), 0);
    network.run(kSecond);
    EXPECT_EQ(b.count(kConnectRequest), 11u);
    // So does a request that the program has received, even if the program then forgets it. Such a request counts as
    // half open for a limited time only.
    EXPECT_EQ(b.cm.taken(b.last(kConnectRequest).id), 0);
    EXPECT_EQ(b.cm.taken(b.last(kConnectRequest).id), 0);
    EXPECT_EQ(b.cm.taken(listener), EINVAL);
    network.run(5 * kSecond);
    EXPECT_EQ(b.count(kConnectRequest), 12u);
    // A request stays valid after its listener is destroyed.
    EXPECT_EQ(b.cm.destroy(network.now, listener), 0);
    EXPECT_EQ(b.cm.accept(network.now, b.last(kConnectRequest).id, {}), 0);
}

}  // namespace
}  // namespace rove::cm
