// SPDX-License-Identifier: Apache-2.0
// MP-RDMA Fig. 11b: one connection over four paths of 10 Gb/s, three of which fail one by one and recover.
#include "experiments.h"
#include "testbed.h"

namespace rove::sim {
namespace {

constexpr Time kStep = 20 * kMillisecond;
constexpr Time kScale = 50;  // the paper's times are longer by this factor
constexpr std::array<Time, 3> kDown{60 * kSecond / kScale, 120 * kSecond / kScale, 180 * kSecond / kScale};
constexpr std::array<Time, 3> kUp{250 * kSecond / kScale, 310 * kSecond / kScale, 370 * kSecond / kScale};
constexpr Time kEnd = 430 * kSecond / kScale;
constexpr double kFull = 10 * mp_share();  // Gb/s of one path

}  // namespace

Report fig11b(uint64_t seed) {
    Testbed testbed(seed, mp_rdma(), std::vector<uint64_t>(kPaths, 10));
    Network& network = testbed.network;
    Sampler sampler(network, kStep);
    for (const Cable& path : testbed.racks.paths)
        sampler.watch([&path] { return path.forward.stats().delivered_packets * kMtu; });
    Flow flow(network, testbed.left(0), testbed.right(0), {.qp = kMp});
    flow.start();
    for (size_t i = 0; i < kDown.size(); ++i) {
        network.at(kDown[i], [&, i] { testbed.racks.paths[i].set_up(false); });
        network.at(kUp[i], [&, i] { testbed.racks.paths[i].set_up(true); });
    }
    network.run_until(kEnd);

    const auto path_gbps = [&](size_t row, size_t path) { return sampler.bits_per_s(row, path) / kGbps; };
    // The least rate of the remaining paths, from each failure to the next event.
    double least = 1;
    for (size_t i = 0; i < kDown.size(); ++i) {
        const size_t first = kDown[i] / kStep + 1, last = (i + 1 < kDown.size() ? kDown[i + 1] : kUp[0]) / kStep;
        double sum = 0;
        for (size_t row = first; row <= last; ++row) {
            for (size_t path = i + 1; path < kPaths; ++path) sum += path_gbps(row, path);
        }
        least = std::min(least, sum / static_cast<double>((last - first + 1) * (kPaths - i - 1)) / kFull);
    }
    double slowest = 0;
    for (size_t i = 0; i < kUp.size(); ++i) {
        size_t row = kUp[i] / kStep + 1;
        while (row + 1 < sampler.rows() && path_gbps(row, i) < 0.9 * kFull) ++row;
        slowest = std::max(slowest, seconds(row * kStep - kUp[i]));
    }

    Report report;
    report.measures = {
        {"healthy paths after a failure, least mean", "of full", least},
        {"until a restored path is full, longest", "s", slowest},
    };
    report.notes = {
        "Times are the paper's divided by 50; full is 9.5 Gb/s of payload in a path of 10 Gb/s, and again full 0.9 "
        "of it.",
        "A path that is down loses what is sent to it: switches do not take it out of their hashing.",
    };
    report.plot = {"MP-RDMA Fig. 11b: paths go down and come back", "time, s", "goodput, Gb/s", {}, {}};
    for (size_t path = 0; path < kPaths; ++path) {
        Curve& curve = report.plot.add("path " + std::to_string(path + 1));
        for (size_t row = 1; row < sampler.rows(); ++row)
            curve.points.emplace_back(seconds(row * kStep), path_gbps(row, path));
    }
    return report;
}

}  // namespace rove::sim
