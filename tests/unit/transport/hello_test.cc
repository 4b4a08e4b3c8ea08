// SPDX-License-Identifier: Apache-2.0
// HELLO: two QPs agree on mp, whatever is lost and whoever asks first.
#include <gtest/gtest.h>

#include <cstring>

#include "transport/mp/hello_peers.h"
#include "transport/virtual_network.h"

namespace rove::test {
namespace {

using Answer = transport::HelloState::Answer;
using Choice = transport::HelloState::Choice;
using transport::HelloPeers;
using transport::Mode;

transport::Config with(Mode mode) {
    transport::Config config;
    config.mode = mode;
    return config;
}

class HelloTest : public testing::TestWithParam<Mode> {
  protected:
    QueuePair& made(uint32_t host, ibv_qp_type type = IBV_QPT_RC) {
        QpOptions options;
        options.type = type;
        return net.host(host).create(options);
    }
    void ask(uint32_t from, QueuePair& qp, const QueuePair& about, uint32_t nonce = 77) {
        const Path path = net.host(from).path_to(net.host(1 - from));
        net.host(from).engine.ask_multipath(qp, path, about.qpn, nonce);
        net.run_for(100'000);
    }
    Network net{1, 2, with(GetParam())};
};

INSTANTIATE_TEST_SUITE_P(Modes, HelloTest, testing::Values(Mode::kAuto, Mode::kMp),
                         [](const auto& info) { return info.param == Mode::kAuto ? "auto" : "mp"; });

TEST_P(HelloTest, TwoThatCanAgree) {
    QueuePair& a = made(0);
    QueuePair& b = made(1);
    ask(0, a, b);
    EXPECT_EQ(a.hello.answer, Answer::kYes);
    EXPECT_TRUE(b.hello.has_promised(a.qpn, net.host(0).gid()));
    EXPECT_FALSE(b.hello.has_promised(a.qpn + 1, net.host(0).gid()));
    EXPECT_EQ(b.hello.answer, Answer::kNone);
    ask(1, b, a);
    EXPECT_EQ(b.hello.answer, Answer::kYes);
    EXPECT_EQ(net.trace.size(), 4u);
}

TEST_P(HelloTest, WhoHasChosenSaysWhat) {
    QueuePair& a = made(0);
    QueuePair& b = made(1);
    b.hello.choice = Choice::kRc;
    ask(0, a, b);
    EXPECT_EQ(a.hello.answer, Answer::kNo);
    EXPECT_FALSE(b.hello.has_promised(a.qpn, net.host(0).gid()));
    b.hello.choice = Choice::kMp;
    ask(0, a, b);
    EXPECT_EQ(a.hello.answer, Answer::kYes);
}

TEST_P(HelloTest, OnlyRcQpsSpeakIt) {
    QueuePair& a = made(0);
    QueuePair& b = made(1, IBV_QPT_UC);
    ask(0, a, b);
    EXPECT_EQ(a.hello.answer, Answer::kNo);
}

TEST_P(HelloTest, AnAnswerNobodyAskedForIsDropped) {
    QueuePair& a = made(0);
    QueuePair& b = made(1);
    net.filter = [&](const Observed& p) { return p.from == 1 ? Verdict::kHold : Verdict::kPass; };
    ask(0, a, b, 77);
    a.hello.nonce = 78;  // a later question
    net.release();
    net.run_for(100'000);
    EXPECT_EQ(a.hello.answer, Answer::kNone);
    EXPECT_EQ(net.host(0).counter(Counter::kDropResponse), 1u);
}

TEST_P(HelloTest, AQuestionToNobodyIsDropped) {
    QueuePair& a = made(0);
    QueuePair& b = made(1);
    net.host(1).destroy(b);
    ask(0, a, b);
    EXPECT_EQ(a.hello.answer, Answer::kNone);
    EXPECT_EQ(net.host(1).counter(Counter::kDropUnknownQp), 1u);
}

TEST_P(HelloTest, ResetForgetsWhatWasSaid) {
    QueuePair& a = made(0);
    QueuePair& b = made(1);
    ask(0, a, b);
    net.host(0).engine.set_state(a, IBV_QPS_RESET, net.now());
    net.host(1).engine.set_state(b, IBV_QPS_RESET, net.now());
    EXPECT_EQ(a.hello.answer, Answer::kNone);
    EXPECT_FALSE(b.hello.has_promised(a.qpn, net.host(0).gid()));
}

TEST_P(HelloTest, AQuestionThatComesTooLateMakesThePeerKnown) {
    HelloPeers peers;
    QueuePair& a = made(0);
    QueuePair& b = made(1);
    b.hello.choice = Choice::kRc;
    b.hello.peers = &peers;
    b.path = net.host(1).path_to(net.host(0));
    b.remote_qpn = a.qpn + 1;
    ask(0, a, b);
    EXPECT_FALSE(peers.speaks_mp(net.host(0).gid(), net.now())) << "of a stranger to this QP";
    b.remote_qpn = a.qpn;
    ask(0, a, b);
    EXPECT_EQ(peers.speaks_mp(net.host(0).gid(), net.now()), true);
    EXPECT_EQ(a.hello.answer, Answer::kNo);
}

TEST(Hello, WhoIsConfiguredForRcDeclines) {
    Network net(1, 2, with(Mode::kRc));
    QueuePair& a = net.host(0).create({});
    QueuePair& b = net.host(1).create({});
    net.host(0).engine.ask_multipath(a, net.host(0).path_to(net.host(1)), b.qpn, 5);
    net.run_for(100'000);
    EXPECT_EQ(a.hello.answer, Answer::kNo);
}

wire::Gid numbered(uint32_t number) {
    wire::Gid gid{};
    std::memcpy(gid.data(), &number, sizeof(number));
    return gid;
}

TEST(HelloPeers, AStrangersSilenceIsRcForAWhile) {
    HelloPeers peers;
    const wire::Gid peer = numbered(1);
    EXPECT_EQ(peers.speaks_mp(peer, 0), std::nullopt);
    peers.was_silent(peer, 5);
    EXPECT_EQ(peers.speaks_mp(peer, 5), false);
    EXPECT_EQ(peers.speaks_mp(peer, 5 + HelloPeers::kRcNs), std::nullopt) << "ask it again";
    peers.said(peer, true);
    EXPECT_EQ(peers.speaks_mp(peer, 5), true);
}

TEST(HelloPeers, WhoSpokeMpIsForgottenOnlyAfterALongSilence) {
    HelloPeers peers;
    const wire::Gid peer = numbered(1);
    constexpr uint64_t kLater = 1'000 * HelloPeers::kForgetNs;  // without a question: no silence
    peers.said(peer, true);
    peers.was_silent(peer, kLater);
    peers.was_silent(peer, kLater + HelloPeers::kForgetNs - 1);
    EXPECT_EQ(peers.speaks_mp(peer, kLater + HelloPeers::kForgetNs - 1), true);
    EXPECT_EQ(peers.speaks_mp(peer, kLater + HelloPeers::kForgetNs), std::nullopt);
    peers.said(peer, true);
    EXPECT_EQ(peers.speaks_mp(peer, kLater + HelloPeers::kForgetNs), true) << "it is back";
}

TEST(HelloPeers, ALastWordOfRcMakesAStranger) {
    HelloPeers peers;
    const wire::Gid peer = numbered(1);
    peers.said(peer, true);
    peers.said(peer, false);
    EXPECT_EQ(peers.speaks_mp(peer, 0), std::nullopt);
    peers.was_silent(peer, 0);
    EXPECT_EQ(peers.speaks_mp(peer, 0), false);
}

TEST(HelloPeers, TooManyPushOutWhoIsSilent) {
    HelloPeers peers;
    peers.said(numbered(0), true);
    for (uint32_t i = 1; i <= HelloPeers::kMaxPeers + 9; ++i) peers.was_silent(numbered(i), i);
    EXPECT_EQ(peers.speaks_mp(numbered(0), 0), true);
    uint32_t known = 0;
    for (uint32_t i = 0; i <= HelloPeers::kMaxPeers + 9; ++i) known += peers.speaks_mp(numbered(i), 0).has_value();
    EXPECT_EQ(known, HelloPeers::kMaxPeers);
}

}  // namespace
}  // namespace rove::test
