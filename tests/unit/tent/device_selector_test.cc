// SPDX-License-Identifier: Apache-2.0
// Tests which device a slice goes to, and how devices are charged and measured. selector_loop_test.cc tests the effect
// under load.
#include "tent/placement/device_selector.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <sstream>
#include <thread>

namespace rove::tent {
namespace {

constexpr uint64_t kBlock = 65'536;
constexpr double kGbps = 1e9 / 8;
constexpr uint64_t kAll = DeviceSelector::kAllDevices;

std::vector<Device> devices(std::initializer_list<double> gbps) {
    std::vector<Device> made;
    for (const double rate : gbps)
        made.push_back({.name = "rove" + std::to_string(made.size()), .bandwidth_bytes_per_s = rate * kGbps});
    return made;
}

std::vector<uint8_t> allocate(DeviceSelector& selector, size_t slices, int node = -1, uint64_t mask = kAll,
                              Priority priority = Priority::kHigh, uint64_t now_ns = 0) {
    const std::vector<uint64_t> bytes(slices, kBlock);
    std::vector<uint8_t> chosen(slices, 0xFF);
    const Status status = selector.allocate(bytes, node, mask, priority, now_ns, chosen);
    EXPECT_TRUE(status.ok()) << status.ToString();
    return chosen;
}

void finish(DeviceSelector& selector, const std::vector<uint8_t>& chosen) {
    for (const uint8_t device : chosen) selector.release(device, kBlock);
}

std::map<uint8_t, size_t> counts(const std::vector<uint8_t>& chosen) {
    std::map<uint8_t, size_t> counted;
    for (const uint8_t device : chosen) ++counted[device];
    return counted;
}

double ewma(const DeviceSelector& selector, size_t device) {
    return selector.load()[device].ewma_bandwidth;
}
uint64_t inflight(const DeviceSelector& selector, size_t device) {
    return selector.load()[device].inflight_bytes;
}

// The default bandwidth is far above the real one, and so is a tenth of the default.
TEST(DeviceSelector, T5_APortBelowTheBoundsIsLearnedAllTheSame) {
    DeviceSelector selector(devices({1}), {});
    EXPECT_EQ(ewma(selector, 0), 400 * kGbps);
    for (uint64_t ms = 1; ms < 100; ++ms) {
        selector.charge(0, 125'000);
        const PostMark mark = selector.post(0, ms * 1'000'000);
        selector.complete(0, 125'000, mark, (ms + 1) * 1'000'000);
    }
    EXPECT_NEAR(ewma(selector, 0), 1 * kGbps, 0.01 * kGbps);
}

// Observations of 1 ms and longer have the documented weight.
TEST(DeviceSelector, T2_LearningRateIsTheWeightOfTheOldValue) {
    for (const double alpha : {0.0, 0.01, 0.5, 1.0}) {
        SelectorConfig config;
        config.bandwidth_learning_rate = alpha;
        DeviceSelector selector(devices({100}), config);
        selector.charge(0, 4'000'000);
        selector.complete(0, 4'000'000, selector.post(0, 1'000), 1'000 + 2'000'000);  // 2 bytes per ns
        EXPECT_NEAR(ewma(selector, 0), alpha * 12.5e9 + (1 - alpha) * 2e9, 1) << alpha;
    }
}

TEST(DeviceSelector, T2_ShorterObservationsWeighLessInProportion) {
    DeviceSelector selector(devices({100}), {});
    selector.charge(0, 400'000);
    selector.complete(0, 400'000, selector.post(0, 1'000), 1'000 + 200'000);  // 2 bytes per ns for 0.2 ms
    EXPECT_NEAR(ewma(selector, 0), 12.5e9 + 0.2 * 0.99 * (2e9 - 12.5e9), 1);
}

TEST(DeviceSelector, T2_EstimateStaysWithinItsMultiplesOfTheLinksBandwidth) {
    DeviceSelector selector(devices({100}), {});
    selector.charge(0, kBlock);
    selector.complete(0, kBlock, selector.post(0, 0), 1'000'000'000);
    EXPECT_DOUBLE_EQ(ewma(selector, 0), 0.1 * 100 * kGbps);
    selector.charge(0, 1'000'000'000);
    selector.complete(0, 1'000'000'000, selector.post(0, 0), 1'000'000);
    EXPECT_DOUBLE_EQ(ewma(selector, 0), 10 * 100 * kGbps);
}

TEST(DeviceSelector, T3_SlicesShorterThanABlockAreCountedButTeachNothing) {
    DeviceSelector selector(devices({100}), {});
    selector.charge(0, 2 * kBlock);
    const PostMark mark = selector.post(0, 0);
    selector.complete(0, kBlock - 1, mark, 1'000'000'000);
    EXPECT_DOUBLE_EQ(ewma(selector, 0), 100 * kGbps);
    EXPECT_EQ(selector.completed_bytes(0), kBlock - 1);
    selector.complete(0, kBlock, mark, 60'000);
    EXPECT_NEAR(ewma(selector, 0), 12.5e9 + 0.06 * 0.99 * ((2. * kBlock - 1) / 60e-6 - 12.5e9), 1);
}

TEST(DeviceSelector, T3_LearnsFromCompletionsOnly) {
    DeviceSelector selector(devices({100}), {});
    selector.charge(0, 2 * kBlock);
    selector.release(0, kBlock);
    EXPECT_DOUBLE_EQ(ewma(selector, 0), 100 * kGbps);
    EXPECT_EQ(selector.completed_bytes(0), 0u);
    // The clock did not advance, so there is no rate.
    selector.complete(0, kBlock, selector.post(0, 5), 5);
    EXPECT_DOUBLE_EQ(ewma(selector, 0), 100 * kGbps);
    EXPECT_EQ(selector.completed_bytes(0), kBlock);
}

// The observation is the rate of a device that sends slices one after the other, without their time in its queue.
TEST(DeviceSelector, T3_SlicesPostedTogetherEachSeeTheDevicesRate) {
    SelectorConfig config;
    config.bandwidth_learning_rate = 0;
    DeviceSelector selector(devices({100}), config);
    constexpr uint64_t kSlice = 5'000'000;
    selector.charge(0, 8 * kSlice);
    const PostMark mark = selector.post(0, 1'000);
    for (uint64_t i = 1; i <= 8; ++i) {
        selector.complete(0, kSlice, mark, 1'000 + i * kSlice / 5);  // 5 bytes per ns
        EXPECT_NEAR(ewma(selector, 0), 5e9, 1) << i;
    }
}

TEST(DeviceSelector, T4_ChargesTrueLengthsOnTheDeviceThatIsUsed) {
    for (const bool smart : {true, false}) {
        SelectorConfig config;
        config.enable_smart_scheduling = smart;
        DeviceSelector selector(devices({100, 100}), config);
        const std::vector<uint64_t> bytes{kBlock, kBlock, kBlock, 100};
        std::vector<uint8_t> chosen(4);
        ASSERT_TRUE(selector.allocate(bytes, -1, kAll, Priority::kHigh, 0, chosen).ok());
        std::array<uint64_t, 2> expected{};
        for (size_t i = 0; i < 4; ++i) expected[chosen[i]] += bytes[i];
        EXPECT_EQ(inflight(selector, 0), expected[0]);
        EXPECT_EQ(inflight(selector, 1), expected[1]);
        const uint8_t other = 1 - chosen[3];
        selector.release(chosen[3], bytes[3]);
        selector.charge(other, bytes[3]);
        chosen[3] = other;
        for (size_t i = 0; i < 4; ++i) selector.complete(chosen[i], bytes[i], {}, 1'000);
        EXPECT_EQ(inflight(selector, 0), 0u);
        EXPECT_EQ(inflight(selector, 1), 0u);
    }
}

TEST(DeviceSelector, T4_InflightIsZeroAgainAfterWhateverThreadsDid) {
    for (const bool smart : {true, false}) {
        SelectorConfig config;
        config.enable_smart_scheduling = smart;
        DeviceSelector selector(devices({100, 200, 100, 400}), config);
        std::atomic<uint64_t> completed{0};
        const auto work = [&](uint64_t seed) {
            std::mt19937_64 random(seed);
            std::vector<uint64_t> bytes;
            std::vector<uint8_t> chosen;
            for (uint64_t now = 1; now < 4'000; ++now) {
                bytes.assign(1 + random() % 64 * (random() % 2), kBlock);
                bytes.back() = 1 + random() % kBlock;
                chosen.assign(bytes.size(), 0);
                const Status status =
                    selector.allocate(bytes, -1, kAll, static_cast<Priority>(random() % 3), now * 1'000, chosen);
                ASSERT_TRUE(status.ok());
                for (size_t i = 0; i < bytes.size(); ++i) {
                    const PostMark mark = selector.post(chosen[i], now * 1'000);
                    switch (random() % 4) {
                        case 0:
                            selector.release(chosen[i], bytes[i]);
                            break;
                        case 1: {
                            const auto other = static_cast<uint8_t>(random() % 4);
                            selector.charge(other, bytes[i]);
                            selector.release(chosen[i], bytes[i]);
                            selector.release(other, bytes[i]);
                            break;
                        }
                        default:
                            selector.complete(chosen[i], bytes[i], mark, now * 1'000 + random() % 10'000);
                            completed += bytes[i];
                    }
                }
                if (random() % 100 == 0) selector.set_bandwidth(static_cast<uint8_t>(random() % 4), 100 * kGbps);
            }
        };
        std::thread first(work, 1), second(work, 2);
        first.join();
        second.join();
        uint64_t total = 0;
        for (uint8_t device = 0; device < 4; ++device) {
            EXPECT_EQ(inflight(selector, device), 0u) << int{device};
            total += selector.completed_bytes(device);
        }
        EXPECT_EQ(total, completed.load());
    }
}

TEST(DeviceSelector, T5_ReportedBandwidthOutOfBoundsIsReplacedByTheDefault) {
    const DeviceSelector selector(devices({100, 0, 9.9, 800, 801}), {});
    EXPECT_DOUBLE_EQ(ewma(selector, 0), 100 * kGbps);
    EXPECT_DOUBLE_EQ(ewma(selector, 1), 400 * kGbps);
    EXPECT_DOUBLE_EQ(ewma(selector, 2), 400 * kGbps);
    EXPECT_DOUBLE_EQ(ewma(selector, 3), 800 * kGbps);
    EXPECT_DOUBLE_EQ(ewma(selector, 4), 400 * kGbps);
}

TEST(DeviceSelector, T5_LinkChangesAreSeenAtOnce) {
    DeviceSelector selector(devices({100, 100}), {});
    selector.set_bandwidth(1, 200 * kGbps);
    EXPECT_DOUBLE_EQ(ewma(selector, 1), 200 * kGbps);
    EXPECT_EQ(allocate(selector, 1)[0], 1);
    selector.set_up(1, false);
    EXPECT_EQ(selector.up_mask(), 1u);
    for (const uint8_t device : allocate(selector, 200)) EXPECT_EQ(device, 0);
    // When the link is up again, its earlier behaviour does not count.
    selector.charge(1, kBlock);
    selector.complete(1, kBlock, selector.post(1, 0), 1'000'000'000);
    selector.set_up(1, true);
    EXPECT_DOUBLE_EQ(ewma(selector, 1), 200 * kGbps);
}

TEST(DeviceSelector, T6_EqualScoresAreTheLowerIds) {
    SelectorConfig config;
    config.score_jitter_range = 0;
    DeviceSelector selector(devices({100, 100, 100}), config);
    EXPECT_EQ(allocate(selector, 1)[0], 0);
    EXPECT_EQ(allocate(selector, 1)[0], 1);
    EXPECT_EQ(allocate(selector, 1)[0], 2);
    EXPECT_EQ(allocate(selector, 4), (std::vector<uint8_t>{0, 0, 1, 2}));  // the remainder goes to the first
}

TEST(DeviceSelector, T6_JitterSpreadsOverEqualDevicesOnly) {
    SelectorConfig config;
    config.score_jitter_range = 1e-9;
    DeviceSelector selector(devices({100, 100, 50}), config);  // 64 KiB take 5.2 us and 10.4 us
    std::map<uint8_t, size_t> counted;
    for (int i = 0; i < 990; ++i) {
        const auto chosen = allocate(selector, 1);
        ++counted[chosen[0]];
        finish(selector, chosen);
    }
    EXPECT_GT(counted[0], 300u);
    EXPECT_GT(counted[1], 300u);
    EXPECT_LE(counted[2], 4u);  // probes
}

TEST(DeviceSelector, T7_SharesAreInverseToScoresAndContiguous) {
    SelectorConfig config;
    config.score_jitter_range = 0;
    DeviceSelector selector(devices({100, 400, 100}), config);
    const auto chosen = allocate(selector, 64);
    // 64 x 4/6 = 42.7, and twice 10.7. The two remaining slices go to the best device.
    EXPECT_EQ(counts(chosen), (std::map<uint8_t, size_t>{{0, 10}, {1, 44}, {2, 10}}));
    EXPECT_EQ(chosen.front(), 1);
    EXPECT_EQ(chosen.back(), 2);
    EXPECT_TRUE(std::is_sorted(chosen.begin() + 44, chosen.end()));
}

TEST(DeviceSelector, T7_EveryHundredthCallIsAProbeRoundAllDevices) {
    for (const size_t slices : {size_t{1}, size_t{8}}) {
        DeviceSelector selector(devices({400, 10, 10, 10}), {});
        std::map<uint8_t, size_t> slow;
        for (int call = 1; call <= 400; ++call) {
            const auto chosen = allocate(selector, slices);
            const auto counted = counts(chosen);
            if (slices > 1) {
                EXPECT_EQ(counted.size() == 4 && counted.at(3) == 2, call % 100 == 0) << call;
            }
            for (const uint8_t device : chosen)
                if (device > 0) ++slow[device];
            finish(selector, chosen);
        }
        EXPECT_EQ(slow.size(), 3u) << "every device was sampled";
    }
}

TEST(DeviceSelector, T8_PenaltyOfTheRankMultipliesTheScore) {
    const std::vector<Device> three = {
        {.name = "a", .bandwidth_bytes_per_s = 100 * kGbps, .numa_node = 0},
        {.name = "b", .bandwidth_bytes_per_s = 400 * kGbps, .numa_node = 1},
        {.name = "c", .bandwidth_bytes_per_s = 700 * kGbps, .numa_node = 2},
    };
    const auto distance = [](int from, int to) { return 10 + 10 * std::abs(from - to); };
    const Ranks ranks = numa_ranks(three, 3, distance);
    EXPECT_EQ(ranks, (Ranks{{0, 1, 2}, {1, 0, 1}, {2, 1, 0}}));
    SelectorConfig config;  // 1, 5, 10
    DeviceSelector selector(three, config, ranks);
    EXPECT_EQ(allocate(selector, 1, 0)[0], 0);  // 1/100 < 5/400 < 10/700
    EXPECT_EQ(allocate(selector, 1, 0)[0], 1);  // 2/100 > 5/400, so rank 1 is used
    DeviceSelector indifferent(three, config, ranks);
    EXPECT_EQ(allocate(indifferent, 1, -1)[0], 2);
    config.numa_penalties = {1, 1, 1};
    DeviceSelector no_penalty(three, config, ranks);
    EXPECT_EQ(allocate(no_penalty, 1, 0)[0], 2);
    uint8_t chosen = 0;
    const Status status = selector.allocate({&kBlock, 1}, 3, kAll, Priority::kHigh, 0, {&chosen, 1});
    EXPECT_EQ(status.code(), Code::kInvalidArgument);
    EXPECT_EQ(status.message(), "NUMA node 3, allowed 0..2 or -1 for any");
}

TEST(DeviceSelector, T8_RanksOfTheConfigurationReplaceThoseOfTheMachine) {
    const auto three = devices({100, 100, 100});
    Ranks ranks = numa_ranks(three);
    // The NUMA nodes of the devices are unknown.
    for (const auto& row : ranks) EXPECT_EQ(row, (std::vector<uint8_t>{0, 0, 0}));
    PriorityMatrix matrix{.nodes = {{0, {{"rove2"}, {"rove0"}}}}, .where = "x.toml:3: key 'topology.priority_matrix'"};
    ASSERT_TRUE(override_ranks(matrix, three, &ranks).ok());
    EXPECT_EQ(ranks[0], (std::vector<uint8_t>{1, 2, 0}));
    matrix.nodes[0][0][0] = "rove9";
    const Status status = override_ranks(matrix, three, &ranks);
    EXPECT_EQ(status.code(), Code::kInvalidArgument);
    EXPECT_EQ(status.message(), "x.toml:3: key 'topology.priority_matrix': got \"rove9\", allowed rove0, rove1, rove2");
}

TEST(DeviceSelector, T9_LowerPrioritiesHaveFewerDevicesInTurn) {
    for (size_t count = 1; count <= 5; ++count) {
        DeviceSelector selector(devices({100, 100, 100, 100, 100}), {});
        const uint64_t mask = (uint64_t{1} << count) - 1;
        for (const Priority priority : {Priority::kHigh, Priority::kMedium, Priority::kLow}) {
            const size_t expected = std::max<size_t>(count, index(priority) + 1u) - index(priority);
            std::map<uint8_t, size_t> turns;
            for (uint64_t turn = 0; turn < count; ++turn) {
                const auto chosen = allocate(selector, 64, -1, mask, priority, turn * 200'000 + 199'999);
                const auto counted = counts(chosen);
                EXPECT_EQ(counted.size(), expected) << count << " devices, " << name(priority);
                for (const auto& [device, slices] : counted) ++turns[device];
                finish(selector, chosen);
            }
            EXPECT_EQ(turns.size(), count) << "all devices have their turn";
        }
    }
}

// The rotation applies to all devices. If a priority's device has no room, the priority gets no other device instead.
TEST(DeviceSelector, T9_ADeviceThatIsKeptFromAPriorityIsKeptWhateverElseIsFull) {
    SelectorConfig config;
    DeviceSelector selector(devices({100, 100}), config);
    for (uint64_t now_ns = 0; now_ns < 10 * config.local_rotation_interval_ns; now_ns += 50'000) {
        const uint64_t allowed = selector.eligible(kAll, Priority::kLow, now_ns);
        ASSERT_TRUE(allowed == 1 || allowed == 2) << allowed;
        for (const uint64_t roomy : {1u, 2u}) {
            uint8_t chosen[1];
            const uint64_t bytes[] = {kBlock};
            const Status status = selector.allocate(bytes, -1, kAll, Priority::kLow, now_ns, chosen, roomy);
            ASSERT_EQ(status.ok(), roomy == allowed);
            if (!status.ok()) continue;
            EXPECT_EQ(uint64_t{1} << chosen[0], allowed);
            selector.release(chosen[0], kBlock);
        }
    }
}

TEST(DeviceSelector, T9_OffAllPrioritiesHaveAllDevices) {
    SelectorConfig config;
    config.enable_priority_filtering = false;
    DeviceSelector selector(devices({100, 100, 100}), config);
    EXPECT_EQ(counts(allocate(selector, 63, -1, kAll, Priority::kLow)).size(), 3u);
}

TEST(DeviceSelector, BaselineGoesRoundTheBestRankThatTheMaskLeaves) {
    SelectorConfig config;
    config.enable_smart_scheduling = false;
    const Ranks ranks{{1, 0, 0, 2}};
    DeviceSelector selector(devices({100, 100, 10, 100}), config, ranks);
    EXPECT_EQ(counts(allocate(selector, 10, 0)), (std::map<uint8_t, size_t>{{1, 5}, {2, 5}}));
    EXPECT_EQ(allocate(selector, 1, 0)[0], 1);
    EXPECT_EQ(allocate(selector, 1, 0)[0], 2);
    EXPECT_EQ(counts(allocate(selector, 10, 0, 0b1001)), (std::map<uint8_t, size_t>{{0, 10}}));
    EXPECT_EQ(counts(allocate(selector, 10, 0, 0b1000)), (std::map<uint8_t, size_t>{{3, 10}}));
}

TEST(DeviceSelector, T14_MaskIsKeptByEveryCall) {
    DeviceSelector selector(devices({100, 100, 100}), {});
    for (int call = 0; call < 300; ++call) {
        for (const size_t slices : {size_t{1}, size_t{16}})
            for (const uint8_t device : allocate(selector, slices, -1, 0b110)) EXPECT_NE(device, 0);
    }
}

TEST(DeviceSelector, NoDeviceIsAnErrorThatNamesThem) {
    DeviceSelector selector(devices({100, 100}), {});
    uint8_t chosen = 0;
    Status status = selector.allocate({&kBlock, 1}, -1, 0b100, Priority::kHigh, 0, {&chosen, 1});
    EXPECT_EQ(status.code(), Code::kDeviceNotFound);
    EXPECT_EQ(status.message(), "the device mask excludes every device");
    selector.set_up(1, false);
    status = selector.allocate({&kBlock, 1}, -1, 0b10, Priority::kHigh, 0, {&chosen, 1});
    EXPECT_EQ(status.code(), Code::kDeviceNotFound);
    EXPECT_EQ(status.message(), "no device has a link: rove1");
    EXPECT_EQ(inflight(selector, 1), 0u);
}

TEST(DeviceSelector, T24_TrafficStatisticsAreTheDocumentedLines) {
    DeviceSelector selector(devices({45.23, 100}), {});
    selector.charge(0, 10'500'000'000);
    selector.complete(0, 10'500'000'000, selector.post(0, 5), 5);
    selector.charge(1, 4096);
    std::ostringstream out;
    selector.print_traffic_stats(out);
    EXPECT_EQ(out.str(),
              "=== Device Traffic Statistics ===\n"
              "Dev 0: Total=10.5 GB, EWMA BW=45.23 Gbps, Inflight=0 bytes\n"
              "Dev 1: Total=0.0 GB, EWMA BW=100.00 Gbps, Inflight=4096 bytes\n");
}

}  // namespace
}  // namespace rove::tent
