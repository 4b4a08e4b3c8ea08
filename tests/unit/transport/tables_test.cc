// SPDX-License-Identifier: Apache-2.0
// The table of queue pairs, and the names of the counters.
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "transport/counters.h"
#include "transport/qp_table.h"
#include "transport/queue_state.h"
#include "transport/time_wait.h"

namespace rove::transport {
namespace {

TEST(Counters, every_one_has_a_name_of_its_own) {
    std::set<std::string> names;
    for (size_t i = 0; i < static_cast<size_t>(Counter::kCount); ++i) {
        const char* name = to_string(static_cast<Counter>(i));
        ASSERT_NE(name, nullptr) << i;
        EXPECT_FALSE(std::string(name).empty()) << i;
        EXPECT_TRUE(names.insert(name).second) << name;
    }
}

TEST(QueuePairTable, finds_by_the_whole_number) {
    QueuePairTable table(Secret::random());
    QueuePair a, b;
    ASSERT_TRUE(table.insert(a));
    ASSERT_TRUE(table.insert(b));
    EXPECT_NE(a.qpn, b.qpn);
    EXPECT_EQ(table.find(a.qpn), &a);
    EXPECT_EQ(table.find(a.qpn ^ 0x10000), nullptr) << "another generation";
    EXPECT_EQ(table.find(0), nullptr);
    EXPECT_EQ(table.find(1), nullptr);
    EXPECT_EQ(table.find(wire::kMulticastQpn), nullptr);
}

TEST(QueuePairTable, a_number_that_was_used_comes_back_with_another_generation) {
    QueuePairTable table(Secret::random());
    std::set<uint32_t> numbers;
    for (uint32_t i = 0; i < 200'000; ++i) {  // three times round the indices
        QueuePair qp;
        ASSERT_TRUE(table.insert(qp));
        ASSERT_TRUE(numbers.insert(qp.qpn).second) << qp.qpn;
        ASSERT_LT(qp.qpn, 1u << 24);
        ASSERT_NE(qp.qpn, wire::kMulticastQpn);
        ASSERT_GE(qp.qpn & 0xFFFF, QueuePairTable::kFirst);
        table.remove(qp);
        ASSERT_EQ(table.find(qp.qpn), nullptr);
    }
}

TEST(QueuePairTable, each_port_has_a_queue_pair_1) {
    QueuePairTable table(Secret::random());
    QueuePair a, b, again, far;
    a.port = again.port = 0;
    b.port = 3;
    far.port = QueuePairTable::kMaxPorts;
    EXPECT_EQ(table.find(1, 0), nullptr);
    ASSERT_TRUE(table.insert_gsi(a));
    ASSERT_TRUE(table.insert_gsi(b));
    EXPECT_FALSE(table.insert_gsi(again)) << "it has one";
    EXPECT_FALSE(table.insert_gsi(far)) << "there is no such port";
    EXPECT_EQ(a.qpn, 1u);
    EXPECT_EQ(b.qpn, 1u);
    EXPECT_EQ(table.find(1, 0), &a);
    EXPECT_EQ(table.find(1, 3), &b);
    for (const uint16_t port : {uint16_t{1}, QueuePairTable::kMaxPorts}) EXPECT_EQ(table.find(1, port), nullptr);
    EXPECT_EQ(table.find(0, 0), nullptr);
    QueuePair ordinary;
    ASSERT_TRUE(table.insert(ordinary));
    EXPECT_EQ(table.find(ordinary.qpn, 0), &ordinary);
    table.remove(a);
    EXPECT_EQ(table.find(1, 0), nullptr);
    EXPECT_EQ(table.find(1, 3), &b);
    EXPECT_TRUE(table.insert_gsi(again));
}

TEST(TimeWaitTable, remembers_a_queue_pair_for_a_second_from_its_end) {
    constexpr uint64_t kMs = 1'000'000;
    TimeWaitTable table;
    QueuePair a, b;
    a.qpn = 2;
    b.qpn = 3;
    table.insert(a, 1 * kMs);
    a.protocol.emplace<Rc>().responder.msn = 7;
    table.insert(a, 900 * kMs);  // reset before, destroyed now
    table.insert(b, 1500 * kMs);
    const std::optional<TimeWait> gone = table.find(a.qpn);
    ASSERT_TRUE(gone);
    EXPECT_EQ(gone->msn, 7u);
    table.insert(b, 1950 * kMs);
    EXPECT_FALSE(table.find(a.qpn));
    EXPECT_TRUE(table.find(b.qpn));
}

// Consecutive numbers in one process, and first numbers in three processes.
TEST(QueuePairTable, numbers_do_not_tell_of_each_other) {
    std::set<uint32_t> first, steps;
    for (int process = 0; process < 3; ++process) {
        QueuePairTable table(Secret::random());
        std::vector<QueuePair> qps(64);
        std::set<uint32_t> generations;
        for (QueuePair& qp : qps) {
            ASSERT_TRUE(table.insert(qp));
            generations.insert(qp.qpn >> 16);
        }
        first.insert(qps[0].qpn);
        steps.insert((qps[1].qpn - qps[0].qpn) & 0xFFFF);
        EXPECT_GT(generations.size(), 32u) << "each index has its own";
    }
    EXPECT_GT(first.size(), 1u);
    EXPECT_GT(steps.size(), 1u);
}

TEST(QueuePairTable, takes_as_many_as_it_says) {
    QueuePairTable table(Secret::random());
    std::vector<QueuePair> all(QueuePairTable::kCapacity);
    for (QueuePair& qp : all) ASSERT_TRUE(table.insert(qp));
    QueuePair more;
    EXPECT_FALSE(table.insert(more));
    const uint32_t gone = all[1000].qpn;
    table.remove(all[1000]);
    EXPECT_TRUE(table.insert(more));
    EXPECT_NE(more.qpn, gone);
}

TEST(MulticastGroups, HoldWhatTheyAreTold) {
    MulticastGroups groups;
    QueuePair a, b, elsewhere;
    for (QueuePair* qp : {&a, &b, &elsewhere}) qp->type = IBV_QPT_UD;
    b.worker = 2;
    elsewhere.port = 1;
    const wire::Gid group{0xFF, 0x0E, 1}, other{0xFF, 0x0E, 2};
    EXPECT_TRUE(groups.attach(group, a));
    EXPECT_FALSE(groups.attach(group, a)) << "a QP joins once";
    EXPECT_TRUE(groups.attach(group, b));
    EXPECT_TRUE(groups.attach(other, a));
    EXPECT_TRUE(groups.attach(group, elsewhere));
    EXPECT_EQ(groups.size(), 3u) << "groups of different ports have nothing in common";
    ASSERT_NE(groups.find(0, group), nullptr);
    EXPECT_EQ(groups.find(0, group)->members(0), std::vector<QueuePair*>{&a});
    EXPECT_TRUE(groups.find(0, group)->members(1).empty());
    EXPECT_EQ(groups.find(0, group)->members(2), std::vector<QueuePair*>{&b});
    EXPECT_TRUE(groups.find(0, group)->members(9).empty());
    EXPECT_EQ(groups.find(1, other), nullptr);
    EXPECT_FALSE(groups.detach(other, b));
    EXPECT_TRUE(groups.detach(group, a));
    EXPECT_FALSE(groups.detach(group, a));
    EXPECT_TRUE(groups.detach(other, a));
    EXPECT_EQ(groups.find(0, other), nullptr);
    EXPECT_TRUE(groups.detach(group, elsewhere));
    EXPECT_EQ(groups.size(), 1u);
    EXPECT_EQ(groups.find(0, group)->members(2), std::vector<QueuePair*>{&b});
}

// T20: two atomics that are kept may be 2^24 packets apart. A repeated request is the later one's.
TEST(AtomicReplay, TheLatestOfTwoWithOnePsn) {
    for (uint32_t before = 0; before < 4; ++before) {
        AtomicReplay results;
        results.make_room(4);
        for (uint32_t i = 0; i < before; ++i) results.record(Psn(100 + i), 0);
        results.record(Psn(7), 1);
        results.record(Psn(8), 2);
        results.record(Psn(7) + Psn::kMask + 1, 3);
        ASSERT_NE(results.find(Psn(7)), nullptr);
        EXPECT_EQ(*results.find(Psn(7)), 3u) << before;
        EXPECT_EQ(*results.find(Psn(8)), 2u) << before;
        results.make_room(9);
        EXPECT_EQ(*results.find(Psn(7)), 3u) << before;
        for (uint32_t i = 0; i < 6; ++i) results.record(Psn(200 + i), 9);
        EXPECT_EQ(*results.find(Psn(7)), 3u) << before;
        results.record(Psn(300), 9);
        results.record(Psn(301), 9);
        results.record(Psn(302), 9);
        EXPECT_EQ(results.find(Psn(7)), nullptr) << before;
    }
}

TEST(AtomicReplay, NothingIsKnownAtFirst) {
    AtomicReplay results;
    EXPECT_EQ(results.find(Psn(0)), nullptr);
    results.make_room(1);
    EXPECT_EQ(results.find(Psn(0)), nullptr);
}

}  // namespace
}  // namespace rove::transport
