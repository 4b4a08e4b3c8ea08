// SPDX-License-Identifier: Apache-2.0
// MP-RDMA Fig. 5: the marking ratios of four different paths converge.
#include <algorithm>
#include <numeric>

#include "experiments.h"
#include "testbed.h"

namespace rove::sim {
namespace {

constexpr uint32_t kConnections = 10;
constexpr uint64_t kRuns = 5;
constexpr Time kStep = 10 * kMillisecond, kEnd = 300 * kMillisecond;
constexpr Time kRtt = 16 * kMicrosecond;
constexpr std::array<uint64_t, 4> kRates{20, 40, 60, 80};
constexpr std::array kPMax{0.2, 0.4, 0.6, 0.8};
constexpr uint64_t kFrameBytes = kSmallMtu + 86;  // in a switch

// Returns marked packets in percent: rows are times and columns paths; the last row covers the second half of the run.
std::vector<std::array<double, 4>> run(uint64_t seed) {
    Network network(seed);
    // The model has no out-of-order control (section 3.2 precedes it), so this run has no such control either.
    transport::Config transport = mp_rdma(kSmallMtu);
    transport.paths.vps = 8;
    transport.paths.max_window = transport.paths.delta = transport.reorder.static_slots = 1024;
    RackConfig rack{.hosts = kConnections};
    rack.host.transport = transport;
    rack.access = {.bits_per_s = 40 * kGbps, .delay = kRtt / 6};
    std::vector<PathConfig> paths;
    for (size_t i = 0; i < kRates.size(); ++i) {
        const Red red{kPMax[i], 20 * kFrameBytes, 200 * kFrameBytes};
        paths.push_back({{.bits_per_s = kRates[i] * kGbps, .delay = kRtt / 6}, red});
    }
    const TwoRacks racks = parallel_paths(network, rack, paths);

    Sampler sampler(network, kStep);
    for (const Cable& path : racks.paths) {
        sampler.watch([&path] { return path.forward.stats().marked_packets; });
        sampler.watch([&path] { return path.forward.stats().enqueued_packets; });
    }
    std::deque<Flow> flows;
    for (uint32_t i = 0; i < kConnections; ++i)
        flows.emplace_back(network, *racks.left.hosts[i], *racks.right.hosts[i], FlowConfig{.qp = kSmallMp}).start();
    network.run_until(kEnd);

    std::vector<std::array<double, 4>> rows;
    const auto add = [&](size_t from, size_t to) {
        auto& row = rows.emplace_back();
        for (size_t path = 0; path < row.size(); ++path) {
            const auto growth = [&](size_t column) {
                return static_cast<double>(sampler.value(to, column) - sampler.value(from, column));
            };
            row[path] = 100 * growth(2 * path) / growth(2 * path + 1);
        }
    };
    for (size_t row = 1; row < sampler.rows(); ++row) add(row - 1, row);
    add(sampler.rows() / 2, sampler.rows() - 1);
    return rows;
}

}  // namespace

Report fig5(uint64_t seed) {
    Report report;
    report.plot = {"MP-RDMA Fig. 5: marking ratio by path, one run", "time, ms", "marked, %", {}, {}};
    std::array<double, 4> shares{};
    for (uint64_t i = 0; i < kRuns; ++i) {
        const auto rows = run(seed * kRuns + i);
        for (size_t path = 0; path < shares.size(); ++path) {
            shares[path] += rows.back()[path] / kRuns;
            if (i != 0) continue;
            Curve& curve = report.plot.add(std::to_string(kRates[path]) + " Gb/s");
            for (size_t row = 0; row + 1 < rows.size(); ++row)
                curve.points.emplace_back(seconds((row + 1) * kStep) * 1000, rows[row][path]);
        }
    }
    const auto [least, most] = std::ranges::minmax(shares);
    const double spread = (most - least) * 4 / std::accumulate(shares.begin(), shares.end(), 0.0);
    report.measures.push_back({"largest less smallest, by mean", "", spread});
    const double marked = std::accumulate(shares.begin(), shares.end(), 0.0) / 4;
    report.measures.push_back({"marked, mean of the paths", "%", marked});
    for (size_t path = 0; path < shares.size(); ++path)
        report.measures.push_back({"marked, path of " + report.plot.curves[path].name, "%", shares[path]});
    report.notes = {
        "K_min and K_max have no unit in the text; they are packets, as the queue is in its model and the 65 of "
        "Fig. 4.",
        "The paper's number for the mean is its model's (equations 5 and 6): all paths have the same marking ratio, F "
        "= 2 / (cwnd + 2) for each connection, and the windows fill the paths and the queues that RED has at F.",
        "The mean of 5 runs, of the second half of 0.3 s each.",
        "The rest of the spread, three parts. Of a connection's eight VPs two to four have packets at a time, since "
        "the others die out by chance until a probe (MP-5) brings them back, so not every connection is on every "
        "path, and F = "
        "2 / (cwnd + 2) holds for each connection by itself. A connection that happens to have much on the widest path "
        "has a "
        "larger window, so that path is marked less. And probes take from paths as much as these carry, but give to "
        "all alike: from 20 to 80 Gb/s 0.02, and 0.2 with ten times as many.",
        "Packets are of 1 KB (testbed.h). The larger they are, the fewer are in a window, and the more there is to "
        "chance: "
        "with 1500 bytes, which 54 paths for 80 KB in section 5.1.2 would mean, the spread is 0.11.",
    };
    return report;
}

}  // namespace rove::sim
