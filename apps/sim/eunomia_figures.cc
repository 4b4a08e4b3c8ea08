// SPDX-License-Identifier: Apache-2.0
// Eunomia's figures that need only flows at a load: 1a, 1b, 1c, 3c, 3d, 11, 12, 13, 17, 18 and 20. Numbers in the
// paper's text are bars (bars.json); otherwise its claims are; a measure with neither is only reported.
#include "eunomia.h"
#include "experiments.h"

namespace rove::sim {
namespace {

constexpr std::array kLoads{0.3, 0.5, 0.8};
constexpr double kModerate = 0.5, kHigh = 0.8;
constexpr std::array kStaticBytes{4u, 8u, 16u, 32u};
const char* const kLossy = "-lossy";
// Fig. 17: a bitmap without a cap, and SRPT for short flows.
constexpr std::array kUncapped{Scheme{"ecmp-ideal", Balancer::kEcmp, TransportScheme::kIdeal}, kIdealSchemes[1]};
constexpr std::array<std::pair<const char*, ShortestFirst>, 2> kSrpt{
    {{"-srpt", ShortestFirst::kOfFlow}, {"-srpt-packet", ShortestFirst::kPacket}}};

std::string name_of(const Scheme& scheme, double load, const std::string& variant = "") {
    return scheme.name + variant + format("-%.1f", load);
}

Point ali(const Scheme& scheme, double load, const std::string& variant = "", Variant how = {}) {
    // Section 6 of the paper: "many of the larger flows do not reach completion due to synchronization failure", so
    // flows synchronise.
    how.synchronises = scheme.speaks == TransportScheme::kMpRdma;
    return {name_of(scheme, load, variant),
            [=](const RunContext& with) { return run_load(with, scheme, ali_storage(), load, how); }};
}

void add(std::vector<Point>& points, const auto& schemes, const auto& loads) {
    for (const Scheme& scheme : schemes) {
        for (const double load : loads) points.push_back(ali(scheme, load));
    }
}

// Draws `metric` by load, one curve per scheme.
void draw(Report& report, const Results& results, const auto& schemes, const std::string& metric,
          const std::string& unit, const std::string& variant = "") {
    for (const Scheme& scheme : schemes) {
        Curve& curve = report.plot.add(scheme.name);
        for (const double load : kLoads) {
            const std::string point = name_of(scheme, load, variant);
            curve.points.emplace_back(load, results.mean(point, metric));
            report.measures.push_back(results.measure(metric + ", " + point, unit, point, metric));
        }
    }
}

// Adds a metric of point `a` divided by that of `b`.
void add_ratio(Report& report, const Results& results, const std::string& metric, const std::string& a,
               const std::string& b) {
    report.measures.push_back({metric + ", " + a + " by " + b, "", results.mean(a, metric) / results.mean(b, metric)});
}

const char* const kOurs =
    "20 ms of flows (quick: 2 ms); the first twentieth is not counted; what takes 20 ms longer is unfinished. Which "
    "loads the paper has below 50 % is not said.";

// Draws mean and 99th percentile by flow size, at one load.
void draw_by_size(Report& report, const Results& results, const auto& schemes, double load) {
    report.plot.categories.clear();
    for (const Scheme& scheme : schemes) {
        const std::string point = name_of(scheme, load);
        Curve mean{std::string(scheme.name) + ", mean", {}}, tail{std::string(scheme.name) + ", p99", {}};
        for (size_t i = 0; i < kSizeClasses.size(); ++i) {
            const std::string name = "size-" + std::to_string(kSizeClasses[i]) + " ";
            if (results.mean(point, name + "flows") == 0) continue;
            mean.points.emplace_back(i, results.mean(point, name + "mean"));
            tail.points.emplace_back(i, results.mean(point, name + "p99"));
        }
        report.plot.curves.push_back(mean);
        report.plot.curves.push_back(tail);
        for (const char* metric : {"all mean", "all p99", "short p99", "long mean", "unfinished"})
            report.measures.push_back(results.measure(metric + std::string(", ") + point, "", point, metric));
    }
    for (const uint64_t bytes : kSizeClasses) report.plot.categories.push_back(format("%.0f", double(bytes) / 1000));
}

}  // namespace

std::vector<Point> eu_load_points() {
    std::vector<Point> points;
    add(points, std::array{kEcmpScheme, kMpRdmaScheme, kIrnScheme, kRepsScheme}, kLoads);
    add(points, kBareSchemes, kLoads);
    add(points, kIdealSchemes, kLoads);
    add(points, kEunomiaSchemes, kLoads);
    points.push_back(ali(kFlowSchemes[2], kHigh));  // ConWeave
    return points;
}

Report eu_fig1a(const Results& results) {
    Report report;
    report.plot = {"Eunomia Fig. 1a: mean slowdown, lossless", "load", "", {}, {}};
    draw(report, results, std::array{kEcmpScheme, kMpRdmaScheme}, "all mean", "");
    draw(report, results, kBareSchemes, "all mean", "");
    draw(report, results, kIdealSchemes, "all mean", "");
    for (size_t i = 0; i < kBareSchemes.size(); ++i) {
        const std::string bare = name_of(kBareSchemes[i], kHigh), ideal = name_of(kIdealSchemes[i], kHigh);
        for (const char* metric : {"all mean", "all us"}) {
            add_ratio(report, results, metric, name_of(kEcmpScheme, kHigh), bare);
            add_ratio(report, results, metric, ideal, name_of(kEcmpScheme, kHigh));
            add_ratio(report, results, metric, ideal, name_of(kMpRdmaScheme, kHigh));
            add_ratio(report, results, metric, ideal, name_of(kFlowSchemes[2], kHigh));
        }
    }
    report.notes = {
        "Claims, of mean slowdown and mean time: packet by packet without ordering is worse than ECMP; with an ideal "
        "layer it is better than all. The last packet of MP-RDMA's flows synchronises.",
        kOurs};
    return report;
}

std::vector<Point> eu_lossy_points() {
    std::vector<Point> points;
    add(points, std::array{kIrnScheme}, kLoads);
    add(points, kBareIrnSchemes, kLoads);
    for (const double load : kLoads) {
        points.push_back(ali(kMpRdmaScheme, load, kLossy, {.losses = Losses::kDrops}));
        for (const Scheme& scheme : kIdealSchemes)
            points.push_back(ali(scheme, load, kLossy, {.losses = Losses::kDrops}));
    }
    return points;
}

Report eu_fig1b(const Results& results) {
    Report report;
    report.plot = {"Eunomia Fig. 1b: mean slowdown, lossy", "load", "", {}, {}};
    draw(report, results, std::array{kIrnScheme}, "all mean", "");
    draw(report, results, kBareIrnSchemes, "all mean", "");
    draw(report, results, std::array{kMpRdmaScheme}, "all mean", "", kLossy);
    draw(report, results, kIdealSchemes, "all mean", "", kLossy);
    const std::string irn = name_of(kIrnScheme, kHigh);
    for (size_t i = 0; i < kBareIrnSchemes.size(); ++i) {
        const std::string bare = name_of(kBareIrnSchemes[i], kHigh), ideal = name_of(kIdealSchemes[i], kHigh, kLossy);
        for (const char* metric : {"all mean", "all us"}) {
            add_ratio(report, results, metric, irn, bare);
            add_ratio(report, results, metric, ideal, irn);
            add_ratio(report, results, metric, ideal, name_of(kMpRdmaScheme, kHigh, kLossy));
        }
        report.measures.push_back(results.measure("resent, " + bare, "part", bare, "resent"));
        report.measures.push_back(results.measure("dropped, " + bare, "packets", bare, "dropped"));
    }
    report.notes = {
        "Switches drop. IRN takes a packet for lost that a later one has overtaken, as it must on one path. Claims, of "
        "mean slowdown and mean time: packet by packet without ordering is worse than IRN over ECMP; with an ideal "
        "layer it is better than all. The last packet of MP-RDMA's flows synchronises.",
        kOurs};
    return report;
}

Report eu_fig1c(const Results& results) {
    Report report;
    report.plot = {"Eunomia Fig. 1c: negative acknowledgements", "load", "packets", {}, {}};
    draw(report, results, kBareSchemes, "nacks", "packets");
    draw(report, results, kIdealSchemes, "nacks", "packets");
    for (size_t i = 0; i < kBareSchemes.size(); ++i) {
        const double ideal = results.mean(name_of(kIdealSchemes[i], kHigh), "nacks");
        const double bare = results.mean(name_of(kBareSchemes[i], kHigh), "nacks");
        report.measures.push_back({std::string("nacks with an ideal layer by without, ") + kBareSchemes[i].name, "",
                                   ideal / std::max(bare, 1.0)});
        report.measures.push_back(results.measure(std::string("false alarms, ") + kIdealSchemes[i].name, "packets",
                                                  name_of(kIdealSchemes[i], kHigh), "false alarms"));
    }
    report.notes = {kOurs};
    return report;
}

Report eu_fig3c(const Results& results) {
    Report report;
    report.plot = {"Eunomia Fig. 3c: packets out of order", "load", "part", {}, {}};
    draw(report, results, kIdealSchemes, "early", "");
    for (const Scheme& scheme : kIdealSchemes) {
        const double low = results.mean(name_of(scheme, kLoads.front()), "early");
        const double high = results.mean(name_of(scheme, kHigh), "early");
        report.measures.push_back({std::string("at 80 % by 30 %, ") + scheme.name, "", high / low});
    }
    report.notes = {"A packet is out of order if one before it is still missing when it arrives.", kOurs};
    return report;
}

Report eu_fig3d(const Results& results) {
    Report report;
    report.plot = {"Eunomia Fig. 3d: out-of-order degree at 80 %", "flow size up to, KB", "packets", {}, {}};
    std::array<double, kIdealSchemes.size()> largest{};
    for (size_t i = 0; i < kIdealSchemes.size(); ++i) {
        const Scheme& scheme = kIdealSchemes[i];
        Curve& curve = report.plot.add(scheme.name);
        for (const uint64_t bytes : kSizeClasses) {
            const std::string metric = "size-" + std::to_string(bytes) + " degree", point = name_of(scheme, kHigh);
            curve.points.emplace_back(static_cast<double>(std::min<uint64_t>(bytes, 2'000'000)) / 1000,
                                      results.mean(point, metric));
            report.measures.push_back(results.measure(metric + ", " + scheme.name, "packets", point, metric));
        }
        largest[i] = curve.points.back().second;
        report.measures.push_back({std::string("largest flows by smallest, ") + scheme.name, "",
                                   largest[i] / std::max(curve.points.front().second, 1e-9)});
    }
    report.measures.push_back(
        {"DRILL's degree by the most of the others", "", largest[2] / std::max(largest[0], largest[1])});
    report.notes = {"The most that a packet of a flow is ahead, as the mean over flows of a size.", kOurs};
    return report;
}

Report eu_fig11(const Results& results) {
    Report report;
    report.plot = {"Eunomia Fig. 11c, d: slowdown at 80 %", "flow size up to, KB", "", {}, {}};
    draw_by_size(report, results, std::array{kEcmpScheme, kIrnScheme, kRepsScheme}, kHigh);
    draw_by_size(report, results, kEunomiaSchemes, kHigh);
    Report moderate;
    draw_by_size(moderate, results, std::array{kEcmpScheme, kIrnScheme, kRepsScheme}, kModerate);
    draw_by_size(moderate, results, kEunomiaSchemes, kModerate);
    report.measures.insert(report.measures.end(), moderate.measures.begin(), moderate.measures.end());
    const std::string ecmp = name_of(kEcmpScheme, kHigh), conweave = name_of(kFlowSchemes[2], kHigh);
    for (const Scheme& scheme : kEunomiaSchemes) {
        for (const char* metric : {"all mean", "all us", "all p99"}) {
            add_ratio(report, results, metric, name_of(scheme, kHigh), ecmp);
            add_ratio(report, results, metric, name_of(scheme, kHigh), conweave);
        }
    }
    for (const auto& [metric, name] : {std::pair{"all mean", "mean slowdown"}, std::pair{"all us", "mean time"}}) {
        double least = 1e9;
        for (const Scheme& scheme : kEunomiaSchemes)
            least = std::min(least, results.mean(name_of(scheme, kHigh), metric));
        for (const std::string& other : {ecmp, conweave})
            report.measures.push_back(
                {"best of Eunomia's by " + other + ", " + name, "", least / results.mean(other, metric)});
    }
    report.notes = {
        "The abstract's 85 % less than ECMP and 52 % less than ConWeave are the bars, of the scheme with the least.",
        kOurs};
    return report;
}

std::vector<Point> eu_hadoop_points() {
    std::vector<Point> points;
    for (const double load : {kModerate, kHigh}) {
        const auto point = [&](const Scheme& scheme) {
            points.push_back({name_of(scheme, load),
                              [=](const RunContext& with) { return run_load(with, scheme, fb_hadoop(), load); }});
        };
        for (const Scheme& scheme : {kEcmpScheme, kIrnScheme, kRepsScheme}) point(scheme);
        for (const Scheme& scheme : kEunomiaSchemes) point(scheme);
    }
    return points;
}

Report eu_fig12(const Results& results) {
    Report report;
    report.plot = {"Eunomia Fig. 12c, d: slowdown at 80 %, Meta Hadoop", "flow size up to, KB", "", {}, {}};
    draw_by_size(report, results, std::array{kEcmpScheme, kIrnScheme, kRepsScheme}, kHigh);
    draw_by_size(report, results, kEunomiaSchemes, kHigh);
    for (const Scheme& scheme : kEunomiaSchemes) {
        add_ratio(report, results, "short mean", name_of(scheme, kHigh), name_of(kEcmpScheme, kHigh));
        add_ratio(report, results, "long mean", name_of(scheme, kHigh), name_of(kEcmpScheme, kHigh));
    }
    report.notes = {"Claims: small and large flows gain.", kOurs};
    return report;
}

Report eu_fig13(const Results& results) {
    Report report;
    report.plot = {"Eunomia Fig. 13: part of the time that a port is paused", "load", "", {}, {}};
    for (const char* metric : {"paused hosts", "paused switches"}) {
        draw(report, results, std::array{kEcmpScheme, kMpRdmaScheme}, metric, "");
        draw(report, results, kEunomiaSchemes, metric, "");
        for (const Scheme& scheme : kEunomiaSchemes)
            add_ratio(report, results, metric, name_of(scheme, kHigh), name_of(kEcmpScheme, kHigh));
    }
    report.notes = {
        "The paper: \"almost non-existent\", 99 % less than with ECMP; which of the four it means is not said.", kOurs};
    return report;
}

std::vector<Point> eu_srpt_points() {
    std::vector<Point> points{ali(kEcmpScheme, kHigh)};
    for (const Scheme& scheme : kUncapped) {
        points.push_back(ali(scheme, kHigh));
        for (const auto& [name, order] : kSrpt)
            points.push_back(ali(scheme, kHigh, name, {.srpt = order, .losses = Losses::kDrops}));
    }
    return points;
}

Report eu_fig17(const Results& results) {
    Report report;
    report.plot = {"Eunomia Fig. 17: mean slowdown by size, shortest first, 80 %", "flow size up to, KB", "", {}, {}};
    for (const uint64_t bytes : kSizeClasses) report.plot.categories.push_back(format("%.0f", double(bytes) / 1000));
    const auto curve = [&](const std::string& point) {
        Curve& drawn = report.plot.add(point);
        for (size_t i = 0; i < kSizeClasses.size(); ++i)
            drawn.points.emplace_back(i, results.mean(point, "size-" + std::to_string(kSizeClasses[i]) + " mean"));
        for (const char* metric : {"all mean", "short us", "long us", "bitmap bytes of a host", "size-30000000 degree"})
            report.measures.push_back(results.measure(metric + std::string(", ") + point, "", point, metric));
    };
    const std::string ecmp = name_of(kEcmpScheme, kHigh);
    curve(ecmp);
    for (size_t i = 0; i < kUncapped.size(); ++i) {
        const std::string fifo = name_of(kUncapped[i], kHigh);
        curve(fifo);
        for (const auto& [name, order] : kSrpt) {
            const std::string srpt = name_of(kUncapped[i], kHigh, name);
            curve(srpt);
            add_ratio(report, results, "short us", srpt, ecmp);
            double best = 1;
            for (const uint64_t bytes : kSizeClasses) {
                const std::string size = "size-" + std::to_string(bytes) + " us";
                if (bytes <= kBdp) best = std::min(best, results.mean(srpt, size) / results.mean(ecmp, size));
            }
            report.measures.push_back({"best class of short flows, us, " + srpt + " by " + ecmp, "", best});
            add_ratio(report, results, "bitmap bytes of a host", fifo, srpt);
            add_ratio(report, results, "long us", srpt, fifo);
        }
    }
    report.notes = {
        "Eunomia's bitmap has no cap but the window of 1024 packets. Switches serve the flow with the least left "
        "(srpt: its packets in order, as pFabric; srpt-packet: the packet itself, so a flow that waits is turned "
        "round, which is how the paper explains its bitmaps). Switches that serve so drop: with PFC what waits of long "
        "flows stops whole ports, and short ones wait longer than first come, first served.",
        "The paper: up to 82 % (ECMP) and 86 % (PO2) lower for short flows, by ECMP and FIFO; large ones are worse "
        "with ECMP, and the same with PO2; bitmaps of 200 bytes instead of 26. It says that large flows arrive in "
        "reverse order, so that is of srpt-packet; in order large ones gain too, as on a single link of these sizes.",
        kOurs};
    return report;
}

std::vector<Point> eu_static_points() {
    std::vector<Point> points;
    for (const uint32_t bytes : kStaticBytes)
        points.push_back(ali(kEunomiaSchemes[2], kHigh, format("-static%.0f", bytes), {.static_bytes = bytes}));
    for (const Scheme& scheme : {kEunomiaSchemes[0], kEunomiaSchemes[1]})
        points.push_back(ali(scheme, kHigh, "-static16", {.static_bytes = 16}));
    for (const Scheme& scheme : kEunomiaSchemes) points.push_back(ali(scheme, kHigh));
    return points;
}

Report eu_fig18(const Results& results) {
    Report report;
    const Scheme& drill = kEunomiaSchemes[2];
    report.plot = {"Eunomia Fig. 18a: a static bitmap behind DRILL, 80 %", "bytes", "slowdown", {}, {}};
    for (const char* metric : {"all mean", "all p99"}) {
        Curve& curve = report.plot.add(metric);
        for (const uint32_t bytes : kStaticBytes) {
            const std::string point = name_of(drill, kHigh, format("-static%.0f", bytes));
            curve.points.emplace_back(bytes, results.mean(point, metric));
            report.measures.push_back(results.measure(metric + std::string(", ") + point, "", point, metric));
        }
    }
    const auto of = [&](const Scheme& scheme, const char* variant) { return name_of(scheme, kHigh, variant); };
    add_ratio(report, results, "all mean", of(drill, "-static16"), of(drill, "-static4"));
    add_ratio(report, results, "all mean", of(drill, "-static32"), of(drill, "-static16"));
    for (const Scheme& scheme : kEunomiaSchemes) {
        add_ratio(report, results, "all mean", of(scheme, ""), of(scheme, "-static16"));
        add_ratio(report, results, "bitmap bytes of a host", of(scheme, ""), of(scheme, "-static16"));
        report.measures.push_back(results.measure("bitmap bytes of a host, " + of(scheme, ""), "B", of(scheme, ""),
                                                  "bitmap bytes of a host"));
    }
    report.notes = {
        "Two bits a packet, as MP-RDMA has them: 16 bytes are 64 packets. A static bitmap is there for every flow that "
        "is; the mean is over hosts, every 0.1 ms.",
        kOurs};
    return report;
}

std::vector<Point> eu_ordering_points() {
    using transport::Ordering;
    std::vector<Point> points{ali(kEcmpScheme, kHigh)};
    for (const Scheme& scheme : kEunomiaSchemes) {
        points.push_back(ali(scheme, kHigh));
        points.push_back(ali(scheme, kHigh, "-sender-delay", {.ordering = Ordering::kSenderDelay}));
    }
    return points;
}

Report eu_fig20(const Results& results) {
    Report report;
    report.plot = {"Eunomia Fig. 20: WRITEs whose last packet waits, 80 %", "scheme", "mean slowdown", {}, {}};
    Curve delay{"sender-delay", {}}, hold{"receiver-hold", {}};
    for (size_t i = 0; i < kEunomiaSchemes.size(); ++i) {
        const Scheme& scheme = kEunomiaSchemes[i];
        const std::string delayed = name_of(scheme, kHigh, "-sender-delay"), held = name_of(scheme, kHigh);
        report.plot.categories.push_back(scheme.name);
        delay.points.emplace_back(i, results.mean(delayed, "all mean"));
        hold.points.emplace_back(i, results.mean(held, "all mean"));
        for (const std::string& point : {delayed, held})
            report.measures.push_back(results.measure("all mean, " + point, "", point, "all mean"));
        for (const char* metric : {"all us", "all mean"})
            add_ratio(report, results, metric, delayed, name_of(kEcmpScheme, kHigh));
    }
    report.plot.curves = {delay, hold};
    report.notes = {
        "Claim: better than ECMP even so, by the mean time and by the mean slowdown, in which a short flow that waits "
        "a round trip counts twice. Holding the last packet at the receiver is what the paper leaves as future work.",
        kOurs};
    return report;
}

}  // namespace rove::sim
