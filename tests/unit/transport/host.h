// SPDX-License-Identifier: Apache-2.0
// One end of the virtual network: tables, engine, and the verbs calls that tests need, without checks and locks. Units:
// virtual nanoseconds, bytes.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <vector>

#include "transport/engine.h"

namespace rove::test {

using transport::CompletionQueue;
using transport::Counter;
using transport::Path;
using transport::QueuePair;
using transport::Region;
using transport::SharedRecvQueue;
using transport::Window;

inline constexpr int kAllAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
                                  IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND;

inline constexpr int kRemoteAccess = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;

// Builds real frames and passes them to `transmit`; records the engine's other calls.
struct TestSink {
    std::function<bool()> room = [] { return true; };
    std::function<bool(const Path&)> takes = [](const Path&) { return true; };
    std::function<void(const Path&, const wire::Headers&, std::vector<uint8_t>&&)> transmit;
    struct Event {
        ibv_event_type type;
        const void* object;
    };
    std::vector<Event> events;
    std::vector<const CompletionQueue*> notified;
    std::vector<wire::Gid> suspected;  // peers
    uint64_t in_series = 0;            // packets
    std::vector<uint8_t> frame;        // being built: a fault in the program's memory leaves it by longjmp

    bool ready() { return room(); }
    bool ready(const Path& path) { return takes(path) && room(); }
    void send(const Path& path, const wire::Headers& headers, std::span<const wire::Segment> payload) {
        uint32_t bytes = 0;
        for (const wire::Segment& segment : payload) bytes += segment.bytes;
        frame.assign(wire::frame_bytes(path.headers, headers.bth.opcode, bytes), 0);
        EXPECT_EQ(wire::build_frame(frame.data(), path.headers, headers, payload), frame.size());
        transmit(path, headers, std::move(frame));
    }
    struct Series {
        TestSink& sink;
        const Path& path;
        wire::FrameSeries frames;
        size_t bytes;
        void send(const wire::Headers& headers, const void* payload) {
            std::vector<uint8_t>& frame = sink.frame;
            frame.assign(bytes, 0);
            const wire::BuiltFrame built = frames.build_unsealed(frame.data(), headers, payload);
            EXPECT_EQ(built.bytes, bytes);
            if (built.l3_offset != 0) wire::seal(frame.data(), built);
            ++sink.in_series;
            sink.transmit(path, headers, std::move(frame));
        }
    };
    Series series(const Path& path, const wire::Headers& headers, uint32_t bytes) {
        return {
            *this, path, {path.headers, headers, bytes}, wire::frame_bytes(path.headers, headers.bth.opcode, bytes)};
    }
    void suspect(const Path& path) { suspected.push_back(path.flow.dst); }
    void notify(CompletionQueue& cq) { notified.push_back(&cq); }
    void event(ibv_event_type type, QueuePair& qp) { events.push_back({type, &qp}); }
    void event(ibv_event_type type, CompletionQueue& cq) { events.push_back({type, &cq}); }
    void event(ibv_event_type type, SharedRecvQueue& srq) { events.push_back({type, &srq}); }

