// SPDX-License-Identifier: Apache-2.0
// Tests impaired paths in virtual time, to the nanosecond: each impairment alone and in combination, the limits, and
// that no mbuf leaks.
#include <gtest/gtest.h>
#include <rte_eal.h>
#include <rte_mempool.h>

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "../wire/samples.h"
#include "port/fault_injection/impairment.h"
#include "wire/in_network.h"

namespace rove::datapath {
namespace {

constexpr uint32_t kFrameBytes = 100;

std::vector<FaultDecision> fates(const PathSettings& settings, size_t count, uint64_t seed = 7) {
    FaultGenerator dice(seed);
    dice.set(settings);
    std::vector<FaultDecision> drawn;
    for (size_t i = 0; i < count; ++i) drawn.push_back(dice.next(kFrameBytes));
    return drawn;
}

TEST(FateDiceTest, SameSeedSameFates) {
    const PathSettings settings{.loss = 0.1, .duplicate = 0.1, .corrupt = 0.1, .reorder = 0.1, .mark = 0.1};
    EXPECT_EQ(fates(settings, 10'000), fates(settings, 10'000));
    EXPECT_NE(fates(settings, 10'000), fates(settings, 10'000, 8));
}

TEST(FateDiceTest, NothingHappensWhenNothingIsAsked) {
    for (const FaultDecision& fate : fates({}, 1000)) EXPECT_EQ(fate, FaultDecision{});
}

TEST(FateDiceTest, CertaintyIsCertain) {
    for (const FaultDecision& fate : fates({.loss = 1}, 1000)) EXPECT_TRUE(fate.lose);
    for (const FaultDecision& fate : fates({.duplicate = 1}, 1000)) EXPECT_TRUE(fate.duplicate);
    for (const FaultDecision& fate : fates({.reorder = 1}, 1000)) EXPECT_GT(fate.hold_frames, 0u);
    for (const FaultDecision& fate : fates({.mark = 1}, 1000)) EXPECT_TRUE(fate.mark);
}

TEST(FateDiceTest, AHeldFrameWaitsForOneToFourAndIsNotDoubled) {
    std::set<uint32_t> holds;
    for (const FaultDecision& fate : fates({.duplicate = 1, .reorder = 1}, 1000)) {
        holds.insert(fate.hold_frames);
        EXPECT_FALSE(fate.duplicate);
    }
    EXPECT_EQ(holds, (std::set<uint32_t>{1, 2, 3, 4}));
}

TEST(FateDiceTest, RatesAreThoseAskedFor) {
    constexpr size_t kDraws = 200'000;
    size_t lost = 0, duplicated = 0, corrupted = 0, held = 0, marked = 0;
    for (const FaultDecision& fate :
         fates({.loss = 0.01, .duplicate = 0.02, .corrupt = 0.03, .reorder = 0.04, .mark = 0.05}, kDraws)) {
        lost += fate.lose;
        duplicated += fate.duplicate;
        corrupted += fate.flip_bit >= 0;
        held += fate.hold_frames != 0;
        marked += fate.mark;
        EXPECT_LT(fate.flip_bit, static_cast<int64_t>(kFrameBytes * 8));
    }
    // The tolerance is five standard deviations: of 200 000 draws with probability p, the number of hits deviates by
    // sqrt(200 000 p).
    EXPECT_NEAR(lost, 2000, 225);
    EXPECT_NEAR(duplicated, 4000 * 0.95, 320);  // neither lost nor reordered
    EXPECT_NEAR(corrupted, 6000 * 0.99, 390);
    EXPECT_NEAR(held, 8000 * 0.99, 450);
    EXPECT_NEAR(marked, 10'000 * 0.99, 500);
}

TEST(SettingsTest, ChangeIsAllOrNothing) {
    PathSettings settings{.loss = 0.5};
    EXPECT_EQ(change(settings, "delay_us=200,down=true,mark=1e-3"), "");
    EXPECT_EQ(settings, (PathSettings{.loss = 0.5, .mark = 0.001, .delay_us = 200, .down = true}));
    const PathSettings before = settings;
    const std::map<std::string, std::string> refused{
        {"loss=0.1,delay=3",
         "got the unknown key 'delay', allowed loss, duplicate, corrupt, reorder, mark, delay_us, "},
        {"loss=1.5", "key 'loss': got '1.5', allowed a number 0..1"},
        {"loss=nan", "key 'loss': got 'nan'"},
        {"loss=", "key 'loss': got ''"},
        {"loss", "got 'loss', allowed KEY=VALUE"},
        {",", "got '', allowed KEY=VALUE"},
        {"delay_us=1000001", "key 'delay_us': got '1000001', allowed an integer 0..1000000"},
        {"delay_us=-1", "key 'delay_us': got '-1'"},
        {"rate_mbps=1e3", "key 'rate_mbps': got '1e3'"},
        {"queue_packets=0", "key 'queue_packets': got '0', allowed an integer 1..2048"},
        {"down=yes", "key 'down': got 'yes', allowed true or false"},
    };
    for (const auto& [text, message] : refused) {
        EXPECT_EQ(change(settings, text).substr(0, message.size()), message);
        EXPECT_EQ(settings, before) << text;
    }
}

TEST(SettingsTest, TextsAreWhatChangeTakes) {
    const PathSettings settings{.loss = 0.05, .delay_us = 7, .rate_mbps = 10'000, .queue_packets = 9, .down = true};
    std::string text;
    for (const auto& [key, value] : texts(settings)) text += (text.empty() ? "" : ",") + std::string(key) + "=" + value;
    EXPECT_EQ(text, "loss=0.05,delay_us=7,rate_mbps=10000,queue_packets=9,down=true");
    PathSettings read;
    EXPECT_EQ(change(read, text), "");
    EXPECT_EQ(read, settings);
    EXPECT_TRUE(texts({}).empty());
}

rte_mempool* pool() {
    static rte_mempool* const made = [] {
        std::array<const char*, 9> args{"test", "--no-huge", "--no-shconf", "--no-pci", "--no-telemetry",
                                        "-m",   "64",        "--log-level", "*:error"};
        if (rte_eal_init(args.size(), const_cast<char**>(args.data())) < 0) return static_cast<rte_mempool*>(nullptr);
        return rte_pktmbuf_pool_create("test", 4095, 0, 0, 2048 + RTE_PKTMBUF_HEADROOM, SOCKET_ID_ANY);
    }();
    return made;
}

// Tests with an impaired port. Frames are numbered, and recorded with the time at which they leave it.
class ImpairTest : public testing::Test {
  protected:
    struct Out {
        uint32_t number;  // the PSN of the frame
        uint64_t at_ns;
        bool operator==(const Out&) const = default;
    };
    static constexpr uint16_t kPort = 0xC000;

    void SetUp() override { ASSERT_NE(pool(), nullptr); }
    void TearDown() override {
        stage_.reset();
        EXPECT_EQ(rte_mempool_in_use_count(pool()), 0u);
    }
    void start(const PathSettings& device, std::vector<PathSettings> paths = {}, uint64_t seed = 1) {
        stage_ = std::make_unique<Impairment>(ImpairConfig{device, std::move(paths), seed}, shelf_, pool());
    }
    rte_mbuf* mbuf(const wire::samples::Frame& frame) {
        rte_mbuf* made = rte_pktmbuf_alloc(pool());
        std::ranges::copy(frame, rte_pktmbuf_append(made, static_cast<uint16_t>(frame.size())));
        return made;
    }
    // Returns the next frame from `udp_src`, with `kBytes` bytes.
    static constexpr size_t kBytes = 1250;  // 10 us at 1 Gb/s
    rte_mbuf* next(uint16_t udp_src = kPort, bool v6 = false, bool vlan = false, uint8_t ecn = wire::kEcnEct0) {
        wire::Flow flow = wire::samples::flow(v6, vlan);
        flow.udp_src = udp_src;
        flow.traffic_class = static_cast<uint8_t>(26 << 2 | ecn);
        wire::Headers headers = wire::samples::headers(0x04);  // SEND Only
        headers.bth.psn = sent_++;
        const size_t overhead = wire::frame_bytes(wire::make_template(flow), 0x04, 0);
        return mbuf(wire::samples::frame(flow, headers, wire::samples::random_bytes(kBytes - overhead)));
    }
    void run(std::vector<rte_mbuf*> arrived, uint64_t now_ns) {
        for (rte_mbuf* one : stage_->run(arrived, now_ns)) {
            wire::ParsedFrame frame;
            const std::span<const uint8_t> bytes(rte_pktmbuf_mtod(one, const uint8_t*), one->data_len);
            const wire::ParseError error = wire::parse_frame(bytes, frame);
            if (error == wire::ParseError::kNone) {
                out_.push_back({frame.headers.bth.psn, now_ns});
                congested_ += frame.ce();
            } else {
                ++damaged_;
            }
            rte_pktmbuf_free(one);
        }
    }
    void arrive(uint64_t now_ns, size_t count = 1) {
        std::vector<rte_mbuf*> burst;
        for (size_t i = 0; i < count; ++i) burst.push_back(next());
        run(burst, now_ns);
    }
    // Runs rounds at exactly the deadlines, until no frame waits.
    void drain() {
        while (stage_->next_deadline() != UINT64_MAX) run({}, stage_->next_deadline());
    }
    std::vector<uint32_t> numbers() const {
        std::vector<uint32_t> list;
        for (const Out& out : out_) list.push_back(out.number);
        return list;
    }
    uint64_t count(ImpairCounter counter, size_t path = 0) const {
        return stage_->paths()[path].state().counters[counter];
    }
    void change(std::string_view changes, uint64_t now_ns) { stage_->change(std::nullopt, changes, now_ns); }

    DelayedFramePool shelf_;
    std::unique_ptr<Impairment> stage_;
    uint32_t sent_ = 0;
    std::vector<Out> out_;
    size_t damaged_ = 0, congested_ = 0;
};

TEST_F(ImpairTest, NothingAskedNothingDone) {
    start({});
    arrive(1000, 40);
    EXPECT_EQ(out_.size(), 40u);
    EXPECT_TRUE(std::ranges::is_sorted(numbers()));
    EXPECT_EQ(stage_->next_deadline(), UINT64_MAX);
    EXPECT_EQ(count(ImpairCounter::kFrames), 40u);
    EXPECT_EQ(count(ImpairCounter::kBytes), 40 * kBytes);
    EXPECT_EQ(count(ImpairCounter::kDelayed), 0u);
}

TEST_F(ImpairTest, DelayIsExact) {
    start({.delay_us = 200});
    arrive(1000);
    arrive(1500, 2);
    EXPECT_EQ(stage_->next_deadline(), 201'000u);
    run({}, 200'999);
    EXPECT_TRUE(out_.empty());
    drain();
    EXPECT_EQ(out_, (std::vector<Out>{{0, 201'000}, {1, 201'500}, {2, 201'500}}));
}

TEST_F(ImpairTest, RateIsExactWhenLookedAtLate) {
    start({.rate_mbps = 3000});  // a frame takes 3333 1/3 ns
    arrive(0, 10);
    EXPECT_EQ(stage_->next_deadline(), 3333u);
    run({}, 3332);
    EXPECT_TRUE(out_.empty());
    run({}, 20'000);  // no round for a long time
    EXPECT_EQ(out_.size(), 6u) << "and the sixth has just ended";
    drain();
    ASSERT_EQ(out_.size(), 10u);
    EXPECT_EQ(out_.back().at_ns, 33'333u) << "10 frames of 10 000 bits at 3 Gb/s";
    arrive(100'000, 1);
    drain();
    EXPECT_NEAR(out_.back().at_ns, 103'333, 1) << "a transmitter that rested begins at once";
}

TEST_F(ImpairTest, DelayComesAfterRate) {
    start({.delay_us = 50, .rate_mbps = 1000});
    arrive(0, 3);
    drain();
    EXPECT_EQ(out_, (std::vector<Out>{{0, 60'000}, {1, 70'000}, {2, 80'000}}));
}

TEST_F(ImpairTest, QueueIsBounded) {
    start({.rate_mbps = 1000, .queue_packets = 4});
    arrive(0, 10);
    EXPECT_EQ(count(ImpairCounter::kQueueFull), 5u) << "one is sent, four wait";
    arrive(10'000);  // the first has been sent
    EXPECT_EQ(count(ImpairCounter::kQueueFull), 5u);
    drain();
    EXPECT_EQ(numbers(), (std::vector<uint32_t>{0, 1, 2, 3, 4, 10}));
}

TEST_F(ImpairTest, ShelfIsBoundedForAllPathsTogether) {
    start({.delay_us = 1000}, {{.delay_us = 1000}, {.delay_us = 1000}});
    for (uint32_t i = 0; i < 2100; ++i) run({next(static_cast<uint16_t>(kPort + i % 2))}, i);
    EXPECT_EQ(count(ImpairCounter::kShelfFull, 0) + count(ImpairCounter::kShelfFull, 1),
              2100u - DelayedFramePool::kFrames);
    EXPECT_EQ(rte_mempool_in_use_count(pool()), DelayedFramePool::kFrames);
    drain();
    EXPECT_EQ(out_.size(), DelayedFramePool::kFrames);
    EXPECT_TRUE(std::ranges::is_sorted(numbers()));
}

TEST_F(ImpairTest, OneRoundGivesNoMoreThanABurst) {
    start({.delay_us = 1});
    arrive(0, Impairment::kBurst + 36);
    run({}, 1'000'000);
    EXPECT_EQ(out_.size(), Impairment::kBurst);
    EXPECT_LE(stage_->next_deadline(), 1'000'000u);
    drain();
    EXPECT_EQ(out_.size(), Impairment::kBurst + 36);
}

TEST_F(ImpairTest, PathsAreUdpSourcePortModuloPaths) {
    start({}, std::vector<PathSettings>(8));
    for (uint32_t i = 0; i < 80; ++i) run({next(static_cast<uint16_t>(49153 + i * 3), i % 4 > 1, i % 2)}, i);
    for (size_t path = 0; path < 8; ++path) EXPECT_EQ(count(ImpairCounter::kFrames, path), 10u);
    EXPECT_EQ(count(ImpairCounter::kFrames, 8), 0u);
    wire::samples::Frame arp(60, 0xFF);
    arp[12] = 8, arp[13] = 6;
    run({mbuf(arp), mbuf({}), mbuf({1, 2, 3})}, 1000);
    EXPECT_EQ(count(ImpairCounter::kFrames, 8), 3u) << "what is not RoCE belongs to no path";
}

TEST_F(ImpairTest, PathsDoNotTouchEachOther) {
    start({}, {{.delay_us = 30}, {.delay_us = 10}, {.loss = 1}, {.down = true}, {}});
    const uint16_t base = 49'150;  // maps to path 0
    std::vector<rte_mbuf*> burst;
    for (uint16_t i = 0; i < 10; ++i) burst.push_back(next(static_cast<uint16_t>(base + i % 5)));
    run(burst, 0);
    drain();
    EXPECT_EQ(out_, (std::vector<Out>{{4, 0}, {9, 0}, {1, 10'000}, {6, 10'000}, {0, 30'000}, {5, 30'000}}));
    EXPECT_EQ(count(ImpairCounter::kLost, 2), 2u);
    EXPECT_EQ(count(ImpairCounter::kDown, 3), 2u);
}

TEST_F(ImpairTest, LateRoundsKeepTheOrderAmongPaths) {
    start({}, {{.delay_us = 300}, {.delay_us = 310}});
    for (uint64_t i = 0; i < 4; ++i) run({next(kPort), next(kPort + 1)}, i * 20'000);
    run({}, 1'000'000);
    EXPECT_EQ(numbers(), (std::vector<uint32_t>{0, 1, 2, 3, 4, 5, 6, 7}));
}

TEST_F(ImpairTest, ReorderedFramesComeOneToFourLate) {
    start({.reorder = 0.2});
    for (uint32_t i = 0; i < 2000; ++i) arrive(i);
    const uint64_t reordered = count(ImpairCounter::kReordered);
    EXPECT_NEAR(static_cast<double>(reordered), 400, 90);
    std::vector<uint32_t> seen = numbers();
    EXPECT_GE(seen.size(), 1996u) << "at most four still wait for others";
    EXPECT_FALSE(std::ranges::is_sorted(seen));
    uint32_t newest = 0;
    for (const uint32_t number : seen) {
        newest = std::max(newest, number);
        EXPECT_LE(newest - number, FaultGenerator::kMaxHoldFrames);
    }
}

TEST_F(ImpairTest, ReorderingHoldsAtMostFour) {
    start({.reorder = 1});
    for (uint32_t i = 0; i < 1000; ++i) {
        arrive(i);
        EXPECT_LE(rte_mempool_in_use_count(pool()), FaultGenerator::kMaxHoldFrames);
    }
}

TEST_F(ImpairTest, CorruptionIsSeenDuplicatesAreSame) {
    start({.duplicate = 1});
    arrive(0, 3);
    EXPECT_EQ(numbers(), (std::vector<uint32_t>{0, 0, 1, 1, 2, 2}));
    start({.corrupt = 1});
    out_.clear();
    arrive(0, 200);
    EXPECT_EQ(out_.size() + damaged_, 200u);
    EXPECT_GT(damaged_, 190u) << "a flipped bit of MACs, TTL, DSCP, ... is for no checksum to see";
}

TEST_F(ImpairTest, MarksLeaveChecksumAndIcrcRight) {
    start({.mark = 1});
    for (const bool v6 : {false, true})
        for (const bool vlan : {false, true})
            for (const uint8_t ecn : {wire::kEcnEct0, wire::kEcnEct1, wire::kEcnCe, wire::kEcnNotEct})
                run({next(kPort, v6, vlan, ecn)}, 0);
    EXPECT_EQ(out_.size(), 16u);
    EXPECT_EQ(damaged_, 0u);
    EXPECT_EQ(congested_, 12u) << "what is not of an ECN-capable transport is left alone";
    EXPECT_EQ(count(ImpairCounter::kMarked), 12u);
}

TEST_F(ImpairTest, AQueueLongerThanTheThresholdMarks) {
    start({.rate_mbps = 1000, .ecn_threshold_packets = 3});
    arrive(0, 10);
    drain();
    EXPECT_EQ(out_.size(), 10u);
    EXPECT_EQ(congested_, 6u) << "one is sent, three wait, the next six find three or more";
}

TEST_F(ImpairTest, DeathDropsAllAndEnds) {
    start({.reorder = 0.3, .delay_us = 10, .rate_mbps = 1000});
    arrive(0, 30);
    EXPECT_GT(rte_mempool_in_use_count(pool()), 0u);
    change("down=true", 100);
    EXPECT_EQ(rte_mempool_in_use_count(pool()), 0u) << "what was on its way is lost too";
    EXPECT_EQ(stage_->next_deadline(), UINT64_MAX);
    arrive(200, 5);
    EXPECT_TRUE(out_.empty());
    EXPECT_EQ(count(ImpairCounter::kDown), 35u);
    change("down=false,reorder=0", 1000);
    arrive(1000);
    drain();
    EXPECT_EQ(out_, (std::vector<Out>{{35, 1000 + 10'000 + 10'000}})) << "nothing of before is left";
}

TEST_F(ImpairTest, ANewRateHoldsForWhatWaits) {
    start({.rate_mbps = 1000});
    arrive(0, 4);
    run({}, 10'000);
    change("rate_mbps=10000", 12'000);  // while the second frame is being sent
    drain();
    EXPECT_EQ(out_, (std::vector<Out>{{0, 10'000}, {1, 20'000}, {2, 21'000}, {3, 22'000}}));
    arrive(30'000, 3);
    change("rate_mbps=0", 30'500);  // while the first frame is being sent
    drain();
    EXPECT_EQ(std::vector<Out>(out_.begin() + 4, out_.end()),
              (std::vector<Out>{{4, 31'000}, {5, 31'000}, {6, 31'000}}));
}

TEST_F(ImpairTest, AShorterDelayOvertakesNothing) {
    start({.delay_us = 100});
    arrive(0);
    change("delay_us=0", 10);
    arrive(20);
    arrive(30);
    EXPECT_TRUE(out_.empty());
    drain();
    EXPECT_EQ(out_, (std::vector<Out>{{0, 100'000}, {1, 100'000}, {2, 100'000}}));
    arrive(200'000);
    EXPECT_EQ(out_.back(), (Out{3, 200'000})) << "and then it holds";
}

TEST_F(ImpairTest, ChangesOfOnePathLeaveTheOthers) {
    start({.loss = 0.1}, {{.loss = 0.2}, {.loss = 0.3}});
    stage_->change(1, "delay_us=5", 0);
    stage_->change(std::nullopt, "mark=1", 0);
    EXPECT_EQ(stage_->paths()[0].state().settings, (PathSettings{.loss = 0.2, .mark = 1}));
    EXPECT_EQ(stage_->paths()[1].state().settings, (PathSettings{.loss = 0.3, .mark = 1, .delay_us = 5}));
    EXPECT_EQ(stage_->paths()[2].state().settings, (PathSettings{.loss = 0.1, .mark = 1}));
}

// Applies all impairments at once while they change. The same seed gives the same run, and every frame is accounted
// for.
TEST_F(ImpairTest, SameSeedSameRunAndEveryFrameIsAccountedFor) {
    const auto all = [&](uint64_t seed) {
        const PathSettings wild{.loss = 0.1,
                                .duplicate = 0.1,
                                .corrupt = 0.05,
                                .reorder = 0.1,
                                .mark = 0.1,
                                .delay_us = 20,
                                .rate_mbps = 5000,
                                .queue_packets = 20,
                                .ecn_threshold_packets = 5};
        start(wild, std::vector<PathSettings>(3, wild), seed);
        out_.clear();
        sent_ = damaged_ = 0;
        for (uint32_t i = 0; i < 3000; ++i) {
            if (i == 1000) stage_->change(1, "down=true", i * 500);
            if (i == 1500) stage_->change(1, "down=false,rate_mbps=0", i * 500);
            if (i == 2000) change("delay_us=3", i * 500);
            run({next(static_cast<uint16_t>(kPort + i % 7))}, i * 500);
        }
        drain();
        uint64_t in = 0, gone = 0;
        for (const ImpairedPath& path : stage_->paths()) {
            const auto [settings, counters, waiting] = path.state();
            in += counters[ImpairCounter::kFrames] + counters[ImpairCounter::kDuplicated];
            for (const auto drop : {ImpairCounter::kLost, ImpairCounter::kDown, ImpairCounter::kQueueFull})
                gone += counters[drop];
            gone += waiting;  // reordered, with no later frame
        }
        EXPECT_EQ(in - gone, out_.size() + damaged_);
        EXPECT_GT(count(ImpairCounter::kQueueFull), 0u);
        return out_;
    };
    const std::vector<Out> first = all(1);
    EXPECT_EQ(first, all(1));
    EXPECT_NE(first, all(2));
}

}  // namespace
}  // namespace rove::datapath
