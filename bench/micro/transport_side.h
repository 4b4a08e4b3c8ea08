// SPDX-License-Identifier: Apache-2.0
// An engine with one connected QP and no I/O, for measurements: the caller plays the peer, or joins two of them.
// Units: bytes, nanoseconds of virtual time.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "transport/engine.h"

namespace rove::transport {

inline constexpr uint32_t kMtu = 4096;
inline constexpr uint32_t kBatch = 32;  // requests posted and acknowledged together

// Makes the compiler compute `value` although nothing reads it.
template <class T>
void keep_alive(const T& value) {
    asm volatile("" : : "r,m"(value) : "memory");
}

// Builds frames into buffers of its own.
struct FrameSink {
    static constexpr uint32_t kFrames = 64;
    bool build = false;
    bool keep = false;  // frames stay until `count` is reset; otherwise each overwrites the one before it
    std::vector<std::vector<uint8_t>> frames = std::vector(kFrames, std::vector<uint8_t>(kMtu + 256));
    std::vector<uint32_t> bytes = std::vector<uint32_t>(kFrames);
    uint32_t count = 0;

    bool ready() { return count != kFrames; }
    bool ready(const Path&) { return ready(); }
    void send(const Path& path, const wire::Headers& headers, std::span<const wire::Segment> payload) {
        uint8_t* frame = frames[count].data();
        if (build) bytes[count] = static_cast<uint32_t>(wire::build_frame(frame, path.headers, headers, payload));
        count += keep;
        keep_alive(frame);
    }
    struct Series {
        FrameSink& sink;
        wire::FrameSeries series;
        void send(const wire::Headers& headers, const void* payload) {
            uint8_t* frame = sink.frames[sink.count].data();
            if (sink.build) {
                const wire::BuiltFrame built = series.build_unsealed(frame, headers, payload);
                if (built.l3_offset != 0) wire::seal(frame, built);
                sink.bytes[sink.count] = built.bytes;
            }
            sink.count += sink.keep;
            keep_alive(frame);
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

// A connected QP with its engine and memory.
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
    // A packet from the peer, parsed and as a frame.
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
        keep_alive(wire::parse_headers(in.frame, parsed));
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
    void post_receive(uint32_t bytes) {
        RecvWqe& wqe = qp.rq.at(qp.rq.produced());
        wqe = {};
        wqe.num_sge = 1;
        wqe.length = bytes;
        wqe.sges()[0] = {region.iova, bytes, region.key};
        qp.rq.publish(1);
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
    FrameSink sink;
    Engine<FrameSink> engine{Config{}, qps, table, time_wait, sink};
};

}  // namespace rove::transport