    int count(ibv_event_type type, const void* object) const {
        int n = 0;
        for (const Event& event : events) n += event.type == type && event.object == object;
        return n;
    }
};

// A work request as a test writes it down. Immediates are in host order, here and in the expectations.
struct Send {
    uint64_t wr_id = 0;
    ibv_wr_opcode opcode = IBV_WR_SEND;
    std::vector<ibv_sge> sges;
    uint32_t flags = IBV_SEND_SIGNALED;
    uint64_t remote_addr = 0;
    uint32_t rkey = 0;
    uint32_t immediate = 0;
    // Without SGEs: length of a FLUSH's range, or of the word that an ATOMIC WRITE has in compare_add.
    uint32_t length = 0;
    uint64_t compare_add = 0;
    uint64_t swap = 0;
    const Path* path = nullptr;
    uint32_t remote_qpn = 0;
    uint32_t remote_qkey = 0;
    uint32_t xrc_srqn = 0;
};

struct QpOptions {
    ibv_qp_type type = IBV_QPT_RC;
    uint32_t mtu = 1024;
    uint32_t depth = 128;  // depth of both queues
    uint32_t max_sge = 8;
    uint32_t max_inline = 256;
    uint8_t max_rd_atomic = 4;  // in both directions
    uint8_t timeout = 14;       // 67 ms
    uint8_t retry_cnt = 7;
    uint8_t rnr_retry = 7;
    uint8_t min_rnr_timer = 12;  // 0.64 ms
    uint32_t psn = 100;          // first PSN of this side
    uint32_t access = kAllAccess;
    uint32_t qkey = 0x1111;
    uint16_t pkey = wire::kDefaultPkey;
    bool sq_sig_all = false;
    bool multipath = false;
    CompletionQueue* send_cq = nullptr;  // null: its own
    CompletionQueue* recv_cq = nullptr;
    SharedRecvQueue* srq = nullptr;
};

// Registered memory with a guard on both sides.
struct Buffer {
    static constexpr size_t kGuard = 64;
    static constexpr uint8_t kGuardByte = 0xEE;
    std::vector<uint8_t> storage;
    Region region;
    size_t size = 0;

    uint8_t* data() { return storage.data() + kGuard; }
    uint8_t& operator[](size_t i) { return data()[i]; }
    uint64_t address(size_t offset = 0) const { return region.iova + offset; }
    uint32_t key() const { return region.key; }
    ibv_sge sge(size_t offset, size_t bytes) const {
        return {address(offset), static_cast<uint32_t>(bytes), region.key};
    }
    std::vector<uint8_t> bytes(size_t offset, size_t count) {
        return std::vector<uint8_t>(data() + offset, data() + offset + count);
    }
    void fill(uint32_t seed) {
        uint32_t x = seed * 2654435761u + 1;
        for (size_t i = 0; i < size; ++i) {
            x = x * 1664525u + 1013904223u;
            data()[i] = static_cast<uint8_t>(x >> 24);
        }
    }
    bool guards_intact() const {
        for (size_t i = 0; i < kGuard; ++i) {
            if (storage[i] != kGuardByte || storage[kGuard + size + i] != kGuardByte) return false;
        }
        return true;
    }
};

class Host {
  public:
    Host(uint32_t index, const transport::Config& config)
        : index_(index), engine(config, qps, memory, time_wait, sink) {}
    ~Host() {
        for (auto& qp : queue_pairs_) destroy(*qp);
        expect_balance();
        for (auto& buffer : buffers_) {
            EXPECT_TRUE(buffer->guards_intact());
            memory.remove(buffer->region);
        }
    }

    // Without QPs: every sent packet was acknowledged, retransmitted or abandoned.
    void expect_balance() const {
        uint64_t acknowledged = counter(Counter::kPsnsAcknowledged), abandoned = counter(Counter::kPsnsAbandoned);
        if (engine.multipath() != nullptr) {
            acknowledged += engine.multipath()->paths.counters().acknowledged;
            abandoned += engine.multipath()->paths.counters().abandoned;
        }
        EXPECT_EQ(counter(Counter::kPsnsSent), acknowledged + counter(Counter::kPsnsLost) + abandoned)
            << acknowledged << " acknowledged, " << abandoned << " abandoned";
    }

    uint32_t index() const { return index_; }
    wire::MacAddress mac() const { return {2, 0, 0, 0, 0, static_cast<uint8_t>(index_ + 1)}; }
    wire::Gid gid(bool ipv6 = false) const {
        const uint8_t n = static_cast<uint8_t>(index_ + 1);
        if (ipv6) return {0xFD, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, n};
        return {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF, 10, 0, 0, n};
    }
    Path path_to(const Host& peer, bool ipv6 = false) const {
        Path path;
        path.flow.src_mac = mac();
        path.flow.dst_mac = peer.mac();
        path.flow.src = gid(ipv6);
        path.flow.dst = peer.gid(ipv6);
        path.flow.traffic_class = wire::kEcnEct0;
        path.flow.udp_src = 49152;
        path.headers = wire::make_template(path.flow);
        return path;
    }

