// SPDX-License-Identifier: Apache-2.0
// Two hosts: what one says is what the other is told, what is refused and why, and what a lost MAD costs.
#include <gtest/gtest.h>

#include <cerrno>

#include "network.h"

namespace rove::cm {
namespace {

using namespace test;
using enum EventKind;

constexpr uint64_t kService = service_id_of(0x0106, 7174);

bool begins_with(std::span<const uint8_t> data, std::string_view text) {
    return data.size() >= text.size() && std::equal(text.begin(), text.end(), data.begin()) &&
           std::all_of(data.begin() + static_cast<std::ptrdiff_t>(text.size()), data.end(),
                       [](uint8_t b) { return b == 0; });
}
std::span<const uint8_t> bytes(std::string_view text) {
    return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

template <class M>
bool is(const Mad& mad) {
    Message message;
    return parse(mad, message) == ParseError::kNone && std::holds_alternative<M>(message.body);
}

class CmConnect : public testing::Test {
  protected:
    Connect request(const Host& from, const Host& to) {
        Connect connect;
        connect.path = from.to(to);
        connect.service_id = kService;
        connect.addresses = CmaHeader{.src_port = 33000, .src = from.gid, .dst = to.gid};
        connect.local = {
            .qpn = ++qpn, .starting_psn = static_cast<uint32_t>(network.random.below(1 << 24)), .ca_guid = 0xC1};
        return connect;
    }
    Id connect(const Connect& connect) {
        Id id = Id::kNone;
        EXPECT_EQ(a.cm.connect(network.now, connect, &a, id), 0);
        return id;
    }
    Id connect() { return connect(request(a, b)); }
    Id listen(Host& host, const Listen& listen = {.service_id = kService}) {
        Id id = Id::kNone;
        EXPECT_EQ(host.cm.listen(listen, &host, id), 0);
        return id;
    }
    Accept accept(std::string_view text = "") {
        return {.local = {.qpn = ++qpn, .ca_guid = 0xC2}, .private_data = bytes(text)};
    }
    // Both ends established. Returns a's id; b's is of its last request.
    Id establish() {
        const Id id = connect();
        network.run(kMs);
        EXPECT_EQ(b.cm.accept(network.now, b.last(kConnectRequest).id, accept()), 0);
        network.run(kMs);
        EXPECT_EQ(a.cm.confirm(network.now, id, {}), 0);
        network.run(kMs);
        EXPECT_EQ(b.last(kEstablished).id, b.last(kConnectRequest).id);
        return id;
    }
    // The next `n` MADs of that sort are lost.
    template <class M>
    void lose(int n) {
        network.filter = [n](const Path&, const Mad& mad) mutable { return !is<M>(mad) || n-- <= 0; };
    }
    RejReason rejected_for(const Connect& connect) {
        Id id = Id::kNone;
        EXPECT_EQ(a.cm.connect(network.now, connect, nullptr, id), 0);
        network.run(kMs);
        EXPECT_EQ(a.cm.state(id), State::kClosed);
        EXPECT_EQ(a.last(kRejected).id, id);
        EXPECT_EQ(a.cm.destroy(network.now, id), 0);
        return a.last(kRejected).reason;
    }

    Network network;
    Host& a = network.add(ipv4(1));
    Host& b = network.add(ipv4(2));
    uint32_t qpn = 100;
};

TEST_F(CmConnect, EachEndIsToldWhatTheOtherSaid) {
    const Id listener = listen(b);
    Connect req = request(a, b);
    req.local.responder_resources = 4;
    req.local.initiator_depth = 5;
    req.local.rnr_retry_count = 6;
    req.local.srq = req.local.flow_control = true;
    req.local.ece = {.vendor_id = 0x726F76, .options = 1};
    req.path_mtu = 4;
    req.retry_count = 3;
    req.local_ack_timeout = 17;
    req.path.flow.traffic_class = 106;
    req.path.flow.flow_label = 0x12345;
    req.private_data = bytes("please");
    const Id id = connect(req);
    EXPECT_EQ(a.cm.state(id), State::kReqSent);
    network.run(kMs);

    const Seen& asked = b.last(kConnectRequest);
    EXPECT_EQ(asked.listener, listener);
    EXPECT_EQ(asked.listener_context, &b);
    EXPECT_EQ(asked.context, nullptr);
    EXPECT_EQ(asked.addresses, req.addresses);
    EXPECT_EQ(asked.private_data.size(), 56u);
    EXPECT_TRUE(begins_with(asked.private_data, "please"));
    EXPECT_EQ(asked.path.flow.src, b.gid);
    EXPECT_EQ(asked.path.flow.dst, a.gid);
    EXPECT_EQ(asked.req->qpn, req.local.qpn);
    EXPECT_EQ(asked.req->starting_psn, req.local.starting_psn);
    EXPECT_EQ(asked.req->responder_resources, 4);
    EXPECT_EQ(asked.req->initiator_depth, 5);
    EXPECT_EQ(asked.req->rnr_retry_count, 6);
    EXPECT_EQ(asked.req->retry_count, 3);
    EXPECT_TRUE(asked.req->srq && asked.req->flow_control);
    EXPECT_EQ(asked.req->ece, req.local.ece);
    EXPECT_EQ(asked.req->path_mtu, 4);
    EXPECT_EQ(asked.req->primary, (ReqPath{.local_gid = a.gid,
                                           .remote_gid = b.gid,
                                           .flow_label = 0x12345,
                                           .traffic_class = 106,
                                           .hop_limit = 64,
                                           .local_ack_timeout = 17}));

    int context = 0;
    EXPECT_EQ(b.cm.set_context(asked.id, &context), 0);
    Accept yes = accept("welcome");
    yes.local.starting_psn = 0xFFFFFF;
    yes.local.responder_resources = 5;
    yes.local.initiator_depth = 4;
    yes.local.ece = {.vendor_id = 0x726F76, .options = 1};
    yes.target_ack_delay = 9;
    EXPECT_EQ(b.cm.accept(network.now, asked.id, yes), 0);
    network.run(kMs);
    const Seen& answered = a.last(kConnectResponse);
    EXPECT_EQ(answered.id, id);
    EXPECT_EQ(answered.context, &a);
    EXPECT_EQ(answered.private_data.size(), 196u);
    EXPECT_TRUE(begins_with(answered.private_data, "welcome"));
    EXPECT_EQ(answered.rep->qpn, yes.local.qpn);
    EXPECT_EQ(answered.rep->starting_psn, 0xFFFFFFu);
    EXPECT_EQ(answered.rep->responder_resources, 5);
    EXPECT_EQ(answered.rep->initiator_depth, 4);
    EXPECT_EQ(answered.rep->target_ack_delay, 9);
    EXPECT_EQ(answered.rep->ca_guid, 0xC2u);
    EXPECT_EQ(answered.rep->ece, yes.local.ece);

    EXPECT_EQ(a.cm.confirm(network.now, id, bytes("thanks")), 0);
    EXPECT_EQ(a.cm.state(id), State::kEstablished);
    network.run(kMs);
    EXPECT_EQ(b.last(kEstablished).context, &context);
    EXPECT_TRUE(begins_with(b.last(kEstablished).private_data, "thanks"));
    EXPECT_EQ(a.count(kEstablished), 0u);

    EXPECT_EQ(b.cm.disconnect(network.now, asked.id, bytes("bye")), 0);
    network.run(kMs);
    EXPECT_EQ(a.last(kDisconnected).reason, RejReason::kNone);
    EXPECT_TRUE(begins_with(a.last(kDisconnected).private_data, "bye"));
    EXPECT_EQ(b.last(kDisconnected).reason, RejReason::kNone);
    network.run(kSecond);
    EXPECT_EQ(a.count(kTimeWaitExit), 1u);
    EXPECT_EQ(b.count(kTimeWaitExit), 1u);
    EXPECT_EQ(a.sent.size(), 3u);  // REQ, RTU, DREP
    EXPECT_EQ(b.sent.size(), 2u);  // REP, DREQ
}

TEST_F(CmConnect, Ipv6) {
    Host& c = network.add(ipv6(1));
    Host& d = network.add(ipv6(2));
    listen(d, {.service_id = kService, .ipv4 = false});
    Id id;
    const Connect connect = request(c, d);
    EXPECT_EQ(c.cm.connect(network.now, connect, nullptr, id), 0);
    network.run(kMs);
    EXPECT_EQ(d.last(kConnectRequest).addresses, connect.addresses);
}

TEST_F(CmConnect, WithoutAddressesThereIsMoreRoom) {
    listen(b, {.service_id = 99, .cma_header = false});
    Connect connect = request(a, b);
    connect.service_id = 99;
    connect.addresses.reset();
    const std::string text(92, 'x');
    connect.private_data = bytes(text);
    this->connect(connect);
    network.run(kMs);
    EXPECT_FALSE(b.last(kConnectRequest).addresses);
    EXPECT_TRUE(begins_with(b.last(kConnectRequest).private_data, text));
}

TEST_F(CmConnect, WhoListens) {
    Id id;
    const Id any = listen(b, {.service_id = kService, .ipv6 = false});
    EXPECT_EQ(b.cm.listen({.service_id = kService}, nullptr, id), EADDRINUSE);
    EXPECT_EQ(b.cm.listen({.service_id = kService, .ipv6 = false}, nullptr, id), EADDRINUSE);
    EXPECT_EQ(b.cm.listen({.service_id = kService, .ipv4 = false, .ipv6 = false}, nullptr, id), EINVAL);
    const Id any6 = listen(b, {.service_id = kService, .ipv4 = false});
    const Id other = listen(b, {.service_id = kService, .address = ipv4(9)});
    const Id exact = listen(b, {.service_id = kService, .address = b.gid});
    EXPECT_EQ(b.cm.listen({.service_id = kService, .address = b.gid}, nullptr, id), EADDRINUSE);
    const auto told = [&] {
        connect();
        network.run(kMs);
        return b.last(kConnectRequest).listener;
    };
    EXPECT_EQ(told(), exact);
    EXPECT_EQ(b.cm.destroy(network.now, exact), 0);
    EXPECT_EQ(told(), any);
    EXPECT_EQ(b.cm.destroy(network.now, any), 0);
    EXPECT_EQ(rejected_for(request(a, b)), RejReason::kInvalidServiceId);
    EXPECT_EQ(b.cm.destroy(network.now, any6), 0);
    EXPECT_EQ(b.cm.destroy(network.now, other), 0);
    EXPECT_EQ(b.cm.usage().listeners, 0u);
    listen(b);
}

TEST_F(CmConnect, WhoAsksBetweenTwoListenersIsAnsweredByTheNext) {
    const Id first = listen(b);
    EXPECT_EQ(b.cm.destroy(network.now, first), 0);
    connect();
    network.run(100 * kMs);  // it asks again, too
    EXPECT_EQ(a.count(kRejected), 0u);
    const Id second = listen(b);
    EXPECT_EQ(b.count(kConnectRequest), 0u);  // nothing is delivered by a call
    network.run(kMs);
    EXPECT_EQ(b.count(kConnectRequest), 1u);
    EXPECT_EQ(b.last(kConnectRequest).listener, second);
}

TEST_F(CmConnect, WhoAsksInAnotherPortSpaceIsAnsweredByTheNextListenerThere) {
    listen(b);
    Connect other = request(a, b);
    other.service_id += 1 << 16;
    connect(other);
    network.run(100 * kMs);
    EXPECT_EQ(a.count(kRejected), 0u);
    const Id second = listen(b, {.service_id = other.service_id});
    network.run(kMs);
    EXPECT_EQ(b.last(kConnectRequest).listener, second);
}

TEST_F(CmConnect, WhoAsksWhereNobodyListensAnyMoreIsRejectedBeforeLong) {
    EXPECT_EQ(b.cm.destroy(network.now, listen(b)), 0);
    connect();
    network.run(400 * kMs);
    EXPECT_EQ(a.count(kRejected), 0u);
    network.run(200 * kMs);
    EXPECT_EQ(a.last(kRejected).reason, RejReason::kInvalidServiceId);
    network.run(10 * kSecond);
    EXPECT_EQ(rejected_for(request(a, b)), RejReason::kInvalidServiceId);  // at once
}

TEST_F(CmConnect, WhatIsRejectedAndWhy) {
    EXPECT_EQ(rejected_for(request(a, b)), RejReason::kInvalidServiceId);
    listen(b);
    b.max_mtu = 3;
    Connect connect = request(a, b);
    connect.path_mtu = 4;
    EXPECT_EQ(rejected_for(connect), RejReason::kInvalidMtu);
    b.max_mtu = 5;
    connect = request(a, b);
    connect.addresses->src = ipv4(77);
    EXPECT_EQ(rejected_for(connect), RejReason::kInvalidGid);
    connect = request(a, b);
    connect.addresses->dst = ipv4(77);
    EXPECT_EQ(rejected_for(connect), RejReason::kInvalidGid);
    connect = request(a, b);
    connect.addresses.reset();
    const uint8_t wrong_version[] = {1};
    connect.private_data = wrong_version;
    EXPECT_EQ(rejected_for(connect), RejReason::kConsumerDefined);
    EXPECT_EQ(b.events.size(), 0u);
    EXPECT_EQ(b.counter(Counter::kRejectedByUs), 5u);

    // Which our own connect() does not send.
    Message req = a.sent[0];
    std::get<Req>(req.body).service = TransportService::kRd;
    network.inject(a.to(b), req);
    network.run(kMs);
    EXPECT_EQ(std::get<Rej>(b.sent.back().body).reason, RejReason::kInvalidTransportType);
    req = a.sent[0];
    std::get<Req>(req.body).primary.local_gid = ipv4(77);
    network.inject(a.to(b), req);
    network.run(kMs);
    EXPECT_EQ(std::get<Rej>(b.sent.back().body).reason, RejReason::kInvalidGid);
    req = a.sent[0];
    std::get<Req>(req.body).primary.remote_gid = ipv4(77);
    network.inject(a.to(b), req);
    network.run(kMs);
    EXPECT_EQ(std::get<Rej>(b.sent.back().body).reason, RejReason::kInvalidGid);
    EXPECT_EQ(b.cm.usage().connections, 0u);
}

TEST_F(CmConnect, WithinAHostAddressesMayBeOthers) {
    listen(a);
    Connect connect = request(a, a);
    const wire::Gid loopback{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF, 127, 0, 0, 1};
    connect.addresses = CmaHeader{.src_port = 1, .src = loopback, .dst = loopback};
    const Id id = this->connect(connect);
    network.run(kMs);
    EXPECT_EQ(a.last(kConnectRequest).addresses, connect.addresses);
    EXPECT_EQ(a.cm.accept(network.now, a.last(kConnectRequest).id, accept()), 0);
    network.run(kMs);
    EXPECT_EQ(a.cm.confirm(network.now, id, {}), 0);
    network.run(kMs);
    EXPECT_EQ(a.last(kEstablished).id, a.last(kConnectRequest).id);
    EXPECT_EQ(a.cm.disconnect(network.now, id, {}), 0);
    network.run(kSecond);
    EXPECT_EQ(a.count(kDisconnected), 2u);
    EXPECT_EQ(a.count(kTimeWaitExit), 2u);
}

TEST_F(CmConnect, TheProgramRejects) {
    listen(b);
    Id id = connect();
    network.run(kMs);
    const uint8_t ari[] = {7, 8};
    EXPECT_EQ(b.cm.reject(network.now, b.last(kConnectRequest).id,
                          {.reason = RejReason::kVendorOption, .ari = ari, .private_data = bytes("no")}),
              0);
    network.run(kMs);
    const Seen& seen = a.last(kRejected);
    EXPECT_EQ(seen.reason, RejReason::kVendorOption);
    EXPECT_EQ(seen.private_data.size(), 148u);
    EXPECT_TRUE(begins_with(seen.private_data, "no"));
    EXPECT_EQ(seen.rej->answered, Answered::kReq);
    EXPECT_EQ(seen.rej->ari_bytes, 2);
    EXPECT_EQ(seen.rej->ari[1], 8);

    id = connect();
    network.run(kMs);
    EXPECT_EQ(b.cm.accept(network.now, b.last(kConnectRequest).id, accept()), 0);
    network.run(kMs);
    EXPECT_EQ(a.cm.reject(network.now, id, {.private_data = bytes("after all")}), 0);
    network.run(kMs);
    EXPECT_EQ(b.last(kRejected).reason, RejReason::kConsumerDefined);
    EXPECT_EQ(b.last(kRejected).rej->answered, Answered::kRep);
    EXPECT_TRUE(begins_with(b.last(kRejected).private_data, "after all"));
}

TEST_F(CmConnect, TooLongOrTooLarge) {
    Id id;
    const std::string text(225, 'x');
    Connect req = request(a, b);
    req.private_data = bytes(text).first(57);
    EXPECT_EQ(a.cm.connect(network.now, req, nullptr, id), EINVAL);
    req.addresses.reset();
    req.private_data = bytes(text).first(93);
    EXPECT_EQ(a.cm.connect(network.now, req, nullptr, id), EINVAL);
    const auto refused = [&](auto&& change) {
        Connect connect = request(a, b);
        change(connect);
        return a.cm.connect(network.now, connect, nullptr, id) == EINVAL;
    };
    EXPECT_TRUE(refused([](Connect& c) { c.local.qpn = 1 << 24; }));
    EXPECT_TRUE(refused([](Connect& c) { c.local.starting_psn = 1 << 24; }));
    EXPECT_TRUE(refused([](Connect& c) { c.local.rnr_retry_count = 8; }));
    EXPECT_TRUE(refused([](Connect& c) { c.local.ece.vendor_id = 1 << 24; }));
    EXPECT_TRUE(refused([](Connect& c) { c.path_mtu = 0; }));
    EXPECT_TRUE(refused([](Connect& c) { c.path_mtu = 6; }));
    EXPECT_TRUE(refused([](Connect& c) { c.retry_count = 8; }));
    EXPECT_TRUE(refused([](Connect& c) { c.local_ack_timeout = 32; }));
    EXPECT_TRUE(refused([](Connect& c) { c.service = TransportService::kExtended; }));
    EXPECT_EQ(a.cm.usage().connections, 0u);

    listen(b);
    id = connect();
    network.run(kMs);
    const Id theirs = b.last(kConnectRequest).id;
    EXPECT_EQ(b.cm.accept(network.now, theirs, accept(text.substr(0, 197))), EINVAL);
    EXPECT_EQ(b.cm.reject(network.now, theirs, {.private_data = bytes(text).first(149)}), EINVAL);
    EXPECT_EQ(b.cm.reject(network.now, theirs, {.ari = bytes(text).first(73)}), EINVAL);
    EXPECT_EQ(b.cm.delay(network.now, theirs, 32, {}), EINVAL);
    EXPECT_EQ(b.cm.delay(network.now, theirs, 0, bytes(text).first(223)), EINVAL);
    EXPECT_EQ(b.cm.accept(network.now, theirs, accept(text.substr(0, 196))), 0);
    network.run(kMs);
    EXPECT_EQ(a.cm.confirm(network.now, id, bytes(text).first(225)), EINVAL);
    EXPECT_EQ(a.cm.confirm(network.now, id, bytes(text).first(224)), 0);
    EXPECT_EQ(a.cm.disconnect(network.now, id, bytes(text).first(221)), EINVAL);
    EXPECT_EQ(a.cm.disconnect(network.now, id, bytes(text).first(220)), 0);
    EXPECT_EQ(a.cm.set_context(Id{12345}, nullptr), EINVAL);
    EXPECT_EQ(a.cm.destroy(network.now, Id::kNone), EINVAL);
    EXPECT_FALSE(a.cm.state(Id::kNone));
}

// ---- Loss.

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

// The response comes again, and so does what it asks for.
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

// The peer was told to wait, so it would repeat the REP after 20 s only.
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

// What the QP receives says the same.
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

// The peer was told to wait, so it would ask again after 20 s only.
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

    // And if they are all lost, it is told when it asks.
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
    EXPECT_EQ(a.cm.destroy(network.now, id), 0);  // and it still goes out again
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

// A program may take minutes to answer: the MRA makes the peer wait, and cheaply.
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

// A request that its program has given up is taken back; the response to one that is unknown is rejected at once.
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

// ---- The same QP again.

// b has restarted, and connects from the number that its QP had before.
TEST_F(CmConnect, ARestartedPeerIsLetInAgain) {
    listen(b);
    establish();
    const Id old = b.last(kEstablished).id;
    network.hosts[0].reset();
    network.hosts.erase(network.hosts.begin());
    Host& again = network.add(ipv4(1));
    Connect request = this->request(again, b);
    request.local.qpn = b.last(kConnectRequest).req->qpn;
    Id id;
    EXPECT_EQ(again.cm.connect(network.now, request, nullptr, id), 0);
    network.run(100 * kMs);
    EXPECT_EQ(again.last(kRejected).reason, RejReason::kStaleConnection);
    EXPECT_EQ(b.last(kDisconnected).id, old);
    EXPECT_EQ(b.last(kDisconnected).reason, RejReason::kStaleConnection);
    EXPECT_EQ(b.counter(Counter::kStaleProbes), 1u);
    EXPECT_EQ(again.cm.connect(network.now, request, nullptr, id), 0);
    network.run(kMs);
    EXPECT_EQ(b.count(kConnectRequest), 2u);
}

TEST_F(CmConnect, TheSameQpConnectsAgainAfterADisconnect) {
    listen(b);
    const Id id = establish();
    const uint32_t qpn = b.last(kConnectRequest).req->qpn;
    EXPECT_EQ(a.cm.disconnect(network.now, id, {}), 0);
    network.run(kMs);
    Connect again = request(a, b);
    again.local.qpn = qpn;
    connect(again);
    network.run(kMs);
    EXPECT_EQ(b.count(kConnectRequest), 2u);
    EXPECT_EQ(a.count(kRejected), 0u);
}

// The peer's program has restarted and has not said so: its new QP has the number of one that is connected to us.
TEST_F(CmConnect, AResponseWithAQpThatIsConnectedAlready) {
    listen(b);
    const Id old = establish();
    const uint32_t qpn = a.last(kConnectResponse).rep->qpn;
    // b forgets.
    const wire::Gid gid = b.gid;
    network.hosts.pop_back();
    Host& again = network.add(gid);
    listen(again);
    Id id = Id::kNone;
    Connect request = this->request(a, again);
    EXPECT_EQ(a.cm.connect(network.now, request, nullptr, id), 0);
    network.run(kMs);
    Accept reply = accept();
    reply.local.qpn = qpn;
    EXPECT_EQ(again.cm.accept(network.now, again.last(kConnectRequest).id, reply), 0);
    network.run(kMs);
    EXPECT_EQ(a.last(kRejected).id, id);
    EXPECT_EQ(a.last(kRejected).reason, RejReason::kStaleConnection);
    EXPECT_FALSE(a.last(kRejected).rej);
    EXPECT_EQ(a.cm.state(id), State::kClosed);
    EXPECT_EQ(again.last(kRejected).reason, RejReason::kStaleConnection);
    // And a asks whether the old one is known.
    EXPECT_EQ(a.last(kDisconnected).id, old);
    EXPECT_EQ(a.last(kDisconnected).reason, RejReason::kStaleConnection);
    EXPECT_EQ(a.count(kConnectResponse), 1u);
}

// ---- Service ID resolution.

TEST_F(CmConnect, Sidr) {
    const uint64_t service = service_id_of(0x0111, 7174);
    const Id listener = listen(b, {.service_id = service});
    SidrRequest request{.path = a.to(b),
                        .service_id = service,
                        .addresses = CmaHeader{.src_port = 5, .src = a.gid, .dst = b.gid},
                        .private_data = bytes("who")};
    Id id;
    lose<SidrReq>(1);
    const uint64_t start = network.now;
    EXPECT_EQ(a.cm.sidr_request(network.now, request, &a, id), 0);
    EXPECT_EQ(a.cm.state(id), State::kSidrReqSent);
    network.run(20 * kMs);
    const Seen asked = b.last(kSidrRequest);
    EXPECT_LE(asked.at_ns - start, 18 * kMs);
    EXPECT_EQ(asked.listener, listener);
    EXPECT_EQ(asked.addresses, request.addresses);
    EXPECT_EQ(asked.private_data.size(), 180u);
    EXPECT_TRUE(begins_with(asked.private_data, "who"));
    EXPECT_EQ(b.cm.accept(network.now, asked.id, accept()), EINVAL);
    lose<SidrRep>(2);
    EXPECT_EQ(
        b.cm.sidr_reply(
            network.now, asked.id,
            {.qpn = 0x123456, .qkey = 0x1234567, .ece = {.vendor_id = 3, .options = 4}, .private_data = bytes("me")}),
        0);
    EXPECT_EQ(b.cm.sidr_reply(network.now, asked.id, {}), EINVAL);
    EXPECT_EQ(b.cm.destroy(network.now, asked.id), 0);
    network.run(kSecond);
    EXPECT_EQ(b.count(kSidrRequest), 1u);  // a duplicate is answered without the program
    const Seen& answer = a.last(kSidrResponse);
    EXPECT_EQ(answer.id, id);
    EXPECT_EQ(answer.sidr_rep->status, SidrStatus::kValid);
    EXPECT_EQ(answer.sidr_rep->qpn, 0x123456u);
    EXPECT_EQ(answer.sidr_rep->qkey, 0x1234567u);
    EXPECT_EQ(answer.sidr_rep->service_id, service);
    EXPECT_EQ(answer.sidr_rep->ece, (Ece{.vendor_id = 3, .options = 4}));
    EXPECT_TRUE(begins_with(answer.private_data, "me"));
    EXPECT_EQ(a.cm.state(id), State::kClosed);
    EXPECT_EQ(a.cm.destroy(network.now, id), 0);
    network.run(100 * kSecond);
    EXPECT_EQ(a.cm.usage().lingering + b.cm.usage().lingering + a.cm.usage().connections + b.cm.usage().connections,
              0u);
}

TEST_F(CmConnect, SidrRefusals) {
    const uint64_t service = service_id_of(0x0111, 7174);
    const SidrRequest request{
        .path = a.to(b), .service_id = service, .addresses = CmaHeader{.src_port = 5, .src = a.gid, .dst = b.gid}};
    Id id;
    EXPECT_EQ(a.cm.sidr_request(network.now, request, nullptr, id), 0);
    network.run(kMs);
    EXPECT_EQ(a.last(kSidrResponse).sidr_rep->status, SidrStatus::kUnsupported);

    listen(b, {.service_id = service});
    EXPECT_EQ(a.cm.sidr_request(network.now, request, nullptr, id), 0);
    network.run(kMs);
    EXPECT_EQ(b.cm.destroy(network.now, b.last(kSidrRequest).id), 0);
    network.run(kMs);
    EXPECT_EQ(a.last(kSidrResponse).sidr_rep->status, SidrStatus::kReject);

    SidrRequest liar = request;
    liar.addresses->src = ipv4(77);
    EXPECT_EQ(a.cm.sidr_request(network.now, liar, nullptr, id), 0);
    network.run(kMs);
    EXPECT_EQ(a.last(kSidrResponse).sidr_rep->status, SidrStatus::kReject);
    EXPECT_EQ(b.count(kSidrRequest), 1u);

    const std::string text(181, 'x');
    SidrRequest longer = request;
    longer.private_data = bytes(text);
    EXPECT_EQ(a.cm.sidr_request(network.now, longer, nullptr, id), EINVAL);

    network.weather.cut = true;
    EXPECT_EQ(a.cm.sidr_request(network.now, request, nullptr, id), 0);
    network.run(50 * kSecond);
    EXPECT_EQ(a.last(kUnreachable).id, id);
}

// ---- Bounds.

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
    // The third asks again, and there is room by then.
    EXPECT_EQ(b.cm.destroy(network.now, b.last(kConnectRequest).id), 0);
    network.run(100 * kMs);
    EXPECT_EQ(b.count(kConnectRequest), 3u);
}

// A client that connects and disconnects 1000 times a second beside 2000 connections that stay, with 1 % loss: every
// connect succeeds, and what is kept of those that are gone is a second's worth.
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
    EXPECT_GE(established, kConnects - kConnects / 100);  // a DREQ may overtake an RTU that is lost
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

// A server that accepts whatever comes: requests whose sender says no more do not fill its tables.
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
    // What is established makes room, and so does what ends.
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

// A program that never answers: its listener is not closed by what it has forgotten.
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
        network.weather.cut = true;  // and its peer dies
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
    // Who is answered makes room, whatever the answer.
    EXPECT_EQ(b.cm.accept(network.now, b.events[0].id, {}), 0);
    EXPECT_EQ(b.cm.reject(network.now, b.events[1].id, {}), 0);
    EXPECT_EQ(b.cm.destroy(network.now, b.events[2].id), 0);
    network.run(kSecond);
    EXPECT_EQ(b.count(kConnectRequest), 11u);
    // So does who is told, even if the program then forgets it; but not for ever among those that are half open.
    EXPECT_EQ(b.cm.taken(b.last(kConnectRequest).id), 0);
    EXPECT_EQ(b.cm.taken(b.last(kConnectRequest).id), 0);
    EXPECT_EQ(b.cm.taken(listener), EINVAL);
    network.run(5 * kSecond);
    EXPECT_EQ(b.count(kConnectRequest), 12u);
    // And without its listener a request is still one.
    EXPECT_EQ(b.cm.destroy(network.now, listener), 0);
    EXPECT_EQ(b.cm.accept(network.now, b.last(kConnectRequest).id, {}), 0);
}

}  // namespace
}  // namespace rove::cm
