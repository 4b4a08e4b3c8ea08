// SPDX-License-Identifier: Apache-2.0
// Tests flow sizes, arrivals and their files, and flows on recycled queue pairs with their completion times.
#include "fabric/workload.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <set>
#include <sstream>

#include "fabric/flow.h"
#include "fabric/topology.h"

namespace rove::fabric {
namespace {

constexpr const char* kAliStorage =
    "0 0\n4000 22.93\n8000 69.21\n16000 80.61\n32000 90.47\n64000 93.53\n128000 96.77\n"
    "256000 97.53\n2000000 100\n";

FlowSizes sizes_of(const std::string& text) {
    std::istringstream lines(text);
    return FlowSizes::read(lines, "sizes.txt");
}

TEST(FlowSizesTest, AreDrawnAsTheFileSays) {
    const FlowSizes sizes = sizes_of(kAliStorage);
    EXPECT_NEAR(sizes.mean(), 40'900, 100);
    EXPECT_EQ(sizes.largest(), 2'000'000u);
    Random random(1, 1);
    constexpr int kDraws = 200'000;
    double sum = 0;
    std::map<uint64_t, int> below;
    for (int i = 0; i < kDraws; ++i) {
        const uint64_t bytes = sizes.draw(random);
        ASSERT_GE(bytes, 1u);
        ASSERT_LE(bytes, 2'000'000u);
        sum += static_cast<double>(bytes);
        for (const uint64_t limit : {4000u, 6000u, 256000u}) below[limit] += bytes <= limit;
    }
    EXPECT_NEAR(sum / kDraws, sizes.mean(), 0.02 * sizes.mean());
    EXPECT_NEAR(below[4000] / double{kDraws}, 0.2293, 0.004);
    EXPECT_NEAR(below[6000] / double{kDraws}, 0.4607, 0.004) << "linear in between";
    EXPECT_NEAR(below[256000] / double{kDraws}, 0.9753, 0.002);
}

TEST(FlowSizesTest, FractionsAndCommentsAreUnderstood) {
    const FlowSizes sizes = sizes_of("# bytes part\n0 0\n\n1000 0.5  # half\n3000 1\n");
    EXPECT_DOUBLE_EQ(sizes.mean(), 0.5 * 500 + 0.5 * 2000);
}

TEST(FlowSizesTest, OneSizeAlone) {
    Random random(1, 1);
    EXPECT_EQ(sizes_of("4096 100").draw(random), 4096u);
}

void expect_refused(const auto& read, const std::string& where, const std::string& what) {
    try {
        read();
        FAIL() << "not refused: " << where;
    } catch (const BadInput& error) {
        EXPECT_TRUE(std::string(error.what()).starts_with(where)) << error.what();
        EXPECT_NE(std::string(error.what()).find(what), std::string::npos) << error.what();
        EXPECT_NE(std::string(error.what()).find("allowed: "), std::string::npos) << error.what();
    }
}

TEST(FlowSizesTest, WhatIsRefused) {
    const std::map<std::string, std::string> bad{{"", "sizes.txt:0: it ends"},
                                                 {"0 0\n1000 99\n", "sizes.txt:2: it ends"},
                                                 {"0 0\nx 100\n", "sizes.txt:2: 'x 100'"},
                                                 {"0 0\n5 10\n4 100\n", "sizes.txt:3: '4 100'"},
                                                 {"0 0\n5 60\n6 50\n", "sizes.txt:3:"},
                                                 {"0 0 0\n", "sizes.txt:1:"},
                                                 {"-1 0\n5 100\n", "sizes.txt:1:"},
                                                 {"0 0\n5 101\n", "sizes.txt:2:"},
                                                 {"0 0\n0 100\n", "sizes.txt:2: flows of nothing"},
                                                 {"0 0\n5 nan\n", "sizes.txt:2:"}};
    for (const auto& [text, where] : bad) expect_refused([&text = text] { sizes_of(text); }, where, "");
    expect_refused([] { FlowSizes::load("/nowhere/sizes.txt"); }, "/nowhere/sizes.txt:0:", "cannot be read");
}

TEST(ArrivalsTest, PoissonOffersItsLoadToAllOthersAlike) {
    constexpr Time kUntil = 100 * kMillisecond;
    const std::vector<FlowSpec> flows =
        poisson({.hosts = 8, .bits_per_s = 10e9, .until = kUntil}, sizes_of(kAliStorage), Random(3, 1));
    double bytes = 0;
    std::map<std::pair<uint32_t, uint32_t>, int> pairs;
    Time last = 0;
    for (const FlowSpec& flow : flows) {
        bytes += static_cast<double>(flow.bytes);
        ++pairs[{flow.from, flow.to}];
        EXPECT_NE(flow.from, flow.to);
        EXPECT_GE(flow.start, last);
        EXPECT_LT(flow.start, kUntil);
        last = flow.start;
    }
    EXPECT_NEAR(bytes * 8 / 0.1, 80e9, 0.05 * 80e9);
    EXPECT_EQ(pairs.size(), 56u);
    const double each = static_cast<double>(flows.size()) / 56;
    for (const auto& [pair, count] : pairs) EXPECT_NEAR(count, each, 5 * std::sqrt(each));
    EXPECT_TRUE(poisson({.hosts = 8, .bits_per_s = 0, .until = kUntil}, sizes_of(kAliStorage), Random(3, 1)).empty());
}

// The standard deviation of a Poisson process's gaps equals their mean.
TEST(ArrivalsTest, PoissonGapsAreExponential) {
    const std::vector<FlowSpec> flows =
        poisson({.hosts = 2, .bits_per_s = 8e9, .until = 100 * kMillisecond}, sizes_of("1000 100"), Random(1, 1));
    double sum = 0, squares = 0, count = 0;
    Time last = 0;
    for (const FlowSpec& flow : flows) {
        if (flow.from != 0) continue;
        const double gap = static_cast<double>(flow.start - last) / kMicrosecond;
        last = flow.start;
        sum += gap;
        squares += gap * gap;
        ++count;
    }
    const double mean = sum / count;
    EXPECT_NEAR(mean, 1.0, 0.02);
    EXPECT_NEAR(std::sqrt(squares / count - mean * mean) / mean, 1, 0.03);
}

TEST(ArrivalsTest, IncastHasSoManySendersForEachQuery) {
    const IncastConfig config{
        .hosts = 10, .senders = 9, .bytes = 40'000, .queries_per_s = 10'000, .until = 10 * kMillisecond};
    const std::vector<FlowSpec> flows = incast(config, Random(1, 1));
    std::map<uint32_t, std::set<uint32_t>> senders, receivers;
    std::map<uint32_t, Time> starts;
    for (const FlowSpec& flow : flows) {
        EXPECT_TRUE(senders[flow.query].insert(flow.from).second);
        receivers[flow.query].insert(flow.to);
        EXPECT_NE(flow.from, flow.to);
        EXPECT_EQ(starts.emplace(flow.query, flow.start).first->second, flow.start);
    }
    EXPECT_NEAR(static_cast<double>(senders.size()), 100, 35);
    for (const auto& [query, all] : senders) EXPECT_EQ(all.size(), 9u);
    for (const auto& [query, all] : receivers) EXPECT_EQ(all.size(), 1u);
}

TEST(ArrivalsTest, TracesAreRead) {
    std::istringstream lines("3\n0 1 3 1000 0.002\n# a comment\n2 0 3 70000 0.001\n1 2 3 1 2.5e-3\n");
    const std::vector<FlowSpec> flows = read_trace(lines, "trace.txt", 3);
    ASSERT_EQ(flows.size(), 3u);
    EXPECT_EQ(flows[0].from, 2u);
    EXPECT_EQ(flows[0].bytes, 70'000u);
    EXPECT_EQ(flows[0].start, kMillisecond);
    EXPECT_EQ(flows[2].start, 2500 * kMicrosecond);
    for (const char* bad : {"0 1 3 1000", "0 3 3 1000 0", "0 0 3 1000 0", "0 1 3 0 0", "0 1 3 x 0", "0 1 3 10 -1",
                            "0.5 1 3 10 0", "0 1 3 10 0 0"}) {
        std::istringstream text("0 1 3 1 0\n" + std::string(bad) + "\n");
        expect_refused([&] { read_trace(text, "trace.txt", 3); }, "trace.txt:2: '" + std::string(bad), "from 0 to 2");
    }
}

struct WorkloadTest : testing::Test {
    static LeafSpineConfig small() {
        LeafSpineConfig config{.leaves = 2, .spines = 2, .rack = {.hosts = 2}};
        config.rack.access = {.bits_per_s = 100 * kGbps, .delay = kMicrosecond};
        config.uplink = {.bits_per_s = 100 * kGbps, .delay = kMicrosecond};
        config.rack.tor.pfc = config.spine.pfc = Pfc{};
        config.rack.host.transport.paths.control = transport::PathsConfig::Control::kMpRdma;
        config.rack.host.transport.paths.initial_window = 128;  // the packets of one round trip
        return config;
    }
    std::vector<FlowRecord> run(uint64_t seed, std::vector<FlowSpec> flows, bool multipath, Time until,
                                bool synchronises = false) {
        Network network(seed);
        LeafSpineConfig config = small();
        config.rack.host.transport.ordering = transport::Ordering::kOptimistic;
        const LeafSpine clos = leaf_spine(network, config);
        Workload workload(network, clos.hosts(), std::move(flows),
                          {.qp = {.multipath = multipath}, .synchronises = synchronises});
        std::vector<FlowRecord> records;
        workload.on_record = [&](const FlowRecord& record) { records.push_back(record); };
        network.run_until(until);
        EXPECT_TRUE(workload.done());
        EXPECT_EQ(workload.failed(), 0u);
        queue_pairs = workload.queue_pairs();
        return records;
    }
    size_t queue_pairs = 0;
};

TEST_F(WorkloadTest, AFlowAloneTakesTheIdealTime) {
    for (const bool multipath : {false, true}) {
        std::vector<FlowSpec> flows;
        Time start = 0;
        for (const uint64_t bytes : {1u, 1000u, 1024u, 5000u, 100'000u, 3'000'000u}) {
            for (const uint32_t to : {1u, 2u})
                flows.push_back({.from = 0, .to = to, .bytes = bytes, .start = start += kMillisecond});
        }
        for (const FlowRecord& record : run(1, flows, multipath, 20 * kMillisecond)) {
            const double ratio = static_cast<double>(record.took) / static_cast<double>(record.ideal);
            EXPECT_GT(ratio, 0.98) << record.flow.bytes << " to " << record.flow.to << (multipath ? " mp" : " rc");
            EXPECT_LT(ratio, 1.06) << record.flow.bytes << " to " << record.flow.to << (multipath ? " mp" : " rc");
        }
    }
}

// Frame sizes of other simulators: 48 bytes of headers, an ACK of 60, and no gaps. A flow of one packet crosses four
// links of 100 Gb/s and 1 us, and so does its ACK.
TEST_F(WorkloadTest, FramesCountAsTheConfigurationSays) {
    for (const bool multipath : {false, true}) {
        Network network(1);
        LeafSpineConfig config = small();
        config.rack.access.gap_bytes = config.uplink.gap_bytes = 0;
        config.rack.host.counted = CountedBytes{.headers = 48, .control = 60};
        const LeafSpine clos = leaf_spine(network, config);
        Workload workload(network, clos.hosts(), {{.from = 0, .to = 2, .bytes = 1000}},
                          {.qp = {.multipath = multipath}});
        std::vector<FlowRecord> records;
        workload.on_record = [&](const FlowRecord& record) { records.push_back(record); };
        network.run_until(kMillisecond);
        ASSERT_EQ(records.size(), 1u);
        EXPECT_EQ(records[0].ideal, 8 * kMicrosecond + 4 * (1048 + 60) * 80 * kNanosecond / 1000);
        EXPECT_EQ(records[0].took, records[0].ideal);
    }
}

TEST_F(WorkloadTest, TheLastOfSeveralPacketsMaySynchronise) {
    const std::vector<FlowSpec> flows{{.from = 0, .to = 2, .bytes = 1024},
                                      {.from = 0, .to = 2, .bytes = 3'000'000, .start = kMillisecond}};
    const std::vector<FlowRecord> plain = run(1, flows, true, 20 * kMillisecond),
                                  synchronised = run(1, flows, true, 20 * kMillisecond, true);
    ASSERT_EQ(plain.size(), 2u);
    ASSERT_EQ(synchronised.size(), 2u);
    EXPECT_EQ(synchronised[0].took, plain[0].took) << "one packet";
    EXPECT_GT(synchronised[1].took, plain[1].took + kMicrosecond) << "MP-12";
}

TEST_F(WorkloadTest, QueuePairsAreUsedAgainAndSeedsDecide) {
    const FlowSizes sizes = sizes_of("500 50\n20000 100");
    const std::vector<FlowSpec> flows =
        poisson({.hosts = 4, .bits_per_s = 6e9, .until = 4 * kMillisecond}, sizes, Random(5, 1));
    ASSERT_GT(flows.size(), 1000u);
    for (const bool multipath : {false, true}) {
        const auto text = [&](uint64_t seed) {
            std::ostringstream out;
            for (const FlowRecord& record : run(seed, flows, multipath, 100 * kMillisecond)) write_csv(out, record);
            return out.str();
        };
        const std::string first = text(1);
        EXPECT_LT(queue_pairs, flows.size() / 5);
        EXPECT_EQ(first, text(1));
        EXPECT_NE(first, text(2));
    }
}

TEST(WorkloadOfManyTest, HasMoreQueuePairsThanATableHasNumbers) {
    constexpr uint32_t kHosts = 64, kFlows = 33'000;
    Network network;
    const Rack rack = single_switch(network, {.hosts = kHosts});
    std::vector<FlowSpec> flows;
    for (uint32_t i = 0; i < kFlows; ++i)
        flows.push_back({.from = i % kHosts, .to = (i + 1) % kHosts, .bytes = 1, .start = i * kNanosecond});
    Workload workload(network, rack.hosts, flows, {.qp = {.depth = 8}, .rest = kSecond});
    network.run_until(10 * kMillisecond);
    EXPECT_EQ(workload.completed(), kFlows);
    EXPECT_EQ(workload.queue_pairs(), 2 * kFlows);
}

TEST(FlowTest, MessagesComeAtTheRateThatIsOffered) {
    Network network(1);
    const LeafSpine clos = leaf_spine(network, WorkloadTest::small());
    const std::vector<Host*> hosts = clos.hosts();
    Flow flow(network, *hosts[0], *hosts[3], {.message_bytes = 10'000, .bits_per_s = 10e9});
    flow.start();
    network.run_until(20 * kMillisecond);
    EXPECT_NEAR(static_cast<double>(flow.completed_bytes()) * 8 / 0.02, 10e9, 0.06e9 * 10);
}

TEST(FlowRecordTest, Csv) {
    std::ostringstream out;
    write_csv(out, {.flow = {.from = 3, .to = 1, .bytes = 70'000, .start = 1'234'567},
                    .udp_src = 0xC001,
                    .took = 20 * kMicrosecond,
                    .ideal = 10 * kMicrosecond});
    EXPECT_EQ(out.str(), "3,1,49153,70000,1234,20000,10000\n");
}

}  // namespace
}  // namespace rove::fabric