    Buffer& buffer(size_t bytes, int access = kAllAccess, const void* pd = nullptr) {
        auto made = std::make_unique<Buffer>();
        made->storage.assign(bytes + 2 * Buffer::kGuard, Buffer::kGuardByte);
        made->size = bytes;
        made->region.host = made->data();
        made->region.iova = reinterpret_cast<uint64_t>(made->data());
        made->region.length = bytes;
        made->region.access = access;
        made->region.pd = pd == nullptr ? this : pd;
        EXPECT_TRUE(memory.insert(made->region));
        buffers_.push_back(std::move(made));
        return *buffers_.back();
    }

    // Binds a type 2 window over the whole of `buffer` to `qp`. The caller removes it.
    void bind_window(Window& window, const Buffer& buffer, QueuePair& qp) {
        ASSERT_TRUE(memory.insert(window));
        ASSERT_TRUE(memory.bind({.window = window.key,
                                 .rkey = window.key ^ 0x55,
                                 .lkey = buffer.key(),
                                 .iova = buffer.address(),
                                 .length = buffer.size,
                                 .access = kRemoteAccess},
                                qp));
    }

    CompletionQueue& completion_queue(uint32_t entries) {
        completion_queues_.push_back(std::make_unique<CompletionQueue>());
        EXPECT_TRUE(completion_queues_.back()->init(entries));
        return *completion_queues_.back();
    }

    SharedRecvQueue& shared_recv_queue(uint32_t entries, uint32_t max_sge, const void* pd = nullptr) {
        srqs_.push_back(std::make_unique<SharedRecvQueue>());
        EXPECT_TRUE(srqs_.back()->ring.init(entries, max_sge));
        srqs_.back()->max_sge = max_sge;
        srqs_.back()->pd = pd == nullptr ? this : pd;
        return *srqs_.back();
    }

    // Creates a QP in RESET.
    QueuePair& create(const QpOptions& options) {
        queue_pairs_.push_back(std::make_unique<QueuePair>());
        QueuePair& qp = *queue_pairs_.back();
        qp.type = options.type;
        qp.sq_sig_all = options.sq_sig_all;
        qp.pd = this;
        qp.send_cq = options.send_cq != nullptr ? options.send_cq : &completion_queue(options.depth * 2);
        qp.recv_cq = options.recv_cq != nullptr ? options.recv_cq : &completion_queue(options.depth * 2);
        qp.srq = options.srq;
        qp.recv_pd = options.srq != nullptr ? options.srq->pd : this;
        qp.max_recv_sge = options.srq != nullptr ? options.srq->max_sge : options.max_sge;
        qp.slot.sges = std::make_unique<ibv_sge[]>(qp.max_recv_sge);
        EXPECT_TRUE(qp.sq.init(options.depth, options.max_sge, options.max_inline));
        EXPECT_TRUE(qp.rq.init(options.srq != nullptr ? 1 : options.depth, options.max_sge));
        EXPECT_TRUE(qps.insert(qp));
        return qp;
    }

    // Moves a QP from RESET to RTS. `peer` is the other QP's number, `peer_psn` its first PSN.
    void bring_up(QueuePair& qp, const QpOptions& options, const Path& path, uint32_t peer, uint32_t peer_psn,
                  uint64_t now) {
        qp.access = options.access;
        qp.qkey = options.qkey;
        qp.pkey = options.pkey;
        engine.set_state(qp, IBV_QPS_INIT, now);
        qp.mtu = options.mtu;
        qp.path = path;
        qp.remote_qpn = peer;
        qp.max_dest_rd_atomic = options.max_rd_atomic;
        qp.min_rnr_timer = options.min_rnr_timer;
        engine.start_receiving(qp, peer_psn, options.multipath);
        engine.set_state(qp, IBV_QPS_RTR, now);
        qp.max_rd_atomic = options.max_rd_atomic;
        qp.timeout = options.timeout;
        qp.retry_cnt = options.retry_cnt;
        qp.rnr_retry = options.rnr_retry;
        engine.start_sending(qp, options.psn);
        engine.set_state(qp, IBV_QPS_RTS, now);
    }

