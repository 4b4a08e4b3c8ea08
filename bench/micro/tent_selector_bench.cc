// SPDX-License-Identifier: Apache-2.0
// Measures nanoseconds per slice of the device selector: allocate(), post() and complete(), each shown separately.
#include <benchmark/benchmark.h>

#include <vector>

#include "tent/placement/device_selector.h"

namespace rove::tent {
namespace {

constexpr uint64_t kBlock = 65'536;

std::vector<Device> devices(int64_t count) {
    std::vector<Device> made;
    for (int64_t i = 0; i < count; ++i)
        made.push_back({.name = std::to_string(i), .bandwidth_bytes_per_s = 12.5e9 * static_cast<double>(1 + i % 2)});
    return made;
}

// Arguments: devices, slices per call, smart, priority. The time is that of a call; items are slices.
void Allocate(benchmark::State& state) {
    SelectorConfig config;
    config.enable_smart_scheduling = state.range(2) != 0;
    DeviceSelector selector(devices(state.range(0)), config);
    const std::vector<uint64_t> bytes(static_cast<size_t>(state.range(1)), kBlock);
    const auto priority = static_cast<Priority>(state.range(3));
    std::vector<uint8_t> chosen(bytes.size());
    uint64_t now = 1;
    for (auto _ : state) {
        if (!selector.allocate(bytes, -1, DeviceSelector::kAllDevices, priority, now, chosen).ok())
            state.SkipWithError("allocate");
        benchmark::DoNotOptimize(chosen.data());
        now += 1'000;
    }
    state.SetItemsProcessed(state.iterations() * state.range(1));
}
BENCHMARK(Allocate)
    ->ArgNames({"devices", "slices", "smart", "priority"})
    ->ArgsProduct({{2, 8}, {1, 64}, {0, 1}, {0}})
    ->Args({8, 1, 1, 2})
    ->Args({8, 64, 1, 2});

// Covers the whole life of a slice.
void AllocateAndComplete(benchmark::State& state) {
    DeviceSelector selector(devices(state.range(0)), {});
    const std::vector<uint64_t> bytes(static_cast<size_t>(state.range(1)), kBlock);
    std::vector<uint8_t> chosen(bytes.size());
    std::vector<PostMark> marks(bytes.size());
    uint64_t now = 1;
    for (auto _ : state) {
        if (!selector.allocate(bytes, -1, DeviceSelector::kAllDevices, Priority::kHigh, now, chosen).ok())
            state.SkipWithError("allocate");
        for (size_t i = 0; i < chosen.size(); ++i) marks[i] = selector.post(chosen[i], now);
        now += 10'000;
        for (size_t i = 0; i < chosen.size(); ++i) selector.complete(chosen[i], kBlock, marks[i], now);
    }
    state.SetItemsProcessed(state.iterations() * state.range(1));
}
BENCHMARK(AllocateAndComplete)->ArgNames({"devices", "slices"})->ArgsProduct({{8}, {1, 64}});

}  // namespace
}  // namespace rove::tent

BENCHMARK_MAIN();
