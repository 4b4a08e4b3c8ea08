// SPDX-License-Identifier: Apache-2.0
// Measures nanoseconds per packet of the reorder bitmaps, both through class Reorder: classify, then advance or track.
// Packets of a stream are in order, or overtake each other by up to `degree`; the static bitmap has as many slots as
// Eunomia's cap, so that it can track the same. With `last` the stream's memory is freed after each round of packets
// and grows again in the next; `refused` counts the packets of a round that could not be tracked at first. Only ratios
// within one run are meaningful on a busy machine.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <random>
#include <vector>

#include "transport/reorder/reorder.h"

namespace rove::transport {
namespace {

constexpr uint32_t kRound = 4096;  // packets
constexpr uint32_t kRetry = 32;    // packets after which refused ones are sent again

ReorderConfig config(benchmark::State& state) {
    return {.kind = state.range(0) == 1 ? ReorderConfig::Kind::kStatic : ReorderConfig::Kind::kEunomia,
            .block_slots = kEunomiaSizes.block_slots,
            .cap_slots = kEunomiaSizes.cap_slots,
            .static_slots = 256};
}

// Returns the packets of a round in their order of arrival.
std::vector<uint32_t> shuffled(uint32_t degree) {
    std::mt19937_64 random(1);
    std::vector<std::pair<uint64_t, uint32_t>> order;
    for (uint32_t i = 0; i < kRound; ++i) order.emplace_back(i + random() % degree, i);
    std::stable_sort(order.begin(), order.end(), [](auto& a, auto& b) { return a.first < b.first; });
    std::vector<uint32_t> packets;
    packets.reserve(kRound);
    for (const auto& [time, packet] : order) packets.push_back(packet);
    return packets;
}

void InOrder(benchmark::State& state) {
    Reorder reorder(config(state));
    ReorderStream stream;
    reorder.start(stream, Psn(0));
    uint32_t psn = 0;
    for (auto _ : state) {
        if (reorder.classify(stream, Psn(psn++)) != Arrival::kInOrder) return state.SkipWithError("not in order");
        reorder.advance(stream, false, [](Psn, Slot) { return true; });
        benchmark::DoNotOptimize(stream);
    }
    reorder.stop(stream);
}

void Shuffled(benchmark::State& state) {
    const auto packets = shuffled(static_cast<uint32_t>(state.range(1)));
    const bool last = state.range(2) != 0;
    Reorder reorder(config(state));
    ReorderStream stream;
    reorder.start(stream, Psn(0));
    uint64_t refused = 0, tails = 0, rounds = 0;
    Psn base(0);
    std::vector<uint32_t> again, now;
    const auto arrive = [&](uint32_t packet) {
        const Psn psn = base + packet;
        const bool ends = last && packet == kRound - 1;
        switch (reorder.classify(stream, psn)) {
            case Arrival::kInOrder:
                reorder.advance(stream, ends, [&](Psn, Slot) { return ++tails != 0; });
                break;
            case Arrival::kOutOfOrder:
                reorder.track(stream, psn, packet % 8 == 7 ? Slot::kTail : Slot::kReceived, ends);
                break;
            default:
                again.push_back(packet);
        }
    };
    const auto retry = [&] {
        now.swap(again);
        refused += now.size();
        for (const uint32_t packet : now) arrive(packet);
        now.clear();
    };
    for (auto _ : state) {
        for (uint32_t i = 0; i < kRound; ++i) {
            arrive(packets[i]);
            if (i % kRetry == 0 && !again.empty()) retry();
        }
        while (!again.empty()) retry();
        base = base + kRound;
        ++rounds;
    }
    if (stream.expected != base) state.SkipWithError("packets are missing");
    benchmark::DoNotOptimize(tails);
    state.SetItemsProcessed(static_cast<int64_t>(rounds * kRound));
    state.counters["ns_per_packet"] = benchmark::Counter(static_cast<double>(rounds * kRound) * 1e-9,
                                                         benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
    state.counters["refused"] = static_cast<double>(refused) / static_cast<double>(rounds);
    state.counters["peak_bytes"] = static_cast<double>(reorder.usage().peak_bytes);
    reorder.stop(stream);
}

BENCHMARK(InOrder)->ArgName("static")->Arg(0)->Arg(1);
BENCHMARK(Shuffled)->ArgNames({"static", "degree", "last"})->ArgsProduct({{0, 1}, {8, 32, 200}, {0, 1}});

}  // namespace
}  // namespace rove::transport

BENCHMARK_MAIN();