    // Returns false if the send queue is full. The caller pumps the network.
    bool post(QueuePair& qp, const Send& send) {
        if (qp.sq.room() == 0) return false;
        transport::SendWqe& wqe = qp.sq.at(qp.sq.produced());
        wqe = {};
        wqe.wr_id = send.wr_id;
        wqe.remote_addr = send.remote_addr;
        if (qp.type == IBV_QPT_UD) {
            wqe.path = send.path;
            wqe.remote_qpn = send.remote_qpn;
            wqe.remote_qkey = send.remote_qkey;
        } else {
            wqe.compare_add = send.compare_add;
            wqe.swap = send.swap;
            wqe.rkey = send.rkey;
        }
        if (qp.type == IBV_QPT_XRC_SEND) wqe.xrc_srqn = send.xrc_srqn;
        wqe.immediate = send.immediate;
        wqe.length = send.length;
        wqe.opcode = static_cast<uint8_t>(send.opcode);
        wqe.send_flags = static_cast<uint8_t>(send.flags | (qp.sq_sig_all ? IBV_SEND_SIGNALED : 0));
        for (const ibv_sge& sge : send.sges) {
            if (wqe.is_inline()) {
                std::memcpy(wqe.inline_data() + wqe.length, reinterpret_cast<const void*>(sge.addr), sge.length);
            } else {
                wqe.sges()[wqe.num_sge++] = sge;
            }
            wqe.length += sge.length;
        }
        qp.sq.publish(1);
        if (qp.state == IBV_QPS_ERR) {
            engine.flush(qp);
        } else {
            engine.doorbell(qp);
        }
        return true;
    }

    bool post_recv(transport::RecvQueue& queue, uint64_t wr_id, const std::vector<ibv_sge>& sges) {
        if (queue.room() == 0) return false;
        transport::RecvWqe& wqe = queue.at(queue.produced());
        wqe = {};
        wqe.wr_id = wr_id;
        for (const ibv_sge& sge : sges) {
            wqe.sges()[wqe.num_sge++] = sge;
            wqe.length += sge.length;
        }
        queue.publish(1);
        return true;
    }
    bool post_recv(QueuePair& qp, uint64_t wr_id, const std::vector<ibv_sge>& sges) {
        const bool posted = post_recv(qp.rq, wr_id, sges);
        if (posted && qp.state == IBV_QPS_ERR) engine.flush(qp);
        return posted;
    }

    std::vector<ibv_wc> poll(CompletionQueue& cq) {
        std::vector<ibv_wc> all;
        ibv_wc wc[16];
        for (int n; (n = cq.poll(wc, 16)) > 0;) all.insert(all.end(), wc, wc + n);
        return all;
    }

    void destroy(QueuePair& qp) {
        if (qps.find(qp.qpn) != &qp) return;
        engine.remove(qp);
        qps.remove(qp);
    }

    uint64_t counter(Counter which) const { return engine.counters()[which]; }

  private:
    uint32_t index_;

  public:
    transport::QueuePairTable qps{Secret::of(1)};
    transport::MemoryTable memory{Secret::of(2)};
    transport::TimeWaitTable time_wait;
    TestSink sink;
    transport::Engine<TestSink> engine;
    std::array<uint64_t, 16> parse_errors{};  // indexed by wire::ParseError

  private:
    std::vector<std::unique_ptr<Buffer>> buffers_;
    std::vector<std::unique_ptr<CompletionQueue>> completion_queues_;
    std::vector<std::unique_ptr<SharedRecvQueue>> srqs_;
    std::vector<std::unique_ptr<QueuePair>> queue_pairs_;
};

}  // namespace rove::test
