// SPDX-License-Identifier: Apache-2.0
// HELLO: two QPs agree on mp, whatever is lost and whoever asks first.
#include <gtest/gtest.h>

#include "transport/virtual_network.h"

namespace rove::test {
namespace {

using Answer = transport::HelloState::Answer;
using Choice = transport::HelloState::Choice;
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

TEST(Hello, WhoIsConfiguredForRcDeclines) {
    Network net(1, 2, with(Mode::kRc));
    QueuePair& a = net.host(0).create({});
    QueuePair& b = net.host(1).create({});
    net.host(0).engine.ask_multipath(a, net.host(0).path_to(net.host(1)), b.qpn, 5);
    net.run_for(100'000);
    EXPECT_EQ(a.hello.answer, Answer::kNo);
}

}  // namespace
}  // namespace rove::test
