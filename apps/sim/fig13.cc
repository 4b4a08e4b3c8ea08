// SPDX-License-Identifier: Apache-2.0
// MP-RDMA Fig. 13: completion times of web-search flows by load, in a leaf-spine network of 320 hosts.
#include "completion_times.h"
#include "experiments.h"
#include "fabric/topology.h"
#include "testbed.h"
#include "workloads.h"

namespace rove::sim {
namespace {

constexpr uint64_t kAccess = 40 * kGbps, kUplink = 100 * kGbps;
constexpr uint32_t kSpines = 4, kLeaves = 32, kRackHosts = 10;
constexpr Time kScaleRtt = 16 * kMicrosecond;
constexpr uint32_t kWindow = 80'000 / kMtu;  // one BDP
constexpr std::array kLoads{0.1, 0.3, 0.5, 0.8};
constexpr uint64_t kSmall = 100'000, kLarge = 10'000'000;
constexpr Time kArrivals = 20 * kMillisecond, kDrain = 2 * kSecond;

// The round trip crosses four cables each way. Data is transmitted four times, twice at the host's rate and twice at
// the uplinks', and so are ACKs, which take 150 bytes with their overhead.
constexpr Time kDelay =
    (kScaleRtt - 2 * (kMtu + 150) * (8 * kSecond / kAccess) - 2 * (kMtu + 150) * (8 * kSecond / kUplink)) / 8;

Values run(const RunContext& with, double load, bool multipath) {
    Network network(with.seed);
    LeafSpineConfig config{.leaves = with.quick ? kLeaves / 4 : kLeaves, .spines = kSpines};
    config.rack.hosts = kRackHosts;
    config.rack.access = {.bits_per_s = kAccess, .delay = kDelay};
    config.uplink = {.bits_per_s = kUplink, .delay = kDelay};
    config.rack.tor.red = config.spine.red = multipath ? kScaleRed : kDcqcnRed;
    config.rack.tor.dynamic_pfc = config.spine.dynamic_pfc = kScalePfc;
    config.rack.host.transport = mp_rdma();
    config.rack.host.transport.paths.initial_window = kWindow;
    const LeafSpine clos = leaf_spine(network, config);
    const std::vector<Host*> hosts = clos.hosts();
    const PoissonConfig arrivals{.hosts = static_cast<uint32_t>(hosts.size()),
                                 .bits_per_s = load * static_cast<double>(kAccess),
                                 .until = with.quick ? kArrivals / 4 : kArrivals};
    Workload workload(network, hosts, poisson(arrivals, web_search(), network.world().new_stream()),
                      {.qp = {.multipath = multipath, .mtu = kMtu}});
    CompletionTimes times;
    workload.on_record = [&](const FlowRecord& record) {
        times.add(record);
        if (with.flows != nullptr) write_csv(*with.flows, record);
        if (workload.done()) network.stop();
    };
    network.run_until(arrivals.until + kDrain);
    Values values;
    times.tell(values, "all ");
    times.tell(values, "small ", 0, kSmall);
    times.tell(values, "large ", kLarge);
    values["unfinished"] = static_cast<double>(workload.started() - workload.completed());
    values["dropped"] = static_cast<double>(network.total(&LinkStats::dropped_packets));
    return values;
}

std::string name_of(double load, bool multipath) {
    return (multipath ? "mp-" : "dcqcn-") + format("%.1f", load);
}

}  // namespace

std::vector<Point> fig13_points() {
    std::vector<Point> points;
    for (const double load : kLoads) {
        for (const bool multipath : {true, false}) {
            points.push_back(
                {name_of(load, multipath), [=](const RunContext& with) { return run(with, load, multipath); }});
        }
    }
    return points;
}

Report fig13(const Results& results) {
    struct Class {
        const char *name, *title;
    };
    constexpr std::array kClasses{Class{"all ", "all flows"}, Class{"small ", "below 100 KB"},
                                  Class{"large ", "beyond 10 MB"}};
    Report report;
    report.plot = {"MP-RDMA Fig. 13: mean completion time, DCQCN's = 1", "load", "", {}, {}};
    for (const Class& each : kClasses) {
        Curve& curve = report.plot.add(each.title);
        double best = 0;
        for (const double load : kLoads) {
            const std::string metric = std::string(each.name) + "us";
            const double dcqcn = results.mean(name_of(load, false), metric);
            if (dcqcn == 0) continue;  // no flow of this class
            const double gain = 1 - results.mean(name_of(load, true), metric) / dcqcn;
            curve.points.emplace_back(load, 1 - gain);
            best = std::max(best, gain);
            report.measures.push_back({each.title + format(", load %.1f: shorter by", load), "%", 100 * gain});
        }
        report.measures.push_back({each.title + std::string(", best load: shorter by"), "%", 100 * best});
    }
    for (const double load : kLoads) {
        for (const bool multipath : {true, false}) {
            const std::string point = name_of(load, multipath);
            report.measures.push_back(results.measure("mean time, " + point, "us", point, "all us"));
            report.measures.push_back(results.measure("99 % slowdown, " + point, "", point, "all p99"));
            report.measures.push_back(results.measure("unfinished, " + point, "flows", point, "unfinished"));
        }
    }
    report.notes = {
        "The paper gives ranges over its loads: 6.0 to 17.7 % for all flows, 3.6 to 13.3 % below 100 KB, 16.7 to "
        "77.7 % beyond 10 MB; its loads are not said.",
        "Flows begin during 20 ms (quick: 5 ms in 8 racks instead of 32), each to a host of any rack, and all are "
        "waited for. The time is until the sender knows.",
    };
    return report;
}

}  // namespace rove::sim
