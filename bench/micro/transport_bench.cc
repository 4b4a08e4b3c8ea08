// SPDX-License-Identifier: Apache-2.0
// Measures nanoseconds per packet of the transport's requester and responder, without I/O. Argument 0: payload bytes;
// argument 1: 0 = headers and pointers only, 1 = frames are built when sent and parsed when received, ICRC included.
// Only ratios within one run are meaningful on a busy machine. Loopback sends WRITEs between two QPs and counts a
// packet's cost at both ends together, frames and acknowledgements included. Its argument 1: 0 = rc, 1 = mp.
#include <benchmark/benchmark.h>

#include <vector>

#include "transport_side.h"

namespace rove::transport {
namespace {

// The number of requests after which both sides start over, outside the timing.
constexpr uint32_t kRound = 1024;

template <class Step>
void rounds(benchmark::State& state, Side& side, Step step) {
    uint32_t at = 0;
    for (auto _ : state) {
        step(at);
        side.now += 1000;
        at += kBatch;
        if (at == kRound) {
            state.PauseTiming();
            side.start_over();
            at = 0;
            state.ResumeTiming();
        }
    }
    state.SetItemsProcessed(static_cast<int64_t>(state.iterations() * kBatch));
}

void RequesterWrite(benchmark::State& state) {
    const auto bytes = static_cast<uint32_t>(state.range(0));
    Side side(state.range(1));
    std::vector<Side::Incoming> acks;
    for (uint32_t psn = kBatch - 1; psn < kRound; psn += kBatch) {
        acks.push_back(side.incoming(side.headers(wire::Op::kAck, psn), 0));
    }
    rounds(state, side, [&](uint32_t at) {
        for (uint32_t i = 0; i < kBatch; ++i) side.post(IBV_WR_RDMA_WRITE, bytes);
        side.transmit();
        side.receive(acks[at / kBatch]);
    });
}

void ResponderWrite(benchmark::State& state) {
    const auto bytes = static_cast<uint32_t>(state.range(0));
    Side side(state.range(1));
    std::vector<Side::Incoming> writes;
    for (uint32_t psn = 0; psn < kRound; ++psn) {
        wire::Headers h = side.headers(wire::Op::kWriteOnly, psn);
        h.reth.length = bytes;
        h.bth.ack_req = psn % kBatch == kBatch - 1;
        writes.push_back(side.incoming(h, bytes));
    }
    rounds(state, side, [&](uint32_t at) {
        for (uint32_t i = 0; i < kBatch; ++i) side.receive(writes[at + i]);
        side.transmit();
    });
}

void RequesterRead(benchmark::State& state) {
    const auto bytes = static_cast<uint32_t>(state.range(0));
    Side side(state.range(1));
    std::vector<Side::Incoming> responses;
    for (uint32_t psn = 0; psn < kRound; ++psn) {
        responses.push_back(side.incoming(side.headers(wire::Op::kReadResponseOnly, psn), bytes));
    }
    rounds(state, side, [&](uint32_t at) {
        for (uint32_t i = 0; i < kBatch; ++i) side.post(IBV_WR_RDMA_READ, bytes);
        side.transmit();
        for (uint32_t i = 0; i < kBatch; ++i) side.receive(responses[at + i]);
    });
}

void ResponderRead(benchmark::State& state) {
    const auto bytes = static_cast<uint32_t>(state.range(0));
    Side side(state.range(1));
    std::vector<Side::Incoming> requests;
    for (uint32_t psn = 0; psn < kRound; ++psn) {
        wire::Headers h = side.headers(wire::Op::kReadRequest, psn);
        h.reth.length = bytes;
        requests.push_back(side.incoming(h, 0));
    }
    rounds(state, side, [&](uint32_t at) {
        for (uint32_t i = 0; i < kBatch; ++i) side.receive(requests[at + i]);
        side.transmit();
    });
}

// Sends bursts of 32 each way in turn, as between two workers.
void Loopback(benchmark::State& state) {
    const auto bytes = static_cast<uint32_t>(state.range(0));
    const bool multipath = state.range(1) != 0;
    Side a(true, multipath), b(true, multipath);
    a.sink.keep = b.sink.keep = true;
    a.qp.remote_qpn = b.qp.qpn;
    b.qp.remote_qpn = a.qp.qpn;
    const auto deliver = [](Side& from, Side& to) {
        for (uint32_t i = 0; i < from.sink.count; ++i) {
            wire::ParsedFrame parsed;
            benchmark::DoNotOptimize(wire::parse_headers({from.sink.frames[i].data(), from.sink.bytes[i]}, parsed));
            to.engine.receive(parsed, to.qps.find(parsed.headers.bth.dest_qpn), 0, to.now);
        }
        from.sink.count = 0;
    };
    for (auto _ : state) {
        while (a.qp.sq.produced() - a.qp.sq.consumed() < 64) a.post(IBV_WR_RDMA_WRITE, bytes, b.region);
        a.engine.doorbell(a.qp);
        a.engine.transmit(a.now, kBatch);
        deliver(a, b);
        b.engine.transmit(b.now, kBatch);
        deliver(b, a);
        a.now += 5000;
        b.now += 5000;
        a.engine.expire(a.now);
        b.engine.expire(b.now);
    }
    state.SetItemsProcessed(static_cast<int64_t>(a.engine.counters()[Counter::kTxPackets]));
}

BENCHMARK(RequesterWrite)->ArgsProduct({{8, 4096}, {0, 1}});
BENCHMARK(ResponderWrite)->ArgsProduct({{8, 4096}, {0, 1}});
BENCHMARK(RequesterRead)->ArgsProduct({{8, 4096}, {0, 1}});
BENCHMARK(ResponderRead)->ArgsProduct({{8, 4096}, {0, 1}});
BENCHMARK(Loopback)->ArgsProduct({{8, 4096, 65536}, {0, 1}});

}  // namespace
}  // namespace rove::transport

BENCHMARK_MAIN();
