// SPDX-License-Identifier: Apache-2.0
// Nanoseconds per packet of the transport's requester and responder, without I/O. Argument 0: payload bytes; argument
// 1: 0 = headers and pointers only, 1 = frames are built when sent and parsed when received, ICRC included. Only the
// ratios within one run mean much on a machine that does other things too. Loopback: WRITEs between two QPs, a packet's
// cost at both ends together, frames and acknowledgements included. Argument 1: 0 = rc, 1 = mp.
#include <benchmark/benchmark.h>

#include <cstring>
#include <vector>

#include "transport/engine.h"

namespace rove::transport {
namespace {

constexpr uint32_t kMtu = 4096;
constexpr uint32_t kBatch = 32;  // requests posted and acknowledged together

struct Sink {
    static constexpr uint32_t kFrames = 64;
    bool build = false;
    bool keep = false;  // frames, until they are taken; else each overwrites the one before it
    std::vector<std::vector<uint8_t>> frames = std::vector(kFrames, std::vector<uint8_t>(kMtu + 256));
    std::vector<uint32_t> bytes = std::vector<uint32_t>(kFrames);
    uint32_t count = 0;

    bool ready() { return count != kFrames; }
    bool ready(const Path&) { return ready(); }
    void send(const Path& path, const wire::Headers& headers, std::span<const wire::Segment> payload) {
        uint8_t* frame = frames[count].data();
        if (build) bytes[count] = static_cast<uint32_t>(wire::build_frame(frame, path.headers, headers, payload));
        count += keep;
        benchmark::DoNotOptimize(frame);
    }
    struct Series {
        Sink& sink;
        wire::FrameSeries series;
        void send(const wire::Headers& headers, const void* payload) {
            uint8_t* frame = sink.frames[sink.count].data();
            if (sink.build) {
                const wire::BuiltFrame built = series.build_unsealed(frame, headers, payload);
                if (built.l3_offset != 0) wire::seal(frame, built);
                sink.bytes[sink.count] = built.bytes;
            }
            sink.count += sink.keep;
            benchmark::DoNotOptimize(frame);
        }
    };
    Series series(const Path& path, const wire::Headers& headers, uint32_t bytes) {
        return {*this, {path.headers, headers, bytes}};
    }
    void suspect(const Path&) {}
    void notify(CompletionQueue&) {}
    void event(ibv_event_type, QueuePair&) {}
    void event(ibv_event_type, CompletionQueue&) {}
    void event(ibv_event_type, SharedRecvQueue&) {}
};

// A connected QP whose peer is played by the benchmark.
struct Side {
    explicit Side(bool build, bool multipath = false) {
        sink.build = build;
        cq.init(1024, {.one_producer = true, .never_armed = true});
        region.iova = reinterpret_cast<uint64_t>(memory.data());
        region.length = memory.size();
        region.host = memory.data();
        region.access =
            IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
        table.insert(region);
        qp.send_cq = qp.recv_cq = &cq;
        qp.sq.init(256, 1, 0);
        qp.rq.init(256, 1);
        qp.slot.sges = std::make_unique<ibv_sge[]>(1);
        qps.insert(qp);
        qp.access = static_cast<uint32_t>(region.access);
        engine.set_state(qp, IBV_QPS_INIT, 1);
        qp.mtu = kMtu;
        qp.remote_qpn = 17;
        qp.max_rd_atomic = qp.max_dest_rd_atomic = kBatch;
        qp.path.flow.src = qp.path.flow.dst = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF, 10, 0, 0, 1};
        qp.path.headers = wire::make_template(qp.path.flow);
        engine.start_receiving(qp, 0, multipath);
        engine.set_state(qp, IBV_QPS_RTR, 1);
        engine.start_sending(qp, 0);
        engine.set_state(qp, IBV_QPS_RTS, 1);
    }
    ~Side() {
        engine.remove(qp);
        qps.remove(qp);
        table.remove(region);
    }

    wire::Headers headers(wire::Op op, uint32_t psn) const {
        wire::Headers h;
        h.bth.opcode = wire::opcode(wire::Service::kRc, op);
        h.bth.dest_qpn = qp.qpn;
        h.bth.psn = psn;
        h.aeth = {wire::kSyndromeAck, 0};
        h.reth = {region.iova, region.key, 0};
        return h;
    }
    // A packet from the peer: as a frame when frames are measured.
    struct Incoming {
        std::vector<uint8_t> frame;
        wire::ParsedFrame parsed;
    };
    Incoming incoming(const wire::Headers& h, uint32_t bytes) const {
        Incoming in;
        in.frame.resize(wire::frame_bytes(qp.path.headers, h.bth.opcode, bytes));
        const wire::Segment segment{memory.data() + 8192, bytes};
        wire::build_frame(in.frame.data(), qp.path.headers, h, {&segment, bytes != 0 ? 1u : 0u});
        wire::parse_frame(in.frame, in.parsed);
        return in;
    }
    void receive(Incoming& in) {
        if (!sink.build) {
            engine.receive(in.parsed, &qp, 0, now);
            return;
        }
        wire::ParsedFrame parsed;
        benchmark::DoNotOptimize(wire::parse_headers(in.frame, parsed));
        engine.receive(parsed, qps.find(parsed.headers.bth.dest_qpn), 0, now);
    }
    void post(ibv_wr_opcode opcode, uint32_t bytes) { post(opcode, bytes, region); }
    void post(ibv_wr_opcode opcode, uint32_t bytes, const Region& remote) {
        SendWqe& wqe = qp.sq.at(qp.sq.produced());
        wqe = {};
        wqe.opcode = static_cast<uint8_t>(opcode);
        wqe.length = bytes;
        wqe.num_sge = 1;
        wqe.sges()[0] = {region.iova, bytes, region.key};
        wqe.remote_addr = remote.iova;
        wqe.rkey = remote.key;
        qp.sq.publish(1);
    }
    void transmit() {
        engine.doorbell(qp);
        while (engine.transmit(now, 64) > 0) {
        }
    }
    void start_over() {
        engine.set_state(qp, IBV_QPS_RESET, now);
        engine.set_state(qp, IBV_QPS_INIT, now);
        engine.start_receiving(qp, 0);
        engine.set_state(qp, IBV_QPS_RTR, now);
        engine.start_sending(qp, 0);
        engine.set_state(qp, IBV_QPS_RTS, now);
    }

    uint64_t now = 1;
    std::vector<uint8_t> memory = std::vector<uint8_t>(65536, 0x5A);
    Region region;
    CompletionQueue cq;
    QueuePairTable qps{Secret::of(1)};
    MemoryTable table{Secret::of(2)};
    TimeWaitTable time_wait;
    QueuePair qp;
    Sink sink;
    Engine<Sink> engine{Config{}, qps, table, time_wait, sink};
};

// The peer's packets of kRound requests; then both sides start over, outside the timing.
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

// A burst of 32 each way in turn, as between two workers.
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
