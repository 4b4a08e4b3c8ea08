// SPDX-License-Identifier: Apache-2.0
// QPs in mp mode: the order in which programs see data while packets overtake each other.
#include <vector>

#include "rove/verbs.h"
#include "transport/multipath.h"

namespace rove::test {
namespace {

TEST_F(Multipath, EU6_CompletionsOnlyWhenEverythingBeforeIsInOrder) {
    receive(1, 0, 4096);
    receive(2, 8192, 4096);
    delay(0);
    post(send(1, 0, 100));
    post(send(2, 200, 100));
    net.pump();
    run_briefly();
    EXPECT_TRUE(received().empty());
    EXPECT_TRUE(sent().empty());
    EXPECT_EQ(acks(b), std::vector{MpAck::kSack});
    net.release();
    ASSERT_TRUE(run());
    EXPECT_EQ(ids(received()), (std::vector<uint64_t>{1, 2}));
    EXPECT_EQ(ids(sent()), (std::vector<uint64_t>{1, 2}));
    EXPECT_TRUE(arrived(0, 100, 0));
    EXPECT_TRUE(arrived(8192, 100, 200));
}

// A program that polls the last byte of a WRITE.
TEST_F(Multipath, EU7_TheLastPacketIsHeldUntilAllBeforeItArePlaced) {
    delay(1);
    post(write(1, 0, 4 * 1024, 0));
    net.pump();
    run_briefly();
    EXPECT_TRUE(arrived(0, 1024, 0));
    EXPECT_TRUE(arrived(2 * 1024, 1024, 2 * 1024));
    EXPECT_FALSE(arrived(3 * 1024, 1024, 3 * 1024));
    EXPECT_EQ(b.engine.multipath()->early_count(), 1u);
    net.release();
    ASSERT_TRUE(run());
    EXPECT_TRUE(arrived(0, 4 * 1024, 0));
    EXPECT_EQ(b.engine.multipath()->early_count(), 0u);
}

// Data, then a flag.
TEST_F(Multipath, EU7_ALaterWriteIsNotVisibleBeforeAnEarlierOne) {
    delay(0);
    post(write(1, 0, 512, 0));
    post(write(2, 1024, 8, 2048));
    net.pump();
    run_briefly();
    EXPECT_FALSE(arrived(2048, 8, 1024));
    net.release();
    ASSERT_TRUE(run());
    EXPECT_TRUE(arrived(0, 512, 0));
    EXPECT_TRUE(arrived(2048, 8, 1024));
}

TEST_F(Multipath, EU7_RelaxedOrderingGivesThatUp) {
    Buffer& relaxed = b.buffer(4096, kAllAccess | IBV_ACCESS_RELAXED_ORDERING);
    const auto to_relaxed = [&](uint64_t id, size_t from, size_t bytes, size_t to) {
        Send s = write(id, from, bytes, 0);
        s.remote_addr = relaxed.address(to);
        s.rkey = relaxed.key();
        return s;
    };
    delay(0);
    post(to_relaxed(1, 0, 512, 0));
    post(to_relaxed(2, 1024, 8, 2048));
    net.pump();
    run_briefly();
    EXPECT_EQ(relaxed.bytes(2048, 8), ma.bytes(1024, 8));
    EXPECT_TRUE(sent().empty());
    net.release();
    ASSERT_TRUE(run());
    EXPECT_EQ(relaxed.bytes(0, 512), ma.bytes(0, 512));
}

struct SenderDelay : Multipath {
    SenderDelay() : Multipath(with(transport::Ordering::kSenderDelay)) {}
};

TEST_F(SenderDelay, EU7_TheLastPacketOfAWriteWaitsForTheAcksOfAllBeforeIt) {
    post(write(1, 0, 4 * 1024, 0));
    post(write(2, 8192, 8, 8192));
    ASSERT_TRUE(run());
    std::vector<uint64_t> times;
    for (const Observed& p : net.trace) {
        if (p.from == a.index()) times.push_back(p.time);
    }
    constexpr uint64_t kRoundTrip = 2 * 2 * kMicrosecond;
    const uint64_t start = times.front();
    EXPECT_EQ(times, (std::vector<uint64_t>{start, start, start, start + kRoundTrip, start + 2 * kRoundTrip}));
    EXPECT_EQ(a.counter(Counter::kDelayedPackets), 2u);
    EXPECT_EQ(b.engine.multipath()->held_peak(), 0u);
    EXPECT_TRUE(arrived(0, 4 * 1024, 0));
}

TEST_F(Optimistic, MP12_ASynchroniseOperationLeavesLaterAndAllItsPacketsSayWhatItIs) {
    post(write(1, 0, 8, 0));  // measures the round trip
    ASSERT_TRUE(run());
    net.trace.clear();
    post(write(2, 0, 4 * 1024, 0));
    post(sync(write(3, 8192, 2 * 1024, 8192)));
    net.pump();
    const uint64_t delay = a.engine.multipath()->paths.sync_delay_ns(qa->mp()->requests);
    ASSERT_GT(delay, 0u);
    ASSERT_LT(delay, 4 * kMicrosecond);
    ASSERT_TRUE(run());
    std::vector<std::pair<uint64_t, bool>> packets;
    for (const Observed& p : net.trace) {
        if (p.from == a.index()) packets.emplace_back(p.time - net.trace[0].time, p.headers.mp.sync());
    }
    const std::pair<uint64_t, bool> before{0, false}, after{delay, true};
    EXPECT_EQ(packets, (std::vector{before, before, before, before, after, after}));
    EXPECT_EQ(a.counter(Counter::kDelayedPackets), 1u);
}

TEST_F(Optimistic, MP12_ASynchroniseOperationThatIsEarlyIsDroppedAndNacked) {
    delay(0);
    post(write(1, 0, 512, 0));
    post(sync(write(2, 1024, 8, 2048)));
    net.pump();
    net.run_for(4 * kMicrosecond);
    EXPECT_EQ(b.counter(Counter::kDropEarlySync), 1u);
    EXPECT_EQ(acks(b), std::vector{MpAck::kNack});
    EXPECT_FALSE(arrived(2048, 8, 1024));
    net.filter = nullptr;
    ASSERT_TRUE(run());
    EXPECT_TRUE(arrived(0, 512, 0));
    EXPECT_TRUE(arrived(2048, 8, 1024));
    EXPECT_EQ(b.engine.multipath()->held_peak(), 0u);
}

// Returns how often a program finds a flag without its data. The peer writes data and then a flag, over a network that
// reorders packets, and the program reads after each packet.
uint64_t flags_without_data(const Config& sender, const Config& receiver, uint32_t flags = IBV_SEND_SIGNALED) {
    uint64_t found = 0;
    for (uint64_t seed = 1; seed <= 20; ++seed) {
        struct Story : Multipath {
            using Multipath::Multipath;
            void TestBody() override {}
        } story(sender, receiver);
        constexpr size_t kMessages = 16, kData = 3000, kFlags = 64 * 1024;
        story.net.random() = Random(seed);
        story.net.egress[0].reorder = story.net.egress[0].loss = 0.1;
        story.net.filter = [&](const Observed& p) {
            if (p.from != story.b.index()) return Verdict::kPass;
            for (size_t i = 0; i < kMessages; ++i) {
                found +=
                    story.arrived(kFlags + 8 * i, 8, kFlags + 8 * i) && !story.arrived(i * kData, kData, i * kData);
            }
            return Verdict::kPass;
        };
        for (size_t i = 0; i < kMessages; ++i) {
            story.post(story.write(2 * i, i * kData, kData, i * kData));
            Send flag = story.write(2 * i + 1, kFlags + 8 * i, 8, kFlags + 8 * i);
            flag.flags = flags;
            story.post(flag);
        }
        EXPECT_TRUE(story.run());
        EXPECT_EQ(story.sent().size(), 2 * kMessages);
        EXPECT_TRUE(story.arrived(0, kMessages * kData, 0));
    }
    return found;
}

// Where the ends differ, the stricter setting applies.
TEST(Ordering, EU7_AFlagIsNotThereBeforeItsDataUnlessBothEndsAgree) {
    using enum transport::Ordering;
    const Config hold = with(kReceiverHold), delay = with(kSenderDelay), optimistic = with(kOptimistic);
    EXPECT_EQ(flags_without_data(hold, hold), 0u);
    EXPECT_EQ(flags_without_data(hold, optimistic), 0u);
    EXPECT_EQ(flags_without_data(optimistic, hold), 0u);
    EXPECT_EQ(flags_without_data(delay, delay), 0u);
    EXPECT_EQ(flags_without_data(delay, optimistic), 0u);
    EXPECT_EQ(flags_without_data(delay, hold), 0u);
    EXPECT_GT(flags_without_data(optimistic, optimistic), 0u);
    EXPECT_GT(flags_without_data(optimistic, delay), 0u);
}

TEST(Ordering, MP12_WithTheSynchroniseFlagAFlagIsNeverThereBeforeItsData) {
    using enum transport::Ordering;
    for (const transport::Ordering sender : {kReceiverHold, kSenderDelay, kOptimistic})
        EXPECT_EQ(flags_without_data(with(sender), with(kOptimistic), IBV_SEND_SIGNALED | ROVE_SEND_SYNC), 0u);
}

// Two WRITEs to one place: the second stays, although its middle overtakes the first.
TEST_F(Multipath, OverlappingWritesKeepTheirOrder) {
    delay(0);
    post(write(1, 0, 2 * 1024, 0));
    post(write(2, 8192, 4 * 1024, 0));
    net.pump();
    run_briefly();
    net.release();
    ASSERT_TRUE(run());
    EXPECT_TRUE(arrived(0, 4 * 1024, 8192));
}

}  // namespace
}  // namespace rove::test
