// SPDX-License-Identifier: Apache-2.0
// Tests two hosts that connect: each receives what the other sent, and a refused request has the right reason.
#include <cerrno>

#include "connect_fixture.h"

namespace rove::cm {
namespace {

using namespace test;
using enum EventKind;

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

// For XRC, the field of the EE context has the number of the TGT QP.
TEST_F(CmConnect, XrcEndsLearnEachOthersQps) {
    listen(b);
    Connect req = request(a, b);
    req.service = TransportService::kExtended;
    const Id id = connect(req);
    network.run(kMs);
    const Seen& asked = b.last(kConnectRequest);
    EXPECT_EQ(asked.req->service, TransportService::kExtended);
    EXPECT_EQ(asked.req->extended_service, kXrc);
    EXPECT_EQ(asked.req->qpn, req.local.qpn);
    const Accept yes = accept("welcome");
    EXPECT_EQ(b.cm.accept(network.now, asked.id, yes), 0);
    network.run(kMs);
    const Rep& rep = std::get<Rep>(b.sent.back().body);
    EXPECT_EQ(rep.eecn, yes.local.qpn);
    EXPECT_EQ(rep.qpn, 0u);
    EXPECT_TRUE(rep.srq);
    EXPECT_EQ(a.last(kConnectResponse).rep->qpn, yes.local.qpn);
    EXPECT_EQ(a.cm.confirm(network.now, id, {}), 0);
    network.run(kMs);
    EXPECT_EQ(a.cm.disconnect(network.now, id, {}), 0);
    network.run(kMs);
    EXPECT_EQ(b.last(kDisconnected).id, asked.id);
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
    network.run(100 * kMs);  // it also retransmits the request
    EXPECT_EQ(a.count(kRejected), 0u);
    const Id second = listen(b);
    EXPECT_EQ(b.count(kConnectRequest), 0u);  // no call delivers events
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
    EXPECT_EQ(rejected_for(request(a, b)), RejReason::kInvalidServiceId);  // immediately
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

    // Our own connect() does not send the next requests.
    Message req = a.sent[0];
    std::get<Req>(req.body).service = TransportService::kRd;
    network.inject(a.to(b), req);
    network.run(kMs);
    EXPECT_EQ(std::get<Rej>(b.sent.back().body).reason, RejReason::kInvalidTransportType);
    std::get<Req>(req.body).service = TransportService::kExtended;  // another extended service than XRC
    std::get<Req>(req.body).extended_service = 2;
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
    EXPECT_TRUE(refused([](Connect& c) { c.service = TransportService::kRd; }));
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

// ---- The same QP connects a second time.

// b has restarted, and connects with the QP number that it used before.
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

// The program of the peer has restarted without a message. Its new QP has the same number as a QP that is still
// connected to us.
TEST_F(CmConnect, AResponseWithAQpThatIsConnectedAlready) {
    listen(b);
    const Id old = establish();
    const uint32_t qpn = a.last(kConnectResponse).rep->qpn;
    // b loses its state.
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
    // a also asks whether b still knows the old connection.
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

}  // namespace
}  // namespace rove::cm
