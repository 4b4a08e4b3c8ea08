// SPDX-License-Identifier: Apache-2.0
// Measures nanoseconds per packet of parse_frame and build_frame by payload, and the CRC kernels in comparison with
// memcpy by working set. Only ratios within one run are meaningful on a busy machine.
#include <benchmark/benchmark.h>

#include <cstring>
#include <numeric>
#include <vector>

#include "wire/crc32.h"
#include "wire/frame.h"

namespace rove::wire {
namespace {

Flow make_flow(bool v6) {
    Flow flow{.dst_mac = {2, 0, 0, 0, 7, 2}, .src_mac = {2, 0, 0, 0, 7, 1}, .udp_src = 49152};
    flow.src = flow.dst = v6 ? Gid{0xFD, 7} : Gid{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF, 10, 7, 0, 1};
    return flow;
}

Headers write_only() {
    Headers headers;
    headers.bth = {.opcode = opcode(Service::kRc, Op::kWriteOnly), .ack_req = true, .dest_qpn = 17};
    headers.reth = {.va = 0x7F0000001000, .rkey = 0x1234, .length = 8};
    return headers;
}

std::vector<uint8_t> bytes(size_t count) {
    std::vector<uint8_t> made(count);
    std::iota(made.begin(), made.end(), uint8_t{1});
    return made;
}

// Arguments: payload bytes, IPv6.
void BuildFrame(benchmark::State& state) {
    const auto payload = bytes(static_cast<size_t>(state.range(0)));
    const FlowTemplate flow = make_template(make_flow(state.range(1)));
    Headers headers = write_only();
    std::vector<uint8_t> out(frame_bytes(flow, headers.bth.opcode, static_cast<uint32_t>(payload.size())));
    for (auto _ : state) {
        const Segment segment{payload.data(), static_cast<uint32_t>(payload.size())};
        headers.bth.psn = (headers.bth.psn + 1) & 0xFFFFFF;
        benchmark::DoNotOptimize(build_frame(out.data(), flow, headers, {&segment, 1}));
        benchmark::ClobberMemory();
    }
}

void ParseFrame(benchmark::State& state) {
    const auto payload = bytes(static_cast<size_t>(state.range(0)));
    const FlowTemplate flow = make_template(make_flow(state.range(1)));
    const Headers headers = write_only();
    const Segment segment{payload.data(), static_cast<uint32_t>(payload.size())};
    std::vector<uint8_t> frame(frame_bytes(flow, headers.bth.opcode, segment.bytes));
    build_frame(frame.data(), flow, headers, {&segment, 1});
    ParsedFrame parsed;
    for (auto _ : state) {
        if (parse_frame(frame, parsed) != ParseError::kNone) state.SkipWithError("parse_frame");
        benchmark::DoNotOptimize(parsed);
        benchmark::ClobberMemory();
    }
}

BENCHMARK(BuildFrame)->ArgNames({"bytes", "v6"})->ArgsProduct({{8, 64, 128, 256, 1024, 4096}, {0, 1}});
BENCHMARK(ParseFrame)->ArgNames({"bytes", "v6"})->ArgsProduct({{8, 64, 128, 256, 1024, 4096}, {0, 1}});

const Crc32Kernel& kernel(int64_t index) {
    static const Crc32Kernel* const kernels[] = {&kCrc32Portable, &kCrc32Sse, &kCrc32Avx2, &kCrc32Avx512, &kCrc32Gfni};
    return *kernels[index];
}

void Crc32(benchmark::State& state) {
    const Crc32Kernel& crc = kernel(state.range(0));
    if (!supported(crc)) return state.SkipWithError("not on this machine");
    const auto data = bytes(static_cast<size_t>(state.range(1)));
    uint32_t value = 0;
    for (auto _ : state) benchmark::DoNotOptimize(value = crc.crc32(value, data.data(), data.size()));
    state.SetBytesProcessed(state.iterations() * state.range(1));
}
BENCHMARK(Crc32)->ArgNames({"kernel", "bytes"})->ArgsProduct({{0, 1, 2, 3, 4}, {8, 28, 64, 76, 256, 1024, 4096}});

// Copies blocks of 4096 bytes through two buffers of `set` bytes. Kernel -1 is memcpy. Source and target begin a page,
// `shift` bytes apart: glibc's memcpy (rep movsb) is many times slower on Zen 3 if the target is a few bytes behind the
// source within a page.
void Copy(benchmark::State& state) {
    constexpr size_t kBlock = 4096;
    const bool copy_only = state.range(0) < 0;
    if (!copy_only && !supported(kernel(state.range(0)))) return state.SkipWithError("not on this machine");
    const auto copy = copy_only ? nullptr : kernel(state.range(0)).crc32_copy;
    const auto set = static_cast<size_t>(state.range(1));
    auto memory = bytes(2 * set + 3 * kBlock);
    const auto first = reinterpret_cast<uintptr_t>(memory.data());
    uint8_t* const from = memory.data() + (kBlock - first % kBlock);
    uint8_t* const to = from + set + static_cast<size_t>(state.range(2));
    size_t at = 0;
    for (auto _ : state) {
        if (copy_only) {
            std::memcpy(to + at, from + at, kBlock);
        } else {
            benchmark::DoNotOptimize(copy(0, to + at, from + at, kBlock));
        }
        benchmark::ClobberMemory();
        at = at + kBlock == set ? 0 : at + kBlock;
    }
    state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(kBlock));
}
BENCHMARK(Copy)
    ->ArgNames({"kernel", "set", "shift"})
    ->ArgsProduct({{-1, 0, 1, 2, 3, 4}, {8 << 10, 192 << 10, 6 << 20, 64 << 20}, {0, 16}});

}  // namespace
}  // namespace rove::wire

BENCHMARK_MAIN();
