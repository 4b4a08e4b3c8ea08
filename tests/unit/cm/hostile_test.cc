// SPDX-License-Identifier: Apache-2.0
// Tests packets from strangers: floods, forgeries and noise. They must end no other host's connection, memory stays
// bounded, and legitimate hosts can still connect.
#include <gtest/gtest.h>

#include "network.h"

namespace rove::cm {
namespace {

using namespace test;
using enum EventKind;

class CmHostile : public testing::Test {
  protected:
    void SetUp() override {
        ASSERT_EQ(b.cm.listen({.service_id = kService, .cma_header = false}, nullptr, listener), 0);
    }
    Connect request(const Host& from, uint32_t qpn) {
        Connect connect{.path = from.to(b), .service_id = kService};
        connect.local = {.qpn = qpn, .ca_guid = 0xC1};
        return connect;
    }
    // Returns the id at a; the id at b is in its last request.
    Id establish(uint32_t qpn = 100) {
        Id id;
        EXPECT_EQ(a.cm.connect(network.now, request(a, qpn), nullptr, id), 0);
        network.run(kMs);
        EXPECT_EQ(b.cm.accept(network.now, b.last(kConnectRequest).id, {.local = {.qpn = qpn + 1000}}), 0);
        network.run(kMs);
        EXPECT_EQ(a.cm.confirm(network.now, id, {}), 0);
        network.run(kMs);
        return id;
    }
    // The communication ids of the connection, which only its two ends know.
    uint32_t id_of_a() const { return b.last(kConnectRequest).req->local_comm_id; }
    uint32_t id_of_b() const { return a.last(kConnectResponse).rep->local_comm_id; }
    void forge(const wire::Gid& from, auto body, uint64_t transaction_id = 1) {
        Path path = a.to(b);
        path.flow.src = from;
        network.inject(path, Message{transaction_id, body});
        network.run(kMs);
    }
    Req forged_req(const wire::Gid& from, uint32_t comm_id, uint32_t qpn) {
        Req req{.local_comm_id = comm_id,
                .service_id = kService,
                .ca_guid = 0xC1,
                .qpn = qpn,
                .local_response_timeout = 31,
                .path_mtu = 3,
                .max_cm_retries = 15};
        req.primary.local_gid = from;
        req.primary.remote_gid = b.gid;
        return req;
    }
    bool both_established(Id id) {
        return a.cm.state(id) == State::kEstablished && b.cm.state(b.last(kEstablished).id) == State::kEstablished;
    }

