// SPDX-License-Identifier: Apache-2.0
// Eunomia's figures on other networks or other traffic: 2 and 19 (failing links), 3a, 3b, 14 and 15 (Jellyfish), 16
// (incast, DIBS). Where the text makes a claim, the claim is the bar (bars.json).
#include "eunomia.h"
#include "experiments.h"

namespace rove::sim {
namespace {

constexpr double kHigh = 0.8;

void add_ratio(Report& report, const Results& results, const std::string& metric, const std::string& a,
               const std::string& b) {
    report.measures.push_back({metric + ", " + a + " by " + b, "", results.mean(a, metric) / results.mean(b, metric)});
}

void draw(Report& report, const Results& results, const std::string& curve_name, const auto& xs, const auto& point_at,
          const std::string& metric, const std::string& unit) {
    Curve& curve = report.plot.add(curve_name);
    for (const double x : xs) {
        const std::string point = point_at(x);
        curve.points.emplace_back(x, results.mean(point, metric));
        report.measures.push_back(results.measure(metric + ", " + point, unit, point, metric));
    }
}

const char* const kLength =
    "20 ms of flows (quick: 2 ms); the first twentieth is not counted; what takes 20 ms longer is unfinished.";

// Fig. 3a, 3b, 14, 15.
constexpr std::array kJellyfishLoads{0.1, 0.3, 0.5, 0.7, 0.8};
struct Fabric {
    const char* name;
    Scheme scheme;
    TopologyKind shape;
};
constexpr std::array kFabrics{Fabric{"fat-tree", kEcmpScheme, TopologyKind::kFatTree},
                              Fabric{"jellyfish-fksp", kEcmpScheme, TopologyKind::kJellyfish},
                              Fabric{"jellyfish-eunomia", kEunomiaSchemes[1], TopologyKind::kJellyfish}};
const std::string kTree = kFabrics[0].name, kFksp = kFabrics[1].name, kSprayed = kFabrics[2].name;

std::string at_load(const std::string& name, double load) {
    return name + format("-%.1f", load);
}

const char* const kUnended = "Flows that have not ended count in means as if they ended with the run.";

void draw_fabrics(Report& report, const Results& results, const std::string& metric, const std::string& unit) {
    for (const Fabric& fabric : kFabrics) {
        draw(
            report, results, fabric.name, kJellyfishLoads, [&](double load) { return at_load(fabric.name, load); },
            metric, unit);
    }
}

const char* const kJellyfish =
    "80 switches of 8 ports and 128 hosts; the load is that of the hosts' links. FKSP: each flow takes one of the "
    "eight shortest paths, drawn; PO2: each packet the one of two of them with the shorter first queue. A pause ends "
    "by itself after 5 us, as in ConWeave's simulator: in Jellyfish links would wait for each other for ever.";

// Fig. 16.
constexpr std::array kQueryLoads{0.1, 0.2, 0.3, 0.4, 0.5};
constexpr std::array kBackgrounds{0.1, 0.2, 0.3};
constexpr double kQueryLoad = 0.3;  // load of queries with background traffic
constexpr uint8_t kDeflections = 20;
struct Deflected {
    const char* name;
    TransportScheme speaks;
    uint8_t deflections;
};
constexpr std::array kDeflected{Deflected{"irn", TransportScheme::kIrn, 0},
                                Deflected{"dibs-irn", TransportScheme::kIrn, kDeflections},
                                Deflected{"dibs-eunomia", TransportScheme::kEunomia, kDeflections}};

Point query_point(const Deflected& how, const std::string& name, double load, double background) {
    return {name, [=](const RunContext& with) {
                return run_flows(with, {how.name, Balancer::kEcmp, how.speaks}, query_load(with, load, background),
                                 {.deflections = how.deflections, .losses = Losses::kDrops});
            }};
}

// These are not multiples of a timer; otherwise a retransmission would meet the next failure each time.
constexpr Time kHitInterval = 1130 * kMicrosecond, kFailureInterval = 5300 * kMicrosecond;

// Fig. 2: one of the 64 cables between switches, the nearest number to 1 %.
constexpr double kOneCable = 1.0 / 64;
constexpr std::array kCoarse{kEcmpScheme, kMpRdmaScheme};
std::string hit_by_failures(const Scheme& scheme) {
    return scheme.name + std::string("-hit");
}

// Fig. 19. The inverse of the fraction of an interval until there are new routes: with the paper's 100 ms it is 0.1 ms.
constexpr Time kTheirShare = 1000;
constexpr std::array kFailedParts{0.01, 0.02, 0.04, 0.06, 0.08, 0.1};
constexpr std::array kFailing{kEcmpScheme, kEunomiaSchemes[0], kEunomiaSchemes[1], kEunomiaSchemes[2]};

std::string failing(const Scheme& scheme, double part) {
    return scheme.name + format("-fails%.0f", 100 * part);
}

}  // namespace

std::vector<Point> eu_jellyfish_points() {
    std::vector<Point> points;
    for (const Fabric& fabric : kFabrics) {
        for (const double load : kJellyfishLoads) {
            points.push_back({at_load(fabric.name, load), [&fabric, load](const RunContext& with) {
                                  return run_load(with, fabric.scheme, ali_storage(), load, {.shape = fabric.shape});
                              }});
        }
    }
    return points;
}

Report eu_fig3a(const Results& results) {
    Report report;
    report.plot = {"Eunomia Fig. 3a: mean time in a fat tree and in Jellyfish", "load", "us", {}, {}};
    draw_fabrics(report, results, "begun us", "us");
    for (const double load : {0.5, 0.7, kHigh})
        add_ratio(report, results, "begun us", at_load(kTree, load), at_load(kFksp, load));
    for (const Fabric& fabric : kFabrics) {
        for (const double load : kJellyfishLoads) {
            const std::string point = at_load(fabric.name, load);
            report.measures.push_back(results.measure("held links, " + point, "", point, "held links"));
        }
    }
    report.notes = {"Claim: FKSP is significantly worse.", kUnended,
                    "Held links: PFC has stopped them for 5 ms when the run ends.", kJellyfish, kLength};
    return report;
}

Report eu_fig3b(const Results& results) {
    Report report;
    report.plot = {"Eunomia Fig. 3b: throughput of a host", "load", "Gb/s", {}, {}};
    draw_fabrics(report, results, "goodput", "Gb/s");
    add_ratio(report, results, "goodput", at_load(kFksp, kHigh), at_load(kTree, kHigh));
    report.notes = {"Claim: FKSP's is much lower.", kJellyfish, kLength};
    return report;
}

Report eu_fig14(const Results& results) {
    Report report;
    report.plot = {"Eunomia Fig. 14: slowdown in a fat tree and in Jellyfish", "load", "", {}, {}};
    draw_fabrics(report, results, "all mean", "");
    draw_fabrics(report, results, "all p99", "");
    add_ratio(report, results, "begun us", at_load(kSprayed, 0.7), at_load(kTree, 0.7));
    double best = 1;
    for (const double load : kJellyfishLoads) {
        best = std::min(
            best, results.mean(at_load(kSprayed, load), "begun us") / results.mean(at_load(kTree, load), "begun us"));
        add_ratio(report, results, "begun us", at_load(kSprayed, load), at_load(kFksp, load));
    }
    report.measures.push_back({"mean time, Jellyfish with Eunomia by fat tree, best load", "", best});
    report.notes = {"Claims: up to 60 % lower than in a fat tree; better at 70 %.", kUnended, kJellyfish, kLength};
    return report;
}

Report eu_fig15(const Results& results) {
    Report report;
    report.plot = {"Eunomia Fig. 15: mean slowdown by size at 80 %", "flow size up to, KB", "", {}, {}};
    for (const uint64_t bytes : kSizeClasses) report.plot.categories.push_back(format("%.0f", double(bytes) / 1000));
    for (const Fabric& fabric : kFabrics) {
        Curve& curve = report.plot.add(fabric.name);
        for (size_t i = 0; i < kSizeClasses.size(); ++i) {
            const std::string size = "size-" + std::to_string(kSizeClasses[i]) + " ";
            if (results.mean(at_load(fabric.name, kHigh), size + "flows") == 0) continue;
            curve.points.emplace_back(i, results.mean(at_load(fabric.name, kHigh), size + "mean"));
        }
    }
    for (const uint64_t bytes : {4'000, 8'000, 16'000}) {
        for (const char* metric : {"mean", "p99"})
            add_ratio(report, results, "size-" + std::to_string(bytes) + " " + metric, at_load(kSprayed, kHigh),
                      at_load(kTree, kHigh));
    }
    report.notes = {"Claim: at 80 % flows of up to 16 KB are better in Jellyfish.", kJellyfish, kLength};
    return report;
}

std::vector<Point> eu_query_points() {
    std::vector<Point> points;
    for (const Deflected& how : kDeflected) {
        for (const double load : kQueryLoads) points.push_back(query_point(how, at_load(how.name, load), load, 0));
        for (const double background : kBackgrounds)
            points.push_back(
                query_point(how, at_load(how.name + std::string("-background"), background), kQueryLoad, background));
    }
    return points;
}

Report eu_fig16(const Results& results) {
    Report report;
    report.plot = {"Eunomia Fig. 16: queries of 50 senders", "load, or that of the background", "us", {}, {}};
    const std::string irn = kDeflected[0].name, dibs = kDeflected[1].name, eunomia = kDeflected[2].name;
    for (const Deflected& how : kDeflected) {
        for (const char* metric : {"query mean", "query p99"})
            draw(
                report, results, how.name + std::string(", ") + metric, kQueryLoads,
                [&](double load) { return at_load(how.name, load); }, metric, "us");
        draw(
            report, results, how.name + std::string(", background, p99"), kBackgrounds,
            [&](double load) { return at_load(how.name + std::string("-background"), load); }, "query p99", "us");
    }
    for (const char* metric : {"query mean", "query p99"}) {
        double best = 1;
        for (const double load : kQueryLoads)
            best =
                std::min(best, results.mean(at_load(eunomia, load), metric) / results.mean(at_load(irn, load), metric));
        report.measures.push_back({metric + std::string(", DIBS with Eunomia by IRN, best load"), "", best});
    }
    const auto gain = [&](double load) {
        return results.mean(at_load(dibs, load), "query mean") / results.mean(at_load(irn, load), "query mean");
    };
    report.measures.push_back({"query mean, DIBS with IRN by IRN, 50 % by 10 % load", "", gain(0.5) / gain(0.1)});
    for (const double background : kBackgrounds)
        add_ratio(report, results, "query p99", at_load(eunomia + "-background", background),
                  at_load(irn + "-background", background));
    report.notes = {
        "40 KB from each sender; with background, queries are 30 %. Switches drop what they have no room "
        "for, or, with DIBS, send it to a neighbour, 20 times at most. Loads are of the uplinks.",
        kLength};
    return report;
}

std::vector<Point> eu_hit_points() {
    std::vector<Point> points;
    const auto add = [&](const auto& schemes) {
        for (const Scheme& scheme : schemes) {
            points.push_back({hit_by_failures(scheme), [&scheme](const RunContext& with) {
                                  const Time interval = kHitInterval / (with.quick ? 5 : 1);
                                  return run_load(with, scheme, ali_storage(), 0.5,
                                                  {.failed_part = kOneCable, .flaps = interval});
                              }});
        }
    };
    add(kCoarse);
    add(kBareSchemes);
    add(kIdealSchemes);
    return points;
}

Report eu_fig2(const Results& results) {
    Report report;
    report.plot = {"Eunomia Fig. 2: flows that met a failure, 50 %", "", "slowdown", {}, {}};
    Curve mean{"mean", {}}, tail{"p99", {}};
    const auto add = [&](const auto& schemes) {
        for (const Scheme& scheme : schemes) {
            const std::string point = hit_by_failures(scheme);
            mean.points.emplace_back(report.plot.categories.size(), results.mean(point, "hit mean"));
            tail.points.emplace_back(report.plot.categories.size(), results.mean(point, "hit p99"));
            report.plot.categories.emplace_back(scheme.name);
            for (const char* metric : {"hit flows", "hit mean", "hit p99", "hit unfinished", "all mean", "unfinished"})
                report.measures.push_back(results.measure(metric + std::string(", ") + scheme.name, "", point, metric));
        }
    };
    add(kCoarse);
    add(kBareSchemes);
    add(kIdealSchemes);
    report.plot.curves = {mean, tail};
    const std::string ecmp = hit_by_failures(kEcmpScheme);
    report.measures.push_back(
        {"hit mean by all mean, ecmp", "", results.mean(ecmp, "hit mean") / results.mean(ecmp, "all mean")});
    for (const Scheme& scheme : kIdealSchemes) add_ratio(report, results, "hit mean", hit_by_failures(scheme), ecmp);
    report.notes = {
        "One of 64 cables fails at a time, another every 1.13 ms (quick: 0.23 ms), and there are new routes 0.1 ms "
        "later; what waited before the dead port is gone. A flow has met it that lost a packet or an acknowledgement; "
        "one that has not ended counts as if it ended with the run. Claim: coarse balancers suffer, packet by packet "
        "with an ideal layer degrades gracefully. Of MP-RDMA, which is no balancer, it says nothing; its sender knows "
        "a loss after a round trip, the others' by a timer of 0.32 ms.",
        kLength};
    return report;
}

std::vector<Point> eu_failure_points() {
    std::vector<Point> points;
    for (const Scheme& scheme : kFailing) {
        for (const double part : kFailedParts) {
            points.push_back({failing(scheme, part), [&scheme, part](const RunContext& with) {
                                  const Time interval = kFailureInterval / (with.quick ? 5 : 1);
                                  return run_load(
                                      with, scheme, ali_storage(), 0.5,
                                      {.failed_part = part, .flaps = interval, .reaction = interval / kTheirShare});
                              }});
        }
    }
    return points;
}

Report eu_fig19(const Results& results) {
    Report report;
    report.plot = {"Eunomia Fig. 19: slowdown while links fail and return, 50 %", "part that has failed", "", {}, {}};
    for (const Scheme& scheme : kFailing) {
        for (const char* metric : {"all mean", "unfinished"})
            draw(
                report, results, scheme.name + std::string(", ") + metric, kFailedParts,
                [&](double part) { return failing(scheme, part); }, metric, "");
    }
    const auto rise = [&](const Scheme& scheme) {
        return results.mean(failing(scheme, 0.1), "all mean") / results.mean(failing(scheme, 0.01), "all mean");
    };
    for (size_t i = 1; i < kFailing.size(); ++i) {
        add_ratio(report, results, "all mean", failing(kFailing[i], 0.1), failing(kFailing[0], 0.1));
        report.measures.push_back({std::string("rise from 1 to 10 % of links by ECMP's, ") + kFailing[i].name, "",
                                   rise(kFailing[i]) / rise(kFailing[0])});
    }
    report.notes = {
        "Others fail every 5.3 ms (quick: 1.06 ms; the paper's runs are longer, and have 100 ms), and there are "
        "new routes a thousandth of that later. Eunomia's sender has IRN's timers, 0.1 and 0.32 ms, and nothing else "
        "that tells of a loss, as its section 3.2.3 says. Claim: ECMP deteriorates, packet by packet with Eunomia "
        "holds.",
        kLength};
    return report;
}

}  // namespace rove::sim
