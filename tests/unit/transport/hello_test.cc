// SPDX-License-Identifier: Apache-2.0
// HELLO: two QPs agree on mp, whatever is lost and whichever asks first.
#include <gtest/gtest.h>

#include <cstring>

#include "transport/mp/peer_capability_cache.h"
#include "transport/virtual_network.h"

namespace rove::test {
namespace {

using HelloAnswer = transport::HelloState::Answer;
using Decision = transport::HelloState::Decision;
using transport::Mode;
using transport::PeerCapabilityCache;

transport::Config with(Mode mode) {
    transport::Config config;
    config.mode = mode;
    return config;
}

constexpr wire::Gid kStranger{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF, 10, 0, 0, 77};

class HelloTest : public testing::TestWithParam<Mode> {
  protected:
    QueuePair& made(uint32_t host, ibv_qp_type type = IBV_QPT_RC) {
        QpOptions options;
        options.type = type;
        return net.host(host).create(options);
    }
    transport::HelloState::RemoteQp party(uint32_t host, const QueuePair& qp) { return {qp.qpn, net.host(host).gid()}; }
    bool has_promised(QueuePair& qp, const transport::HelloState::RemoteQp& to) {
        return qp.hello.promised(to) != nullptr;
    }
    bool confirmed(QueuePair& qp, const transport::HelloState::RemoteQp& to) {
        return has_promised(qp, to) && qp.hello.promised(to)->confirmed;
    }
    // Asks like a QP that is about to be connected.
    void ask(uint32_t from, QueuePair& qp, const QueuePair& about, uint32_t nonce = 77,
             PeerCapabilityCache* peers = nullptr) {
        const Path path = net.host(from).path_to(net.host(1 - from));
        qp.hello.begin(party(1 - from, about), peers, nonce);
        net.host(from).engine.ask_multipath(qp, path, about.qpn, nonce, net.now());
        net.run_for(100'000);
    }
    // Sends a forged HELLO to `to`, a QP of host 1, in the name of `from`, which may have an unknown address.
    void forge(const QueuePair& to, const transport::HelloState::RemoteQp& from, bool answer = false,
               uint32_t nonce = 5) {
        Path path = net.host(0).path_to(net.host(1));
        path.flow.src = from.gid;
        path.headers = wire::make_template(path.flow);
        wire::Headers h;
        h.bth.opcode = wire::kOpcodeHello;
        h.bth.dest_qpn = to.qpn;
        h.hello = {.version = wire::kMpVersion, .answer = answer, .mp = true, .qpn = from.qpn, .nonce = nonce};
        net.inject(1, path, h, {});
        net.run_for(100'000);
    }
    // Returns a QP of host 1 that is connected to a QP of host 0, a silent standard endpoint.
    QueuePair& connected_to(const QueuePair& peer, ibv_qp_state state = IBV_QPS_RTS) {
        QueuePair& qp = made(1);
        net.host(1).bring_up(qp, {}, net.host(1).path_to(net.host(0)), peer.qpn, 1, net.now());
        qp.hello.begin(party(0, peer), &peers_, 78);
        qp.hello.decision = Decision::kRc;
        peers_.record_timeout(net.host(0).gid(), net.now());
        if (state == IBV_QPS_ERR) net.host(1).engine.set_state(qp, IBV_QPS_ERR, net.now());
        return qp;
    }
    PeerCapabilityCache peers_;
    Network net{1, 2, with(GetParam())};
};

INSTANTIATE_TEST_SUITE_P(Modes, HelloTest, testing::Values(Mode::kAuto, Mode::kMp),
                         [](const auto& info) { return info.param == Mode::kAuto ? "auto" : "mp"; });

TEST_P(HelloTest, TwoThatCanAgree) {
    QueuePair& a = made(0);
    QueuePair& b = made(1);
    ask(0, a, b);
    EXPECT_EQ(a.hello.answer, HelloAnswer::kYes);
    EXPECT_TRUE(confirmed(b, party(0, a)));
    EXPECT_FALSE(has_promised(b, {a.qpn + 1, net.host(0).gid()}));
    EXPECT_EQ(b.hello.answer, HelloAnswer::kNone);
    EXPECT_EQ(net.trace.size(), 4u) << "a question, its answer, and the same in return";
    ask(1, b, a);
    EXPECT_EQ(b.hello.answer, HelloAnswer::kYes);
    EXPECT_EQ(net.trace.size(), 6u);
}

TEST_P(HelloTest, WhoHasChosenSaysWhat) {
    QueuePair& a = made(0);
    QueuePair& b = made(1);
    b.hello.decision = Decision::kRc;
    ask(0, a, b);
    EXPECT_EQ(a.hello.answer, HelloAnswer::kNo);
    EXPECT_FALSE(has_promised(b, party(0, a)));
    b.hello.decision = Decision::kMp;
    ask(0, a, b);
    EXPECT_EQ(a.hello.answer, HelloAnswer::kYes);
}

// A QP knows its peer's limits and a round trip before its first packet, also if the peer was the one that asked.
TEST_P(HelloTest, TellsWhatTheReceiverCanTake) {
    QueuePair& a = made(0);
    QueuePair& b = made(1);
    ask(0, a, b);
    EXPECT_EQ(a.hello.peer_capacity.limits.reorder_packets, 8064);
    const uint64_t took_ns = a.hello.peer_capacity.round_trip_ns;
    EXPECT_GT(took_ns, 0u);
    EXPECT_LT(took_ns, 100'000u);
    EXPECT_EQ(b.hello.peer_capacity.limits.reorder_packets, 0) << "b has not said to whom it will be connected";
    b.hello.begin(party(0, a), nullptr, 78);
    EXPECT_EQ(b.hello.peer_capacity.limits.reorder_packets, 8064) << "a has answered b's question";
    EXPECT_GT(b.hello.peer_capacity.round_trip_ns, 0u);
    b.hello.begin({a.qpn + 1, net.host(0).gid()}, nullptr, 79);
    EXPECT_EQ(b.hello.peer_capacity.limits, wire::ReceiveLimits{});
    b.hello.begin(party(0, a), nullptr, 80);
    net.host(1).engine.set_state(b, IBV_QPS_RESET, net.now());
    EXPECT_EQ(b.hello.peer_capacity.limits, wire::ReceiveLimits{});
    EXPECT_EQ(b.hello.peer_capacity.round_trip_ns, 0u);
}

// An answer to the third question measures from the third.
TEST_P(HelloTest, TheEchoTellsWhichQuestionIsAnswered) {
    QueuePair& a = made(0);
    QueuePair& b = made(1);
    net.filter = [](const Observed& p) { return p.from == 0 ? Verdict::kDrop : Verdict::kPass; };
    ask(0, a, b, 77);
    net.run_for(5'000'000);
    const Path path = net.host(0).path_to(net.host(1));
    net.host(0).engine.ask_multipath(a, path, b.qpn, 77, net.now());
    net.run_for(5'000'000);
    net.filter = nullptr;
    net.host(0).engine.ask_multipath(a, path, b.qpn, 77, net.now());
    net.run_for(100'000);
    ASSERT_EQ(a.hello.answer, HelloAnswer::kYes);
    EXPECT_GT(a.hello.peer_capacity.round_trip_ns, 0u);
    EXPECT_LT(a.hello.peer_capacity.round_trip_ns, 100'000u);
}

// No answer can claim a round trip that began before the question.
TEST_P(HelloTest, AFalseEchoMeasuresNothing) {
    QueuePair& a = made(0);
    QueuePair& b = made(1);
    for (const uint32_t echo : {0u, 1u, 0x7FFFFFFFu, UINT32_MAX}) {
        net.filter = [](const Observed& p) { return p.from == 1 ? Verdict::kDrop : Verdict::kPass; };
        ask(1, b, a, 78);
        Path path = net.host(0).path_to(net.host(1));
        wire::Headers h;
        h.bth.opcode = wire::kOpcodeHello;
        h.bth.dest_qpn = b.qpn;
        h.hello = {.version = wire::kMpVersion,
                   .answer = true,
                   .mp = true,
                   .qpn = a.qpn,
                   .nonce = 78,
                   .limits = {.reorder_packets = UINT16_MAX, .early_kib = 7},
                   .tick = 1,
                   .echo_tick = echo};
        net.inject(1, path, h, {});
        net.run_for(100'000);
        EXPECT_EQ(b.hello.answer, HelloAnswer::kYes);
        EXPECT_EQ(b.hello.peer_capacity.limits.reorder_packets, UINT16_MAX);
        EXPECT_EQ(b.hello.peer_capacity.limits.early_kib, 7);
        EXPECT_EQ(b.hello.peer_capacity.round_trip_ns, 0u) << echo;
    }
}

// Peers of different versions speak rc, whichever asks.
TEST_P(HelloTest, AnotherVersionIsAnsweredNo) {
    QueuePair& a = made(0);
    QueuePair& b = made(1);
    uint32_t nonce = 5;
    for (const uint8_t version : {uint8_t{0}, uint8_t{1}, uint8_t{3}, uint8_t{255}}) {
        net.trace.clear();
        wire::Headers h;
        h.bth.opcode = wire::kOpcodeHello;
        h.bth.dest_qpn = b.qpn;
        h.hello = {.version = version, .answer = false, .mp = true, .qpn = a.qpn, .nonce = ++nonce, .tick = 9};
        const std::vector<uint8_t> later(version, 0x5A);  // fields that a later version may have
        net.inject(1, net.host(0).path_to(net.host(1)), h, later);
        net.run_for(100'000);
        ASSERT_EQ(net.trace.size(), 1u) << int{version};
        const wire::Hello& answer = net.trace.back().headers.hello;
        EXPECT_TRUE(answer.answer && !answer.mp);
        EXPECT_EQ(answer.version, wire::kMpVersion);
        EXPECT_EQ(answer.nonce, nonce);
        EXPECT_EQ(answer.echo_tick, 9u);
        EXPECT_FALSE(has_promised(b, party(0, a)));
    }
    for (const uint8_t version : {uint8_t{1}, uint8_t{3}}) {
        net.filter = [](const Observed& p) { return p.from == 1 ? Verdict::kDrop : Verdict::kPass; };
        ask(1, b, a, 78);
        wire::Headers h;
        h.bth.opcode = wire::kOpcodeHello;
        h.bth.dest_qpn = b.qpn;
        h.hello = {.version = version,
                   .answer = true,
                   .mp = true,
                   .qpn = a.qpn,
                   .nonce = 78,
                   .limits = {.reorder_packets = 1, .early_kib = 1}};
        net.inject(1, net.host(0).path_to(net.host(1)), h, {});
        net.run_for(100'000);
        EXPECT_EQ(b.hello.answer, HelloAnswer::kNo);
        EXPECT_EQ(b.hello.peer_capacity.limits, wire::ReceiveLimits{});
    }
}

TEST_P(HelloTest, AnAnswerNobodyAskedForIsDropped) {
    QueuePair& a = made(0);
    QueuePair& b = made(1);
    net.filter = [&](const Observed& p) {
        return p.from == 1 && p.headers.hello.answer ? Verdict::kHold : Verdict::kPass;
    };
    ask(0, a, b, 77);
    a.hello.nonce = 78;  // a later question
    net.release();
    net.run_for(100'000);
    EXPECT_EQ(a.hello.answer, HelloAnswer::kNone);
    EXPECT_EQ(net.host(0).counter(Counter::kDropResponse), 1u);
}

TEST_P(HelloTest, AQuestionToNobodyIsDropped) {
    QueuePair& a = made(0);
    QueuePair& b = made(1);
    net.host(1).destroy(b);
    ask(0, a, b);
    EXPECT_EQ(a.hello.answer, HelloAnswer::kNone);
    EXPECT_EQ(net.host(1).counter(Counter::kDropUnknownQp), 1u);
}

TEST_P(HelloTest, ResetForgetsWhatWasSaid) {
    QueuePair& a = made(0);
    QueuePair& b = made(1);
    ask(0, a, b);
    net.host(0).engine.set_state(a, IBV_QPS_RESET, net.now());
    net.host(1).engine.set_state(b, IBV_QPS_RESET, net.now());
    EXPECT_EQ(a.hello.answer, HelloAnswer::kNone);
    EXPECT_FALSE(has_promised(b, party(0, a)));
}

// A scan for QP numbers finds those that are not connected yet, and no others.
TEST_P(HelloTest, AQpThatDoesNotTakePartIsLikeNone) {
    QueuePair& a = made(0);
    QueuePair& ud = made(1, IBV_QPT_UD);
    QueuePair& uc = made(1, IBV_QPT_UC);
    for (const QueuePair* qp : {&ud, &uc, &connected_to(a, IBV_QPS_ERR)}) forge(*qp, party(0, a));
    QueuePair& connected = connected_to(a);
    forge(connected, {a.qpn + 1, net.host(0).gid()});
    forge(connected, {a.qpn, kStranger});
    QueuePair& refusing = connected_to(a);  // ibv_set_ece() leaves it like this: it never asked
    refusing.hello.has_peer = false;
    forge(refusing, {a.qpn, kStranger});
    EXPECT_TRUE(net.trace.empty());
    EXPECT_EQ(net.host(1).counter(Counter::kDropQpState), 3u);
    EXPECT_EQ(net.host(1).counter(Counter::kDropSource), 3u);
}

// No number of them displaces an offer to the peer.
TEST_P(HelloTest, ForgedQuestionsLeavePromisesAlone) {
    QueuePair& a = made(0);
    QueuePair& b = made(1);
    ask(0, a, b);
    ASSERT_TRUE(confirmed(b, party(0, a)));
    for (uint32_t stranger = 1; stranger < 100; ++stranger) forge(b, {stranger, kStranger});
    EXPECT_TRUE(confirmed(b, party(0, a)));
    EXPECT_EQ(b.hello.promise_count, transport::HelloState::kPromises);
    EXPECT_FALSE(confirmed(b, {1, kStranger})) << "nobody answers in the stranger's name";
}

TEST_P(HelloTest, ThePeerFindsRoomAmongStrangers) {
    QueuePair& a = made(0);
    QueuePair& b = made(1);
    for (uint32_t stranger = 1; stranger < 10; ++stranger) forge(b, {stranger, kStranger});
    ask(0, a, b);
    EXPECT_EQ(a.hello.answer, HelloAnswer::kNone) << "any of those may be the peer";
    b.hello.begin(party(0, a), nullptr, 78);
    ask(0, a, b);
    EXPECT_EQ(a.hello.answer, HelloAnswer::kYes);
}

// T18: a stranger that takes the four promises does not make a host that speaks mp a peer of rc.
TEST_P(HelloTest, AKnownPeerFindsRoomAmongStrangers) {
    QueuePair& a = made(0);
    QueuePair& b = made(1);
    b.hello.peers = &peers_;
    for (uint32_t stranger = 1; stranger < 10; ++stranger) forge(b, {stranger, kStranger});
    ask(0, a, b);
    EXPECT_EQ(a.hello.answer, HelloAnswer::kNone) << "it may be one more stranger";
    peers_.record_answer(net.host(0).gid(), true);
    forge(b, {a.qpn + 1, net.host(0).gid()});
    EXPECT_TRUE(has_promised(b, {a.qpn + 1, net.host(0).gid()}));
    ask(0, a, b);
    EXPECT_EQ(a.hello.answer, HelloAnswer::kYes) << "the stranger could not confirm in the host's name";
    EXPECT_TRUE(confirmed(b, party(0, a)));
    EXPECT_TRUE(has_promised(b, {1, kStranger})) << "any of the four may be the peer";
    forge(b, {a.qpn + 2, net.host(0).gid()});
    EXPECT_TRUE(confirmed(b, party(0, a)));
    EXPECT_FALSE(has_promised(b, {a.qpn + 2, net.host(0).gid()}));
    net.host(1).engine.set_state(b, IBV_QPS_RESET, net.now());
    EXPECT_EQ(b.hello.peers, &peers_);
    EXPECT_EQ(b.hello.promise_count, 0u);
}

// The case above with a standard endpoint as peer: the question in its name is never confirmed.
TEST_P(HelloTest, APromiseToASilentPeerIsNotConfirmed) {
    QueuePair& b = made(1);
    const transport::HelloState::RemoteQp standard{0x1234, net.host(0).gid()};
    forge(b, standard);
    EXPECT_TRUE(has_promised(b, standard));
    EXPECT_FALSE(confirmed(b, standard));
    const uint32_t nonce = b.hello.promised(standard)->nonce;
    for (uint32_t guess = 1; guess < 1000; guess += 2)
        if (guess != nonce) forge(b, standard, true, guess);
    EXPECT_FALSE(confirmed(b, standard));
}

TEST_P(HelloTest, AFloodIsAnsweredAtABoundedRate) {
    QueuePair& a = made(0);
    QueuePair& b = made(1);
    const Path path = net.host(0).path_to(net.host(1));
    for (int i = 0; i < 1000; ++i) net.host(0).engine.ask_multipath(a, path, b.qpn, 77, net.now());
    net.run_for(1'000'000);
    uint64_t answers = 0;
    for (const Observed& packet : net.trace) answers += packet.from == 1 && packet.headers.hello.answer;
    EXPECT_LE(answers, 2u);
}

TEST_P(HelloTest, AQuestionThatComesTooLateIsAnsweredByOne) {
    QueuePair& a = made(0);
    QueuePair& b = connected_to(a);
    EXPECT_EQ(peers_.speaks_mp(net.host(0).gid(), net.now()), false);
    ask(0, a, b);
    EXPECT_EQ(a.hello.answer, HelloAnswer::kNo);
    EXPECT_EQ(peers_.speaks_mp(net.host(0).gid(), net.now()), std::nullopt)
        << "it is no standard endpoint: ask it again";
    ASSERT_EQ(net.trace.size(), 4u);
    EXPECT_FALSE(has_promised(a, party(1, b))) << "b only asks whether anybody is there";
}

// D7: one forged HELLO made the peer unreachable for ten minutes.
TEST_P(HelloTest, AForgedQuestionChangesNoBelief) {
    QueuePair& a = made(0);
    QueuePair& b = connected_to(a);
    const transport::HelloState::RemoteQp peer = party(0, a);
    net.host(0).destroy(a);  // a standard endpoint says nothing
    for (int i = 0; i < 100; ++i) forge(b, peer);
    EXPECT_EQ(peers_.speaks_mp(peer.gid, net.now()), false);
    uint32_t questions = 0;
    for (const Observed& packet : net.trace) questions += !packet.headers.hello.answer;
    EXPECT_EQ(questions, 1u) << "it is not asked back each time";
    forge(b, peer, true, 79);
    EXPECT_EQ(peers_.speaks_mp(peer.gid, net.now()), false) << "an answer to no question";
    forge(b, peer, true, 78);
    EXPECT_EQ(peers_.speaks_mp(peer.gid, net.now()), true) << "an answer to ours, which came too late";
}

TEST(Hello, WhoIsConfiguredForRcDeclines) {
    Network net(1, 2, with(Mode::kRc));
    QueuePair& a = net.host(0).create({});
    QueuePair& b = net.host(1).create({});
    a.hello.begin({b.qpn, net.host(1).gid()}, nullptr, 5);
    net.host(0).engine.ask_multipath(a, net.host(0).path_to(net.host(1)), b.qpn, 5, net.now());
    net.run_for(100'000);
    EXPECT_EQ(a.hello.answer, HelloAnswer::kNo);
}

wire::Gid numbered(uint32_t number) {
    wire::Gid gid{};
    std::memcpy(gid.data(), &number, sizeof(number));
    return gid;
}

TEST(PeerCapabilityCache, AStrangersSilenceIsRcForAWhile) {
    PeerCapabilityCache peers;
    const wire::Gid peer = numbered(1);
    EXPECT_EQ(peers.speaks_mp(peer, 0), std::nullopt);
    peers.record_timeout(peer, 5);
    EXPECT_EQ(peers.speaks_mp(peer, 5), false);
    EXPECT_EQ(peers.speaks_mp(peer, 5 + PeerCapabilityCache::kFirstRcNs - 1), false);
    EXPECT_EQ(peers.speaks_mp(peer, 5 + PeerCapabilityCache::kFirstRcNs), std::nullopt) << "ask it again";
    peers.record_answer(peer, true);
    EXPECT_EQ(peers.speaks_mp(peer, 5), true);
}

// T18: a peer that was busy, or behind a lossy path, is asked again after a second, and a standard endpoint seldom.
TEST(PeerCapabilityCache, EachSilenceDoublesTheTimeToTheNextQuestion) {
    PeerCapabilityCache peers;
    const wire::Gid peer = numbered(1);
    uint64_t now_ns = 9;
    for (const uint64_t seconds : {1, 2, 4, 8, 16, 32, 60, 60, 60}) {
        const uint64_t rc_ns = seconds * 1'000'000'000;
        EXPECT_EQ(peers.record_timeout(peer, now_ns), rc_ns);
        EXPECT_EQ(peers.record_timeout(peer, now_ns + 1000), rc_ns - 1000) << "another QP asked at the same time";
        EXPECT_EQ(peers.speaks_mp(peer, now_ns + rc_ns - 1), false);
        EXPECT_EQ(peers.speaks_mp(peer, now_ns + rc_ns), std::nullopt);
        now_ns += rc_ns + 3'000'000'000;
    }
    peers.record_answer(peer, false);
    EXPECT_EQ(peers.record_timeout(peer, now_ns), 1'000'000'000u) << "an answer ends the series";
    peers.record_answer(peer, true);
    EXPECT_EQ(peers.record_timeout(peer, now_ns), 0u) << "it speaks mp";
    now_ns += PeerCapabilityCache::kForgetNs;
    EXPECT_EQ(peers.record_timeout(peer, now_ns), 1'000'000'000u) << "another host may have the address";
}

TEST(PeerCapabilityCache, WhoSpokeMpIsForgottenOnlyAfterALongSilence) {
    PeerCapabilityCache peers;
    const wire::Gid peer = numbered(1);
    constexpr uint64_t kLater = 1'000 * PeerCapabilityCache::kForgetNs;  // without a question there is no silence
    peers.record_answer(peer, true);
    peers.record_timeout(peer, kLater);
    peers.record_timeout(peer, kLater + PeerCapabilityCache::kForgetNs - 1);
    EXPECT_EQ(peers.speaks_mp(peer, kLater + PeerCapabilityCache::kForgetNs - 1), true);
    EXPECT_EQ(peers.speaks_mp(peer, kLater + PeerCapabilityCache::kForgetNs), std::nullopt);
    peers.record_answer(peer, true);
    EXPECT_EQ(peers.speaks_mp(peer, kLater + PeerCapabilityCache::kForgetNs), true) << "it is back";
}

TEST(PeerCapabilityCache, ALastWordOfRcMakesAStranger) {
    PeerCapabilityCache peers;
    const wire::Gid peer = numbered(1);
    peers.record_answer(peer, true);
    peers.record_answer(peer, false);
    EXPECT_EQ(peers.speaks_mp(peer, 0), std::nullopt);
    peers.record_timeout(peer, 0);
    EXPECT_EQ(peers.speaks_mp(peer, 0), false);
}

TEST(PeerCapabilityCache, TooManyPushOutWhoIsSilent) {
    PeerCapabilityCache peers;
    peers.record_answer(numbered(0), true);
    for (uint32_t i = 1; i <= PeerCapabilityCache::kMaxPeers + 9; ++i) peers.record_timeout(numbered(i), i);
    EXPECT_EQ(peers.speaks_mp(numbered(0), 0), true);
    uint32_t known = 0;
    for (uint32_t i = 0; i <= PeerCapabilityCache::kMaxPeers + 9; ++i)
        known += peers.speaks_mp(numbered(i), 0).has_value();
    EXPECT_EQ(known, PeerCapabilityCache::kMaxPeers);
}

}  // namespace
}  // namespace rove::test
