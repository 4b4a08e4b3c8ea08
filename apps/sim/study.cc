// SPDX-License-Identifier: Apache-2.0
// The study: current ways to carry RDMA through a data centre, compared on Eunomia's network (eunomia.h) with one
// transport code. Networks are lossless (PFC), lossy, or trim packets that do not fit.
#include <algorithm>

#include "eunomia.h"
#include "experiments.h"

namespace rove::sim {
namespace {

constexpr std::array kStudied{kEcmpScheme,        kIrnScheme,         kMpRdmaScheme,
                              kEunomiaSchemes[0], kEunomiaSchemes[2], kRepsScheme};
constexpr Time wait(const RunContext& with) {
    return (with.quick ? 50 : 200) * kMillisecond;
}

// Every host sends once, to a host of another rack.
OfferedLoad permutation_flows(const RunContext& with) {
    Random random(with.seed, 1);
    std::vector<uint32_t> to(kEunomiaHosts);
    const auto rack = [](uint32_t host) { return host / kEunomiaRackHosts; };
    for (uint32_t i = 0; i < kEunomiaHosts; ++i) to[i] = i;
    for (size_t i = to.size() - 1; i > 0; --i) std::swap(to[i], to[random.below(i + 1)]);
    for (uint32_t i = 0; i < kEunomiaHosts; ++i) {
        while (rack(i) == rack(to[i])) {
            const auto other = static_cast<uint32_t>(random.below(kEunomiaHosts));
            if (rack(other) != rack(to[i]) && rack(to[other]) != rack(i)) std::swap(to[i], to[other]);
        }
    }
    OfferedLoad offered{.drain = wait(with)};
    const uint64_t bytes = with.quick ? 500'000 : 2'000'000;
    for (uint32_t i = 0; i < kEunomiaHosts; ++i) offered.flows.push_back({.from = i, .to = to[i], .bytes = bytes});
    return offered;
}

// All other hosts of four racks send to one host.
OfferedLoad incast_flows(const RunContext& with) {
    OfferedLoad offered{.drain = wait(with)};
    constexpr uint32_t senders = 64;
    const auto to = static_cast<uint32_t>(senders + Random(with.seed, 2).below(kEunomiaHosts - senders));
    for (uint32_t i = 0; i < senders; ++i)
        offered.flows.push_back({.from = i, .to = to, .bytes = with.quick ? 50'000u : 200'000u});
    return offered;
}

// All hosts send to all others, each beginning with its successor.
OfferedLoad all_to_all_flows(const RunContext& with) {
    OfferedLoad offered{.drain = wait(with)};
    for (uint32_t step = 1; step < kEunomiaHosts; ++step) {
        for (uint32_t i = 0; i < kEunomiaHosts; ++i)
            offered.flows.push_back(
                {.from = i, .to = (i + step) % kEunomiaHosts, .bytes = with.quick ? 4'000u : 32'000u});
    }
    return offered;
}

OfferedLoad ring_flows(const RunContext& with) {
    return {.ring_bytes = kEunomiaHosts * (with.quick ? 65'536ull : 524'288ull), .drain = wait(with)};
}

struct Load {
    const char* name;
    OfferedLoad (*offered)(const RunContext& with);
    Variant variant{};
};
const std::array kStudyLoads{
    Load{"storage50", [](const RunContext& with) { return poisson_load(with, ali_storage(), 0.5); }},
    Load{"storage80", [](const RunContext& with) { return poisson_load(with, ali_storage(), 0.8); }},
    Load{"permutation", permutation_flows},
    Load{"incast", incast_flows},
    Load{"all-to-all", all_to_all_flows},
    Load{"ring", ring_flows},
    Load{"bonds", permutation_flows, {.ports = {.count = 2, .separate = true, .bonded = true}}},
    Load{"slow-link", permutation_flows, {.slow_uplinks = 1}},
    Load{"failed-links", permutation_flows, {.failed_part = 0.05}},
    Load{"flapping", permutation_flows, {.failed_part = 0.05, .flaps = 200 * kMicrosecond}},
};
constexpr std::array<std::pair<const char*, Losses>, 3> kStudyNetworks{
    {{"lossless", Losses::kNone}, {"lossy", Losses::kDrops}, {"trimming", Losses::kTrims}}};

std::string name_of(const Load& load, const char* network, const Scheme& scheme) {
    return std::string(load.name) + "-" + network + "-" + scheme.name;
}

}  // namespace

std::vector<Point> study_points() {
    std::vector<Point> points;
    for (const Load& load : kStudyLoads) {
        for (const auto& [network, losses] : kStudyNetworks) {
            for (const Scheme& scheme : kStudied) {
                const auto run = [&load, losses = losses, scheme](const RunContext& with) {
                    Variant variant = load.variant;
                    variant.losses = losses;
                    variant.follow_papers = true;
                    return run_flows(with, scheme, load.offered(with), variant);
                };
                points.push_back({name_of(load, network, scheme), run});
            }
        }
    }
    return points;
}

Report study(const Results& results) {
    Report report;
    report.plot = {"99th percentile of slowdown, lossless", "", "", {}, {}};
    for (const Load& load : kStudyLoads) report.plot.categories.emplace_back(load.name);
    for (const Scheme& scheme : kStudied) {
        Curve& curve = report.plot.add(scheme.name);
        for (size_t i = 0; i < kStudyLoads.size(); ++i)
            curve.points.emplace_back(i, results.mean(name_of(kStudyLoads[i], "lossless", scheme), "all p99"));
    }
    constexpr std::array<std::pair<const char*, const char*>, 9> kMetrics{{{"all mean", ""},
                                                                           {"all p99", ""},
                                                                           {"last us", "us"},
                                                                           {"goodput", "Gb/s"},
                                                                           {"paused hosts", ""},
                                                                           {"bitmap bytes of a host", "B"},
                                                                           {"resent", ""},
                                                                           {"resent by timeout", "packets"},
                                                                           {"unfinished", ""}}};
    for (const Load& load : kStudyLoads) {
        for (const auto& [network, losses] : kStudyNetworks) {
            for (const auto& [metric, unit] : kMetrics) {
                for (const Scheme& scheme : kStudied) {
                    const std::string point = name_of(load, network, scheme);
                    report.measures.push_back(results.measure(metric + std::string(", ") + point, unit, point, metric));
                }
            }
            if (load.offered != ring_flows) continue;
            for (const Scheme& scheme : kStudied) {
                const std::string point = name_of(load, network, scheme);
                report.measures.push_back(results.measure("time by its closed form, " + point, "", point, "ring"));
            }
        }
    }
    report.notes = {
        "128 hosts, as in Eunomia's evaluation. permutation: 2 MB from each host; incast: 64 to 1, 200 KB each; "
        "all-to-all: 32 KB to each; ring: all-reduce of 8 MB, 254 steps of 64 KB among hosts in random order, of which "
        "each is a flow; bonds: permutation, each host at two leaves with two ports of one address; slow-link: one "
        "uplink at a tenth; failed-links: 5 % of the uplinks, routes anew "
        "after 0.1 ms; flapping: other 5 % every 0.2 ms. Quick: a quarter, and an eighth of all-to-all and ring.",
        "rc knows nothing of trimmed packets: to it they are lost.",
    };
    return report;
}

}  // namespace rove::sim
