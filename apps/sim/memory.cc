// SPDX-License-Identifier: Apache-2.0
// The memory of a connection. Eunomia Fig. 9c, 9d and 10, and Table 1: the receiver's reorder tracking, as its
// allocator counts it. MP-RDMA Table 1: all state that it adds to a connection.
#include "experiments.h"
#include "fabric/random.h"
#include "transport/core.h"
#include "transport/mp/state.h"
#include "transport/reorder/reorder.h"

namespace rove::sim {
namespace {

using namespace transport;

constexpr uint32_t kConnections = 20, kCap = 256;
constexpr int kRuns = 100;
constexpr double kPaperStatic = 41;  // bytes: 256 bits and 9 bytes

// Returns the mean bytes of a connection. In `reordered` connections the expected packet is late, and the packets up to
// `least` to `most` percent of the cap behind it have arrived, in any order.
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
    const ReorderConfig eunomia = transport::kEunomiaSizes, mp_rdma{.kind = ReorderConfig::Kind::kStatic};
    ReorderConfig same_cap = mp_rdma;
    same_cap.static_slots = kCap;

    Report report;
    const double least = bytes(random, eunomia, 0, 10, 100), most = bytes(random, eunomia, kConnections, 100, 100);
    const double fixed = bytes(random, same_cap, 0, 10, 100), small = bytes(random, mp_rdma, 0, 10, 100);
    Curve ours{"rove, Eunomia", {}}, bitmaps{"its bitmaps alone", {}}, ours_static{"rove, static 256", {}},
        paper_static{"paper, static 256", {}};
    // Metadata of one block.
    const double metadata = bytes(random, eunomia, kConnections, 1, 1) - kReorderStreamBytes - 4;
    double crossover = 100, paper_crossover = 100;
    for (uint32_t reordered = 0; reordered <= kConnections; ++reordered) {
        const double percent = 100.0 * reordered / kConnections, used = bytes(random, eunomia, reordered, 10, 100);
        ours.points.emplace_back(percent, used);
        bitmaps.points.emplace_back(percent, used - kReorderStreamBytes - metadata * reordered / kConnections);
        ours_static.points.emplace_back(percent, fixed);
        paper_static.points.emplace_back(percent, kPaperStatic);
        if (used < fixed) crossover = percent;
        if (used < kPaperStatic) paper_crossover = percent;
    }
    report.measures = {
        {"Table 1: all in order", "B", least},
        {"Table 1: 256 packets ahead", "B", most},
        {"Table 1: MP-RDMA's bitmap, 64 packets", "B", small},
        {"Table 1: IRN's, 100 packets", "B", bytes(random, eunomia, kConnections, 40, 40)},
        {"Fig. 9d: static bitmap, 256 packets", "B", fixed},
        {"Fig. 9d: reordered connections up to which less is taken than by it", "%", crossover},
        {"Fig. 9d: reordered connections up to which less is taken than by the paper's static bitmap", "%",
         paper_crossover},
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

Report table1(uint64_t) {
    // The state that its rules need in addition to that of RoCE v2 (the oldest unacknowledged and the next PSN, a
    // timer). Times are in ticks of 32 bits, as in a packet's record; PSNs have 24 bits; windows are as ours.
    struct Variable {
        const char* name;
        size_t bytes;
    };
    constexpr size_t time = sizeof(PacketRecord::sent), psn = 3;
    constexpr std::array kOfNic{
        Variable{"cwnd (MP-1)", sizeof(SendStream::cwnd_fixed)},
        Variable{"inflate (MP-2)", sizeof(SendStream::inflate)},
        Variable{"initial credits (MP-3)", sizeof(SendStream::credits)},
        Variable{"snd_ooh (MP-4)", psn},
        Variable{"probe timer (MP-5)", time},
        Variable{"burst timer (MP-6)", time},
        Variable{"last ACK (MP-8)", time},
        Variable{"snd_retx, recovery (MP-9)", 2 * psn},
        Variable{"backoff, flags (MP-9, MP-11)", sizeof(SendStream::backoff) + sizeof(SendStream::recovering)},
        Variable{"smoothed round trip", time},
        Variable{"bitmap of 64 slots, and where it is", 64 / 4 + 1},
        Variable{"synchronise: when, and after which message (MP-12)", time + sizeof(uint32_t)},
    };
    Report report;
    size_t sum = 0;
    for (const Variable& variable : kOfNic) {
        report.measures.push_back({variable.name, "B", static_cast<double>(variable.bytes)});
        sum += variable.bytes;
    }
    report.measures.push_back({"all of these", "B", static_cast<double>(sum)});
    const size_t records = sizeof(PacketRecord) * transport::Paths::kFirstRing;
    report.measures.push_back({"rove: state of a QP in mp beyond rc", "B", static_cast<double>(sizeof(Mp))});
    report.measures.push_back(
        {"... and ACKs to use, both streams, at most", "B", 2.0 * sizeof(uint16_t) * transport::UnusedAcks::kMost});
    report.measures.push_back(
        {"... and records of packets, while any are on their way", "B", static_cast<double>(records)});
    report.measures.push_back({"... and for early packets that are held, of a worker", "B",
                               static_cast<double>(transport::Config{}.held_bytes)});
    report.notes = {
        "The text gives the sum only, 66 bytes, beside DCQCN's 60. A NIC needs no more by rove's reading of the rules. "
        "rove itself has a record of every packet on its way, and keeps the ACKs that found nothing to send, which the "
        "paper's NIC has no room for (paths.h, notes 2 and 3); and a stream each for requests and responses."};
    report.plot = {"MP-RDMA Table 1: bytes of a connection", "", "bytes", {}, {}};
    Curve& curve = report.plot.add("by variable");
    for (size_t i = 0; i < kOfNic.size(); ++i) {
        report.plot.categories.emplace_back(kOfNic[i].name);
        curve.points.emplace_back(i, kOfNic[i].bytes);
    }
    return report;
}

}  // namespace rove::sim
