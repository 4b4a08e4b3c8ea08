// SPDX-License-Identifier: Apache-2.0
// Eunomia Fig. 9c, 9d and 10, and Table 1: what the receiver's reorder tracking takes, as its allocator counts it.
#include "experiments.h"
#include "fabric/random.h"
#include "transport/reorder/reorder.h"

namespace rove::sim {
namespace {

using namespace transport;

constexpr uint32_t kConnections = 20, kCap = 256;
constexpr int kRuns = 100;
constexpr double kPaperStatic = 41;  // bytes: 256 bits and 9 bytes

// Bytes of a connection, the mean of all. Of `reordered` connections the expected packet is late, and those up to
// `least` to `most` percent of the cap behind it are there, in any order.
double bytes(fabric::Random& random, const ReorderConfig& config, uint32_t reordered, uint32_t least, uint32_t most) {
    double sum = 0;
    for (int run = 0; run < kRuns; ++run) {
        Reorder reorder(config);
        std::array<ReorderStream, kConnections> streams;
        for (ReorderStream& stream : streams) reorder.start(stream, Psn(0));
        for (uint32_t i = 0; i < reordered; ++i) {
            const auto degree = static_cast<uint32_t>(least + random.below(most - least + 1)) * (kCap - 1) / 100;
            std::vector<uint32_t> order(degree);
            for (uint32_t k = 0; k < degree; ++k) {
                const uint64_t at = random.below(k + 1);
                order[k] = order[at];
                order[at] = k + 1;
            }
            for (const uint32_t psn : order) {
                if (reorder.classify(streams[i], Psn(psn)) == Arrival::kOutOfOrder)
                    reorder.track(streams[i], Psn(psn), Slot::kReceived, false);
            }
        }
        sum += static_cast<double>(reorder.usage().bytes) / kConnections + kReorderStreamBytes;
    }
    return sum / kRuns;
}

}  // namespace

Report memory(uint64_t seed) {
    fabric::Random random(seed, 0);
    const ReorderConfig eunomia, mp_rdma{.kind = ReorderConfig::Kind::kStatic};
    ReorderConfig same_cap = mp_rdma;
    same_cap.static_slots = kCap;

    Report report;
    const double least = bytes(random, eunomia, 0, 10, 100), most = bytes(random, eunomia, kConnections, 100, 100);
    const double fixed = bytes(random, same_cap, 0, 10, 100), small = bytes(random, mp_rdma, 0, 10, 100);
    Curve ours{"rove, Eunomia", {}}, bitmaps{"its bitmaps alone", {}}, ours_static{"rove, static 256", {}},
        paper_static{"paper, static 256", {}};
    const double metadata = bytes(random, eunomia, kConnections, 1, 1) - kReorderStreamBytes - 4;  // of one block
    double crossover = 100;
    for (uint32_t reordered = 0; reordered <= kConnections; ++reordered) {
        const double percent = 100.0 * reordered / kConnections, used = bytes(random, eunomia, reordered, 10, 100);
        ours.points.emplace_back(percent, used);
        bitmaps.points.emplace_back(percent, used - kReorderStreamBytes - metadata * reordered / kConnections);
        ours_static.points.emplace_back(percent, fixed);
        paper_static.points.emplace_back(percent, kPaperStatic);
        if (used < fixed) crossover = percent;
    }
    report.measures = {
        {"Table 1: all in order", "B", least, 4, "at most 4", least <= 4},
        {"Table 1: 256 packets ahead", "B", most, 82},
        {"Table 1: MP-RDMA's bitmap, 64 packets", "B", small, 17 + 49, "at most 66", small <= 66},
        {"Table 1: IRN's, 100 packets", "B", bytes(random, eunomia, kConnections, 40, 40), 125 + 20,
         "at most 145, for as many", bytes(random, eunomia, kConnections, 40, 40) <= 145},
        {"Fig. 9d: static bitmap, 256 packets", "B", fixed, kPaperStatic},
        {"Fig. 9d: reordered connections up to which less is taken", "%", crossover, 60, "at least 60",
         crossover >= 60},
        {"Fig. 9d: all reordered, by 10 to 100 %", "B", ours.points.back().second},
        {"Fig. 9c: bitmaps of these", "B", bitmaps.points.back().second},
    };
    for (const uint32_t degree : {10u, 50u, 100u}) {
        report.measures.push_back({format("Fig. 10: all reordered, by %.0f %%", degree), "B",
                                   bytes(random, eunomia, kConnections, degree, degree)});
    }
    report.notes = {
        "20 connections, blocks of 16, at most 256 packets; a reordered one has all packets up to 10 to 100 % of "
        "that behind its expected one, in random order. Means of 100 draws.",
        "Ours keep two bits of a packet (MP-RDMA's states), the paper's one: so its bitmaps, and the static one to "
        "compare with, are half as large. Metadata is 44 bytes of ours, 48 in section 4 of the paper.",
        "IRN's row is our Eunomia with 102 packets of reordering: what IRN's 145 bytes are for.",
    };
    report.plot = {"Eunomia Fig. 9c and 9d: reorder memory",
                   "connections that are reordered, %",
                   "bytes a connection",
                   {ours, bitmaps, ours_static, paper_static},
                   {}};
    return report;
}

}  // namespace rove::sim