    Network network;
    Host& a = network.add(ipv4(1));
    Host& b = network.add(ipv4(2));
    Host& c = network.add(ipv4(3));
    Id listener;
};

TEST_F(CmHostile, ADisconnectNeedsAddressBothIdsAndQpn) {
    const Id id = establish();
    const Dreq right{.local_comm_id = id_of_a(), .remote_comm_id = id_of_b(), .remote_qpn = 1100};
    Dreq wrong = right;
    wrong.local_comm_id ^= 1;
    forge(a.gid, wrong);
    wrong = right;
    wrong.remote_comm_id ^= 1;
    forge(a.gid, wrong);
    EXPECT_EQ(b.counter(Counter::kDropUnknownId), 2u);
    forge(ipv4(66), right);
    EXPECT_EQ(b.counter(Counter::kDropSource), 1u);
    wrong = right;
    wrong.remote_qpn ^= 1;
    forge(a.gid, wrong);
    EXPECT_EQ(b.counter(Counter::kDropQpn), 1u);
    EXPECT_TRUE(both_established(id));
    forge(a.gid, right);
    EXPECT_EQ(b.count(kDisconnected), 1u);
}

TEST_F(CmHostile, ForgedRejectsAndReplies) {
    const Id id = establish();
    forge(a.gid,
          Rej{.local_comm_id = id_of_a() ^ 1, .remote_comm_id = id_of_b(), .reason = RejReason::kConsumerDefined});
    forge(ipv4(66),
          Rej{.local_comm_id = id_of_a(), .remote_comm_id = id_of_b(), .reason = RejReason::kConsumerDefined});
    forge(a.gid, Drep{.local_comm_id = id_of_a(), .remote_comm_id = id_of_b()});  // no DREQ was sent
    EXPECT_TRUE(both_established(id));
    EXPECT_EQ(b.counter(Counter::kDropState), 1u);

    // While a request is in flight, its transaction id is the only value that an attacker cannot guess.
    Id under_way;
    network.filter = [](const Path&, const Mad&) { return false; };
    EXPECT_EQ(a.cm.connect(network.now, request(a, 101), nullptr, under_way), 0);
    const Message req = a.sent.back();
    const uint32_t comm_id = std::get<Req>(req.body).local_comm_id;
    const auto forge_to_a = [&](const wire::Gid& from, auto body, uint64_t transaction_id) {
        Path path = b.to(a);
        path.flow.src = from;
        network.inject(path, Message{transaction_id, body});
        network.run(kMs);
    };
    const Rep rep{.local_comm_id = 5, .remote_comm_id = comm_id, .qpn = 7};
    const Rej rej{.remote_comm_id = comm_id, .reason = RejReason::kInvalidServiceId};
    const Mra mra{.local_comm_id = 5, .remote_comm_id = comm_id, .service_timeout = 24};
    const uint64_t deadline = a.cm.next_deadline();
    forge_to_a(b.gid, rep, req.transaction_id ^ 1);
    forge_to_a(b.gid, rej, req.transaction_id ^ 1);
    forge_to_a(b.gid, mra, req.transaction_id ^ 1);
    forge_to_a(ipv4(66), rep, req.transaction_id);
    forge_to_a(ipv4(66), rej, req.transaction_id);
    forge_to_a(ipv4(66), mra, req.transaction_id);
    EXPECT_EQ(a.cm.next_deadline(), deadline);
    EXPECT_EQ(a.cm.state(under_way), State::kReqSent);
    forge_to_a(b.gid, rep, req.transaction_id);
    EXPECT_EQ(a.cm.state(under_way), State::kRepReceived);
}

// A REQ that has the QP of a connection and a new id means that the peer has restarted. b asks the peer whether it has.
TEST_F(CmHostile, AForgedRequestEndsNoConnection) {
    const Id id = establish();
    for (uint32_t i = 0; i < 1000; ++i) forge(a.gid, forged_req(a.gid, i, 100));
    EXPECT_TRUE(both_established(id));
    EXPECT_EQ(b.count(kConnectRequest), 1u);
    EXPECT_EQ(b.counter(Counter::kStaleProbes), 1u);
    EXPECT_EQ(a.counter(Counter::kDropQpn), 1u);
    network.run(kSecond);
    forge(a.gid, forged_req(a.gid, 1000, 100));
    EXPECT_EQ(b.counter(Counter::kStaleProbes), 2u);
    EXPECT_TRUE(both_established(id));
    // A forged answer with a's address lacks b's id.
    forge(a.gid, Drep{.local_comm_id = id_of_a(), .remote_comm_id = id_of_b() ^ 1});
    forge(ipv4(66), Drep{.local_comm_id = id_of_a(), .remote_comm_id = id_of_b()});
    EXPECT_TRUE(both_established(id));
}

// A stranger cannot learn whether an id exists, because the answers for known and unknown ids are alike.
TEST_F(CmHostile, NoOracle) {
    establish();
    const auto answer = [&](auto body) {
        const size_t sent = b.sent.size();
        forge(ipv4(66), body);
        EXPECT_EQ(b.sent.size(), sent + 1);
        return b.sent.back().body.index();
    };
    EXPECT_EQ(answer(Dreq{.local_comm_id = 1, .remote_comm_id = id_of_b()}),
              answer(Dreq{.local_comm_id = 1, .remote_comm_id = id_of_b() ^ 1}));
    EXPECT_EQ(answer(Rep{.local_comm_id = 1, .remote_comm_id = id_of_b()}),
              answer(Rep{.local_comm_id = 1, .remote_comm_id = id_of_b() ^ 1}));
}

// A program that accepts requests in order, and destroys the ids of ended connections.
struct Server {
    explicit Server(Network& network, Host& host) : network(network), host(host) {
        host.on_event = [this](const Event& event) {
            if (event.kind == kConnectRequest) to_accept.push_back(event.id);
            if (event.kind == kRejected || event.kind == kUnreachable || event.kind == kTimeWaitExit)
                to_destroy.push_back(event.id);
        };
    }
    void work(size_t at_most) {
        host.events.clear();
        host.sent.clear();
        for (; at_most > 0 && !to_accept.empty(); --at_most) {
            EXPECT_LE(host.cm.accept(network.now, to_accept.front(), {.local = {.qpn = ++qpn & 0xFFFFFF}}), EINVAL);
            to_accept.erase(to_accept.begin());
        }
        for (const Id id : to_destroy) EXPECT_EQ(host.cm.destroy(network.now, id), 0);
        to_destroy.clear();
    }
    Network& network;
    Host& host;
    std::vector<Id> to_accept, to_destroy;
    uint32_t qpn = 5000;
};

// One host floods b with its own address while another host connects. The program of b accepts 20 requests per
// millisecond.
TEST_F(CmHostile, AFloodOfRequests) {
    const Id id = establish();
    Server server(network, b);
    const wire::Gid flooder = ipv4(66);
    Path back = b.to(a);
    back.flow.dst = flooder;
    Id legitimate;
    size_t connected = 0;
    c.on_event = [&](const Event& event) { connected += event.kind == kConnectResponse; };
    uint32_t comm_id = 0;
    for (int rounds = 0; rounds < 300; ++rounds) {
        for (int i = 0; i < 200; ++i, ++comm_id)
            b.cm.receive(network.now, back, 5, build({comm_id, forged_req(flooder, comm_id, comm_id & 0xFFFFFF)}));
        if (rounds % 30 == 0) {
            EXPECT_EQ(c.cm.connect(network.now, request(c, static_cast<uint32_t>(rounds) + 1), nullptr, legitimate), 0);
        }
        network.run(kMs);
        server.work(20);
        EXPECT_LE(server.to_accept.size(), 1024u);
    }
    for (int i = 0; i < 100; ++i) network.run(kMs), server.work(20);
    EXPECT_EQ(connected, 10u);
    EXPECT_GT(b.counter(Counter::kDropBacklog), 50'000u);
    EXPECT_EQ(a.cm.state(id), State::kEstablished);
    EXPECT_EQ(a.count(kDisconnected), 0u);
    // After the flood, its state disappears.
    c.on_event = nullptr;
    for (int i = 0; i < 200; ++i) network.run(kSecond), server.work(10'000);
    EXPECT_LE(b.cm.usage().connections, 1u + 10u);
    EXPECT_EQ(b.cm.usage().lingering, 0u);
}

TEST_F(CmHostile, FloodsThatFindNothing) {
    const Id id = establish();
    const size_t events = b.events.size();
    const auto usage = b.cm.usage();
    Random random(7);
    for (uint32_t i = 0; i < 100'000; ++i) {
        Path path = b.to(a);
        path.flow.dst = ipv4(static_cast<uint8_t>(random.below(256)));
        const auto word = [&] { return static_cast<uint32_t>(random.next()); };
        Message message{random.next(), {}};
        switch (random.below(9)) {
            case 0:
                message.body = forged_req(path.flow.dst, word(), word() & 0xFFFFFF);
                std::get<Req>(message.body).service_id = random.next();
                break;
            case 1:
                message.body = Rep{.local_comm_id = word(), .remote_comm_id = word()};
                break;
            case 2:
                message.body = Rtu{.local_comm_id = word(), .remote_comm_id = word()};
                break;
            case 3:
                message.body = Dreq{.local_comm_id = word(), .remote_comm_id = word(), .remote_qpn = 1100};
                break;
            case 4:
                message.body = Drep{.local_comm_id = word(), .remote_comm_id = word()};
                break;
            case 5:
                message.body = Rej{.local_comm_id = word(), .remote_comm_id = word()};
                break;
            case 6:
                message.body = Mra{.local_comm_id = word(), .remote_comm_id = word()};
                break;
            case 7:
                message.body = SidrReq{.request_id = word(), .service_id = random.next()};
                break;
            case 8:
                message.body = Lap{.local_comm_id = word(), .remote_comm_id = word()};
                break;
        }
        b.cm.receive(network.now, path, 5, build(message));
        if (i % 1000 == 0) b.sent.clear();
    }
    EXPECT_EQ(b.events.size(), events);
    EXPECT_EQ(b.cm.usage().connections, usage.connections);
    EXPECT_EQ(b.cm.usage().lingering, usage.lingering);
    EXPECT_TRUE(both_established(id));
}

// Sends random bytes, and messages with changed bits.
TEST_F(CmHostile, Noise) {
    const Id id = establish();
    Random random(9);
    std::vector<uint8_t> bytes;
    for (int i = 0; i < 100'000; ++i) {
        if (random.chance(0.5)) {
            bytes.resize(random.below(300));
            for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random.next());
        } else {
            const Mad mad = build(random.pick(a.sent[0], b.sent[0], a.sent.back()));
            bytes.assign(mad.begin(), mad.end());
            bytes[random.below(bytes.size())] ^= static_cast<uint8_t>(1 + random.below(255));
        }
        Path path = b.to(a);
        path.flow.dst = ipv4(static_cast<uint8_t>(4 + random.below(250)));
        b.cm.receive(network.now, path, 5, bytes);
    }
    EXPECT_TRUE(both_established(id));
    EXPECT_EQ(b.count(kConnectRequest), 1u);  // the GIDs in the REQ differ from the sender's
    uint64_t dropped = 0;
    for (size_t i = static_cast<size_t>(Counter::kDropLength); i <= static_cast<size_t>(Counter::kDropAttribute); ++i)
        dropped += b.counter(Counter{static_cast<uint8_t>(i)});
    EXPECT_GT(dropped, 50'000u);
}

TEST_F(CmHostile, ClassPortInfoIsAnsweredAndItsAnswerIsNot) {
    forge(ipv4(66), ClassPortInfo{});
    EXPECT_EQ(b.sent.back(), (Message{1, ClassPortInfo{.response = true}}));
    const size_t sent = b.sent.size();
    forge(ipv4(66), ClassPortInfo{.response = true});
    EXPECT_EQ(b.sent.size(), sent);
}

// The peer's requests for long timers are bounded: a response timeout of 2.4 hours becomes 4.3 s.
TEST_F(CmHostile, APeersTimeoutsAreBounded) {
    forge(a.gid, forged_req(a.gid, 77, 88));
    const Id id = b.last(kConnectRequest).id;
    EXPECT_EQ(b.cm.accept(network.now, id, {}), 0);
    network.weather.cut = true;
    network.run(45 * kSecond);
    EXPECT_EQ(b.last(kUnreachable).id, id);
}

}  // namespace
}  // namespace rove::cm
