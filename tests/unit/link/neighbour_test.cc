// SPDX-License-Identifier: Apache-2.0
// Tests neighbours: requests and replies between two tables, packets from strangers, and malformed bytes.
#include "link/neighbour.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <random>

#include "runtime/rdma_interface.h"

namespace rove::datapath {
namespace {

const wire::MacAddress kMacA = *parse_mac("02:00:00:00:00:0a"), kMacB = *parse_mac("02:00:00:00:00:0b"),
                       kMacC = *parse_mac("02:00:00:00:00:0c");
const wire::Gid kA4 = *parse_address("10.0.0.1"), kB4 = *parse_address("10.0.0.2"), kA6 = *parse_address("fd00::1"),
                kB6 = *parse_address("fd00::2"), kFar4 = *parse_address("192.168.7.7"),
                kFar6 = *parse_address("fd77::7");

struct Frame {
    std::vector<uint8_t> bytes = std::vector<uint8_t>(512);
    size_t size = 0;
};

class NeighbourTest : public testing::TestWithParam<bool> {
  protected:
    wire::Gid a() const { return GetParam() ? kA6 : kA4; }
    wire::Gid b() const { return GetParam() ? kB6 : kB4; }
    Neighbours a_{
        kMacA, {}, {*parse_subnet("10.0.0.1/24"), *parse_subnet("fd00::1/64")}, *parse_address("10.0.0.254"), {}};
    Neighbours b_{kMacB, {}, {*parse_subnet("10.0.0.2/24"), *parse_subnet("fd00::2/64")}, {}, {}};
    static uint64_t count(const Neighbours& n, NeighbourCounter c) { return n.counters()[static_cast<size_t>(c)]; }
    // Returns A's request for B.
    Frame question() {
        Frame frame;
        frame.size = a_.ask(b(), frame.bytes.data(), now_);
        EXPECT_GT(frame.size, 0u);
        return frame;
    }
    void give(Neighbours& to, Frame& frame) { frame.size = to.handle(frame.bytes, frame.size, now_); }
    // Resolves B at A, for a path.
    std::shared_ptr<const transport::NextHop> used() {
        Frame frame = question();
        ++now_;
        give(b_, frame);
        give(a_, frame);
        const std::shared_ptr<const transport::NextHop> next_hop = a_.use(b(), now_);
        EXPECT_NE(next_hop, nullptr);
        EXPECT_EQ(next_hop->mac(), kMacB);
        return next_hop;
    }
    struct Asked {
        uint64_t ns;
        bool all;  // multicast, not sent to a known MAC
    };
    // Returns the requests that A sends until `end`. If `answer` returns true for a request, `who` replies to it.
    std::vector<Asked> run_until(uint64_t end, Neighbours& who, const std::function<bool(const Asked&)>& answer) {
        std::vector<Asked> asked;
        while (a_.due_ns() <= end) {
            now_ = std::max(now_, a_.due_ns());
            Frame frame;
            frame.size = a_.next_question(frame.bytes.data(), now_);
            if (frame.size == 0) continue;
            const Asked one{now_, is_multicast(parse_discovery(std::span(frame.bytes).first(frame.size)).frame_dst)};
            asked.push_back(one);
            now_ += 1000;
            if (!answer(one)) continue;
            give(who, frame);
            if (frame.size != 0) give(a_, frame);
        }
        now_ = std::max(now_, end);
        return asked;
    }
    uint64_t now_ = 1'000'000'000;
};

INSTANTIATE_TEST_SUITE_P(Families, NeighbourTest, testing::Bool(),
                         [](const auto& family) { return family.param ? "Ipv6" : "Ipv4"; });

TEST_P(NeighbourTest, QuestionAndAnswer) {
    Frame frame = question();
    EXPECT_FALSE(a_.lookup(b()));
    give(b_, frame);
    ASSERT_GT(frame.size, 0u);
    EXPECT_EQ(b_.lookup(a()), kMacA) << "who asks is remembered";
    give(a_, frame);
    EXPECT_EQ(frame.size, 0u);
    EXPECT_EQ(a_.lookup(b()), kMacB);
    EXPECT_TRUE(a_.wait(b(), 0));
    EXPECT_EQ(count(b_, NeighbourCounter::kSolicitsAnswered), 1u);
    EXPECT_EQ(count(a_, NeighbourCounter::kAdvertisesTaken), 1u);
}

TEST_P(NeighbourTest, QuestionForSomebodyElseIsLeftAlone) {
    Frame frame;
    frame.size = a_.ask(GetParam() ? *parse_address("fd00::3") : *parse_address("10.0.0.3"), frame.bytes.data(), now_);
    give(b_, frame);
    EXPECT_EQ(frame.size, 0u);
    EXPECT_FALSE(b_.lookup(a())) << "nor is the one remembered who did not ask us";
}

TEST_P(NeighbourTest, UnsolicitedAnswerMakesNoEntry) {
    Frame frame;
    frame.size = build_announce(frame.bytes.data(), {kMacC, b(), {}});
    give(a_, frame);
    EXPECT_FALSE(a_.lookup(b()));
    EXPECT_EQ(count(a_, NeighbourCounter::kAdvertisesUnsolicited), 1u);
}

TEST_P(NeighbourTest, PathsFollowANeighbourThatMoves) {
    const std::shared_ptr<const transport::NextHop> next_hop = used();
    Frame frame;
    for (int i = 0; i < 3; ++i) {
        frame.size = build_announce(frame.bytes.data(), {kMacC, b(), {}});
        give(a_, frame);
    }
    EXPECT_EQ(a_.lookup(b()), kMacC);
    EXPECT_EQ(next_hop->mac(), kMacC);
    EXPECT_EQ(a_.use(b(), now_), next_hop);
    EXPECT_EQ(count(a_, NeighbourCounter::kMoved), 1u);
}

// D25: each change of an alternating neighbour is one store, and does not raise the rate of requests.
TEST_P(NeighbourTest, ANeighbourThatAlternatesCostsNothingElse) {
    const std::shared_ptr<const transport::NextHop> next_hop = used();
    size_t questions = 0;
    for (int i = 0; i < 10'000; ++i) {
        Frame frame;
        frame.size = build_announce(frame.bytes.data(), {i % 2 == 0 ? kMacC : kMacB, b(), {}});
        give(a_, frame);
        EXPECT_EQ(next_hop->mac(), i % 2 == 0 ? kMacC : kMacB);
        questions += run_until(now_ + 1'000'000, b_, [](const Asked&) { return true; }).size();
    }
    EXPECT_LE(questions, 4u) << "in ten seconds";
}

// D19: a request for a silent neighbour first goes to its old MAC, then to all hosts. The host that has taken over its
// address replies.
TEST_P(NeighbourTest, ASuspectIsFoundAtItsNewPlace) {
    const std::shared_ptr<const transport::NextHop> next_hop = used();
    Neighbours moved(kMacC, {}, {*parse_subnet("10.0.0.2/24"), *parse_subnet("fd00::2/64")}, {}, {});
    now_ += Neighbours::kConfirmedNs;
    const uint64_t begun = now_;
    a_.suspect(b(), now_);
    const auto asked = run_until(now_ + 1'000'000'000, moved, [](const Asked& one) { return one.all; });
    ASSERT_EQ(asked.size(), 2u);
    EXPECT_FALSE(asked[0].all);
    EXPECT_TRUE(asked[1].all);
    EXPECT_EQ(asked[0].ns, begun);
    EXPECT_LE(asked[1].ns, begun + 10'000'000) << "less than the shortest timeout of a request";
    EXPECT_EQ(next_hop->mac(), kMacC);
}

TEST_P(NeighbourTest, ASuspectThatAnswersStays) {
    const std::shared_ptr<const transport::NextHop> next_hop = used();
    a_.suspect(b(), now_);
    EXPECT_TRUE(run_until(now_ + 1'000'000, b_, [](const Asked&) { return true; }).empty()) << "it has just answered";
    now_ += Neighbours::kConfirmedNs;
    for (int i = 0; i < 1000; ++i) a_.suspect(b(), now_);
    const auto asked = run_until(now_ + 50'000'000, b_, [](const Asked&) { return true; });
    ASSERT_EQ(asked.size(), 1u);
    EXPECT_FALSE(asked[0].all);
    EXPECT_EQ(next_hop->mac(), kMacB);
}

TEST_P(NeighbourTest, UsedNeighboursAreAskedNowAndThen) {
    const std::shared_ptr<const transport::NextHop> next_hop = used();
    const uint64_t begun = now_;
    const auto asked = run_until(now_ + 10 * Neighbours::kReachableNs, b_, [](const Asked&) { return true; });
    EXPECT_GE(asked.size(), 6u);
    EXPECT_LE(asked.size(), 21u);
    EXPECT_GE(asked.front().ns, begun + Neighbours::kReachableNs / 2);
    for (const Asked& one : asked) EXPECT_FALSE(one.all);
}

TEST_P(NeighbourTest, WhoIsGoneIsAskedAtABoundedRateAndFoundWhenItIsBack) {
    const std::shared_ptr<const transport::NextHop> next_hop = used();
    now_ += Neighbours::kConfirmedNs;
    for (int i = 0; i < 100; ++i) {
        a_.suspect(b(), now_);
        run_until(now_ + 100'000'000, b_, [](const Asked&) { return false; });
    }
    EXPECT_LE(count(a_, NeighbourCounter::kProbes), Neighbours::kQuestions + 10u) << "in ten seconds";
    EXPECT_EQ(count(a_, NeighbourCounter::kSilent), 1u);
    EXPECT_EQ(a_.use(b(), now_), nullptr) << "who connects now waits for an answer";
    a_.suspect(b(), now_ += Neighbours::kAgainNs);
    run_until(now_ + 1'000'000, b_, [](const Asked&) { return true; });
    EXPECT_EQ(a_.use(b(), now_), next_hop);
}

TEST_P(NeighbourTest, WhoIsNotUsedIsForgotten) {
    Frame frame = question();
    give(b_, frame);
    give(a_, frame);
    EXPECT_EQ(b_.entries().size(), 1u);
    EXPECT_TRUE(run_until(now_ + 2 * Neighbours::kForgetNs, b_, [](const Asked&) { return true; }).empty());
    EXPECT_TRUE(a_.entries().empty());
    EXPECT_EQ(b_.next_question(frame.bytes.data(), now_), 0u);
    EXPECT_TRUE(b_.entries().empty()) << "nor whom a stranger's question told of";
    EXPECT_EQ(b_.due_ns(), Neighbours::kNever);
}

TEST_P(NeighbourTest, StaticEntryStays) {
    a_.add_static(b(), kMacB);
    Frame frame;
    frame.size = build_announce(frame.bytes.data(), {kMacC, b(), {}});
    give(a_, frame);
    EXPECT_EQ(a_.lookup(b()), kMacB);
    const std::shared_ptr<const transport::NextHop> next_hop = a_.use(b(), now_);
    ASSERT_NE(next_hop, nullptr);
    a_.suspect(b(), now_);
    EXPECT_TRUE(run_until(now_ + 10 * Neighbours::kForgetNs, b_, [](const Asked&) { return true; }).empty());
    EXPECT_EQ(next_hop->mac(), kMacB);
}

TEST_P(NeighbourTest, SomebodyWithOurAddressIsCounted) {
    Frame frame;
    frame.size = build_announce(frame.bytes.data(), {kMacC, a(), {}});
    give(a_, frame);
    EXPECT_EQ(count(a_, NeighbourCounter::kConflicts), 1u);
    EXPECT_FALSE(a_.lookup(a()));
}

TEST_P(NeighbourTest, OtherVlansAreIgnored) {
    Frame frame;
    frame.size = build_solicit(frame.bytes.data(), {kMacA, a(), 5}, b());
    give(b_, frame);
    EXPECT_EQ(frame.size, 0u);
    Neighbours tagged(kMacB, 5, {*parse_subnet("10.0.0.2/24"), *parse_subnet("fd00::2/64")}, {}, {});
    frame.size = build_solicit(frame.bytes.data(), {kMacA, a(), 5}, b());
    give(tagged, frame);
    EXPECT_GT(frame.size, 0u);
    EXPECT_EQ(parse_discovery(std::span(frame.bytes).first(frame.size)).vlan, 5);
}

TEST_P(NeighbourTest, TableIsBounded) {
    Neighbours table(kMacB, {}, {*parse_subnet("10.200.0.2/8"), *parse_subnet("fd00::ff:2/64")}, {}, {});
    const wire::Gid us = GetParam() ? *parse_address("fd00::ff:2") : *parse_address("10.200.0.2");
    Frame frame;
    for (uint32_t i = 0; i < Neighbours::kMaxEntries + 1000; ++i) {
        wire::Gid stranger = a();
        stranger[15] = static_cast<uint8_t>(i);
        stranger[14] = static_cast<uint8_t>(i >> 8);
        frame.size = build_solicit(frame.bytes.data(), {kMacA, stranger, {}}, us);
        give(table, frame);
        EXPECT_GT(frame.size, 0u);
    }
    EXPECT_EQ(table.entries().size(), Neighbours::kMaxEntries);
    EXPECT_EQ(count(table, NeighbourCounter::kTableFull), 1000u);
    // An entry for our own request still finds room.
    EXPECT_GT(
        table.ask(GetParam() ? *parse_address("fd00::ffff:1") : *parse_address("10.201.0.1"), frame.bytes.data(), now_),
        0u);
    EXPECT_EQ(table.entries().size(), Neighbours::kMaxEntries);
    EXPECT_EQ(table.next_question(frame.bytes.data(), now_ + 2 * Neighbours::kForgetNs), 0u);
    EXPECT_TRUE(table.entries().empty()) << "strangers do not stay";
}

// A neighbour that a path uses is evicted neither by strangers nor by our own requests.
TEST_P(NeighbourTest, UsedEntriesStayInAFullTable) {
    const std::shared_ptr<const transport::NextHop> next_hop = used();
    Frame frame;
    for (uint32_t i = 0; i < 2 * Neighbours::kMaxEntries; ++i) {
        wire::Gid stranger = b();
        stranger[14] = static_cast<uint8_t>(1 + (i >> 8) % 255);
        stranger[13] = GetParam() ? static_cast<uint8_t>(i >> 16) : stranger[13];
        stranger[15] = static_cast<uint8_t>(i);
        a_.ask(stranger, frame.bytes.data(), now_);
    }
    EXPECT_EQ(a_.use(b(), now_), next_hop);
    EXPECT_LE(a_.entries().size(), Neighbours::kMaxEntries + 1);
}

// A process that talks to ever more neighbours over its lifetime keeps only the recent ones.
TEST_P(NeighbourTest, ANeighbourThatNoPathUsesAnyMoreIsForgotten) {
    std::shared_ptr<const transport::NextHop> next_hop = used();
    std::shared_ptr<const transport::NextHop> again = a_.use(b(), now_);
    next_hop.reset();
    run_until(now_ + 2 * Neighbours::kForgetNs, b_, [](const Asked&) { return true; });
    EXPECT_TRUE(a_.entries().at(b()).used);
    again.reset();
    EXPECT_FALSE(a_.entries().at(b()).used);
    again = a_.use(b(), now_);
    ASSERT_NE(again, nullptr) << "it is still known";
    again.reset();
    const auto asked = run_until(now_ + 3 * Neighbours::kForgetNs, b_, [](const Asked&) { return true; });
    EXPECT_LE(asked.size(), 1u);
    EXPECT_TRUE(a_.entries().empty());
    EXPECT_EQ(a_.due_ns(), Neighbours::kNever);
}

TEST_P(NeighbourTest, StrangerFromAnotherSubnetIsAnsweredAndForgotten) {
    const wire::Gid stranger = GetParam() ? kFar6 : kFar4;
    Frame frame;
    frame.size = build_solicit(frame.bytes.data(), {kMacC, stranger, {}}, b());
    give(b_, frame);
    EXPECT_GT(frame.size, 0u);
    EXPECT_FALSE(b_.lookup(stranger));
}

// Returns an echo request from A to B, as the kernel's ping builds it.
std::vector<uint8_t> echo_request(bool ipv6) {
    std::vector<uint8_t> frame;
    const auto append = [&](const auto& bytes) { frame.insert(frame.end(), bytes.begin(), bytes.end()); };
    append(kMacB);
    append(kMacA);
    append(ipv6 ? std::vector<uint8_t>{0x86, 0xDD} : std::vector<uint8_t>{0x08, 0x00});
    std::vector<uint8_t> message{
        static_cast<uint8_t>(ipv6 ? 128 : 8), 0, 0, 0, 0x12, 0x34, 0, 1, 'r', 'o', 'v', 'e', '!'};
    const auto checksum = [](const std::vector<uint8_t>& bytes, uint32_t sum) {
        for (size_t i = 0; i < bytes.size(); ++i) sum += static_cast<uint32_t>(bytes[i]) << (i % 2 == 0 ? 8 : 0);
        while (sum >> 16 != 0) sum = (sum & 0xFFFF) + (sum >> 16);
        return static_cast<uint16_t>(~sum);
    };
    std::vector<uint8_t> ip;
    if (ipv6) {
        ip = {0x60, 0, 0, 0, 0, static_cast<uint8_t>(message.size()), 58, 64};
        ip.insert(ip.end(), kA6.begin(), kA6.end());
        ip.insert(ip.end(), kB6.begin(), kB6.end());
        std::vector<uint8_t> pseudo(ip.begin() + 8, ip.end());
        pseudo.insert(pseudo.end(), {0, 0, 0, static_cast<uint8_t>(message.size()), 0, 0, 0, 58});
        std::vector<uint8_t> all = pseudo;
        all.insert(all.end(), message.begin(), message.end());
        const uint16_t sum = checksum(all, 0);
        message[2] = static_cast<uint8_t>(sum >> 8);
        message[3] = static_cast<uint8_t>(sum);
    } else {
        uint16_t sum = checksum(message, 0);
        message[2] = static_cast<uint8_t>(sum >> 8);
        message[3] = static_cast<uint8_t>(sum);
        ip = {0x45, 0, 0, static_cast<uint8_t>(20 + message.size()), 0, 1, 0x40, 0, 64, 1, 0, 0, 10, 0, 0, 1, 10,
              0,    0, 2};
        sum = checksum(ip, 0);
        ip[10] = static_cast<uint8_t>(sum >> 8);
        ip[11] = static_cast<uint8_t>(sum);
    }
    append(ip);
    append(message);
    return frame;
}

TEST_P(NeighbourTest, EchoComesBack) {
    const auto request = echo_request(GetParam());
    Frame frame;
    std::copy(request.begin(), request.end(), frame.bytes.begin());
    frame.size = request.size();
    give(b_, frame);
    ASSERT_EQ(frame.size, request.size());
    EXPECT_TRUE(std::equal(kMacA.begin(), kMacA.end(), frame.bytes.begin()));
    const size_t message = GetParam() ? 54 : 34;
    EXPECT_EQ(frame.bytes[message], GetParam() ? 129 : 0);
    EXPECT_TRUE(std::equal(request.begin() + message + 4, request.end(), frame.bytes.begin() + message + 4));
    EXPECT_EQ(count(b_, NeighbourCounter::kEchosAnswered), 1u);
}

// Parses every prefix and every single-bit error of valid frames, and random changes of them. A prefix is never taken
// for an echo request, and ASan reports reads outside the frame.
TEST_P(NeighbourTest, HostileBytes) {
    std::vector<std::vector<uint8_t>> seeds{echo_request(GetParam())};
    Frame frame = question();
    seeds.emplace_back(frame.bytes.begin(), frame.bytes.begin() + static_cast<ptrdiff_t>(frame.size));
    give(b_, frame);
    seeds.emplace_back(frame.bytes.begin(), frame.bytes.begin() + static_cast<ptrdiff_t>(frame.size));
    std::mt19937 random(1);
    for (const auto& seed : seeds) {
        for (size_t size = 0; size < seed.size(); ++size) {
            const std::vector<uint8_t> cut(seed.begin(), seed.begin() + static_cast<ptrdiff_t>(size));
            EXPECT_NE(parse_discovery(cut).kind, Discovery::Kind::kEcho);
        }
        for (size_t bit = 0; bit < seed.size() * 8; ++bit) {
            std::vector<uint8_t> flipped = seed;
            flipped[bit / 8] ^= static_cast<uint8_t>(1u << bit % 8);
            parse_discovery(flipped);
        }
        for (int i = 0; i < 20'000; ++i) {
            std::vector<uint8_t> noise = seed;
            for (uint32_t changes = 1 + random() % 8; changes != 0; --changes)
                noise[random() % noise.size()] = static_cast<uint8_t>(random());
            noise.resize(random() % (noise.size() + 1));
            parse_discovery(noise);
        }
    }
}

// A replies for other hosts, as a bridge does, and has only a link-local address of its own.
TEST_P(NeighbourTest, AnswersAndAsksInTheNameOfOthers) {
    const bool ipv6 = GetParam();
    const wire::Gid near = *parse_address(ipv6 ? "fd00::7" : "10.0.0.7"),
                    other = *parse_address(ipv6 ? "fd99::7" : "10.9.0.7");
    Neighbours proxy(kMacC, {}, {{link_local_gid(kMacC), 64}}, {}, {});
    Frame frame;
    frame.size = b_.ask(near, frame.bytes.data(), now_);
    Frame again = frame;
    give(proxy, frame);
    EXPECT_EQ(frame.size, 0u) << "nobody's";
    proxy.set_proxied({near, other});
    give(proxy, again);
    ASSERT_GT(again.size, 0u);
    give(b_, again);
    EXPECT_EQ(b_.lookup(near), kMacC);

    frame.size = proxy.ask(b(), frame.bytes.data(), now_);
    ASSERT_GT(frame.size, 0u);
    const Discovery question = parse_discovery({frame.bytes.data(), frame.size});
    EXPECT_EQ(question.sender, ipv6 ? link_local_gid(kMacC) : near) << "the nearest to whom it asks for";
    give(b_, frame);
    ASSERT_GT(frame.size, 0u);
    give(proxy, frame);
    EXPECT_EQ(proxy.lookup(b()), kMacB);

    frame.size = build_announce(frame.bytes.data(), {kMacB, near, {}});
    give(proxy, frame);
    EXPECT_EQ(count(proxy, NeighbourCounter::kConflicts), 1u);
    proxy.set_proxied({other});
    frame.size = b_.ask(near, frame.bytes.data(), now_);
    give(proxy, frame);
    EXPECT_EQ(frame.size, 0u) << "it has gone";
}

TEST(AddressTest, SubnetsAndNextHops) {
    const Neighbours here(kMacA, {}, {*parse_subnet("10.0.0.1/23"), *parse_subnet("fd00::1/64")},
                          parse_address("10.0.1.254"), {});
    EXPECT_EQ(here.next_hop(*parse_address("10.0.1.7")), *parse_address("10.0.1.7"));
    EXPECT_EQ(here.next_hop(kFar4), *parse_address("10.0.1.254"));
    EXPECT_EQ(here.next_hop(kB6), kB6);
    EXPECT_EQ(here.next_hop(kFar6), kFar6) << "without a gateway it is asked for on the link";
}

TEST(AddressTest, TextForms) {
    EXPECT_EQ(to_string(*parse_address("10.0.0.1")), "10.0.0.1");
    EXPECT_EQ(to_string(*parse_address("fd00:0::1")), "fd00::1");
    EXPECT_EQ(parse_subnet("10.0.0.1/24")->prefix_bits, 120);
    EXPECT_EQ(parse_subnet("fd00::1/64")->prefix_bits, 64);
    EXPECT_FALSE(parse_subnet("10.0.0.1/"));
    EXPECT_FALSE(parse_subnet("10.0.0.1/33"));
    EXPECT_FALSE(parse_subnet("10.0.0/24"));
    EXPECT_FALSE(parse_mac("02:00:00:00:00"));
    EXPECT_FALSE(parse_mac("02:00:00:00:00:0g"));
    EXPECT_FALSE(parse_mac("03:00:00:00:00:01")) << "a group's";
    EXPECT_EQ(to_string(link_local_gid(kMacA)), "fe80::ff:fe00:a");
    EXPECT_EQ(to_string(multicast_mac(*parse_address("224.129.2.3"))), "01:00:5e:01:02:03");
    EXPECT_EQ(to_string(solicited_node_group(kA6)), "ff02::1:ff00:1");
    EXPECT_EQ(derived_mac(kA4), derived_mac(kA4));
    EXPECT_NE(derived_mac(kA4), derived_mac(kB4));
}

// IBTA's rule with values computed by hand: the low 14 bits of the flow label, XORed with its high 6 bits. Without a
// flow label, the product of the QPNs is folded to 20 bits instead.
TEST(AddressTest, UdpSourcePorts) {
    EXPECT_EQ(RdmaInterface::udp_source_port(1, 7, 9), 0xC001);
    EXPECT_EQ(RdmaInterface::udp_source_port(0xFFFFF, 7, 9), 0xC000 | (0x3FFF ^ 0x3F));
    EXPECT_EQ(RdmaInterface::udp_source_port(0, 0x11, 0x12), 0xC132);
    EXPECT_EQ(RdmaInterface::udp_source_port(0, 0x12345, 0x6789A), 0xFA58);
    EXPECT_EQ(RdmaInterface::udp_source_port(0, 0x6789A, 0x12345), 0xFA58) << "both ends alike";
}

}  // namespace
}  // namespace rove::datapath
