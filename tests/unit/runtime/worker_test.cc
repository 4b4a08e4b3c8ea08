// SPDX-License-Identifier: Apache-2.0
// Tests rounds of a worker whose port always delivers a full burst of frames, and the packet sink that frames leave
// through.
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <memory>
#include <vector>

#include "port/ethdev/ethdev.h"
#include "port/memif/memif_connection.h"
#include "port/memif/ring.h"
#include "runtime/packet_sink.h"
#include "runtime/runtime.h"
#include "runtime/worker_core.h"

namespace rove::datapath {
namespace {

class NobodyListens : public Listener {
    void notify(transport::CompletionQueue&) override {}
    void event(ibv_event_type, transport::QueuePair&) override {}
    void event(ibv_event_type, transport::CompletionQueue&) override {}
    void event(ibv_event_type, transport::SharedRecvQueue&) override {}
    void port_event(ibv_event_type, const RdmaInterface&) override {}
};

NobodyListens listener;

// Returns the runtime. The first call starts it, and it is never destroyed.
Runtime* started() {
    static Runtime* runtime;
    if (runtime != nullptr) return runtime;
    Config config;
    config.file = "worker_test";
    DeviceConfig device;
    device.port = "net_null0";  // its frames are not RoCE
    device.addresses = {"10.9.0.1/24"};
    device.impair.device.duplicate = 1;
    config.devices.push_back(device);
    std::string error;
    runtime = Runtime::start(config, listener, &error);
    EXPECT_NE(runtime, nullptr) << error;
    return runtime;
}

// Applies to every caller, because another mbuf lies behind each mbuf. D1: a datagram of 70 000 bytes was written over
// 30 of them.
TEST(WorkerTest, AFrameThatDoesNotFitItsBufferIsNotBuilt) {
    ASSERT_NE(started(), nullptr);
    constexpr uint32_t kRoom = 2048;
    rte_mempool* pool =
        rte_pktmbuf_pool_create("sink", 63, 0, 0, RTE_PKTMBUF_HEADROOM + kRoom, static_cast<int>(rte_socket_id()));
    ASSERT_NE(pool, nullptr);
    PortCounters counters;
    const transport::MulticastGroups groups;
    const EthdevPort port(0);
    transport::Path path;
    path.headers = wire::make_template(path.flow);
    path.port = port.id();
    path.loopback = true;
    const std::vector<uint8_t> data(70'000, 0xAA);
    const auto sent = [&](uint32_t bytes, bool in_series) {
        PacketSink sink(pool, listener, counters, groups);
        sink.add_port(port, nullptr);
        wire::Headers headers;
        headers.bth.opcode = wire::opcode(wire::Service::kUd, wire::Op::kSendOnly);
        EXPECT_TRUE(sink.ready());
        if (in_series) {
            sink.series(path, headers, bytes).send(headers, data.data());
        } else {
            const wire::Segment halves[] = {{data.data(), bytes / 2}, {data.data() + bytes / 2, bytes - bytes / 2}};
            sink.send(path, headers, halves);
        }
        std::array<rte_mbuf*, PacketSink::kLoopback> frames;
        const uint16_t count = sink.take_loopback(frames.data(), PacketSink::kLoopback);
        rte_pktmbuf_free_bulk(frames.data(), count);
        return count == 1;
    };
    for (const bool in_series : {false, true}) {
        EXPECT_TRUE(sent(1024, in_series));
        EXPECT_TRUE(sent(kRoom - wire::kMaxOverheadBytes, in_series));
        const uint64_t before = counters[PortCounter::kTxTooLong];
        EXPECT_FALSE(sent(kRoom - wire::kMaxOverheadBytes + 1, in_series));
        EXPECT_FALSE(sent(kRoom * 2, in_series));
        EXPECT_FALSE(sent(65'536, in_series));
        EXPECT_FALSE(sent(70'000, in_series));
        EXPECT_EQ(counters[PortCounter::kTxTooLong], before + 4);
    }
    rte_mempool_free(pool);
}

class UpPort final : public Port {
  public:
    explicit UpPort(uint16_t id) : Port(id) { poll_link(); }
    std::unique_ptr<RxQueue> make_rx_queue(uint16_t) override { return nullptr; }
    std::unique_ptr<TxQueue> make_tx_queue(uint16_t) override { return nullptr; }
    void start() override {}
    void stop() override {}
    void close() override {}
    PortStatistics statistics() const override { return {}; }
    bool needs_polling() const override { return false; }

  private:
    bool is_up() override { return true; }
};

// Records the largest number of frames that it was offered, and accepts all or no frames.
class Gate final : public TxQueue {
  public:
    Gate(bool& open, uint16_t& most) : open_(open), most_(most) {}
    Burst wanted() const override { return {kMaxBurst, UINT32_MAX}; }
    uint16_t burst(rte_mbuf** frames, uint16_t count) override {
        most_ = std::max(most_, count);
        if (open_) rte_pktmbuf_free_bulk(frames, count);
        return open_ ? count : 0;
    }

  private:
    bool& open_;
    uint16_t& most_;
};

// A TX target has a fixed number of places. The rest of the TX target, and then the heap, lie behind them.
TEST(WorkerTest, WhatAPortDoesNotTakeFillsNoMoreThanItsPlaces) {
    ASSERT_NE(started(), nullptr);
    rte_mempool* pool = rte_pktmbuf_pool_create("full", 255, 0, 0, RTE_PKTMBUF_HEADROOM + 2048, SOCKET_ID_ANY);
    ASSERT_NE(pool, nullptr);
    PortCounters counters;
    const transport::MulticastGroups groups;
    {
        const UpPort shut(0), other(1);
        bool open = false, other_open = true;
        uint16_t most = 0, most_other = 0;
        PacketSink sink(pool, listener, counters, groups);
        sink.add_port(shut, std::make_unique<Gate>(open, most));
        sink.add_port(other, std::make_unique<Gate>(other_open, most_other));
        // ARP replies to any host that asks.
        constexpr uint32_t kAnswers = 3 * TxQueue::kMaxBurst;
        for (uint32_t i = 0; i < kAnswers; ++i) {
            rte_mbuf* const mbuf = sink.take();
            ASSERT_NE(mbuf, nullptr) << "the other port takes frames";
            mbuf->data_len = 60;
            mbuf->pkt_len = 60;
            sink.send_raw(shut.id(), mbuf);
        }
        EXPECT_EQ(most, TxQueue::kMaxBurst);
        EXPECT_EQ(counters[PortCounter::kTxFull], kAnswers - TxQueue::kMaxBurst);
        open = true;
        EXPECT_EQ(sink.flush(), TxQueue::kMaxBurst);
        EXPECT_EQ(most, TxQueue::kMaxBurst);
    }
    EXPECT_EQ(rte_mempool_in_use_count(pool), 0u);
    rte_mempool_free(pool);
}

// Frames that are copied into a ring, such as ARP requests, lie between frames that are built in the ring.
TEST(WorkerTest, APeerSeesABurstAlsoWhenItsLastFrameWasCopied) {
    ASSERT_NE(started(), nullptr);
    rte_mempool* pool = rte_pktmbuf_pool_create("ring", 255, 0, 0, RTE_PKTMBUF_HEADROOM + 2048, SOCKET_ID_ANY);
    ASSERT_NE(pool, nullptr);
    std::array<int, 2> ends;
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends.data()), 0);
    using Role = MemifConnection::Role;
    MemifConnection client(ends[0], {.role = Role::kClient, .log2_slots = 9, .buffer_bytes = 2048});
    MemifConnection server(ends[1], {.role = Role::kServer});
    for (int i = 0; i < 10; ++i) client.advance(), server.advance();
    ASSERT_EQ(client.advance(), MemifConnection::State::kConnected) << client.why();
    ASSERT_EQ(server.advance(), MemifConnection::State::kConnected) << server.why();
    RingSender sender(client, Role::kClient);
    RingReceiver receiver(server, Role::kServer, pool);
    PortCounters counters;
    const transport::MulticastGroups groups;
    const UpPort port(0);
    {
        PacketSink sink(pool, listener, counters, groups);
        sink.add_port(port, nullptr);
        sink.add_link(port, port.id(), {}, sender);
        transport::Path path;
        path.headers = wire::make_template(path.flow);
        path.next_hop = std::make_shared<transport::NextHop>(wire::MacAddress{});
        wire::Headers headers;
        headers.bth.opcode = wire::opcode(wire::Service::kUd, wire::Op::kSendOnly);
        const uint16_t burst = TxQueue::Burst{}.frames;
        const auto build = [&](uint16_t frames) {
            for (; frames != 0; --frames) {
                ASSERT_TRUE(sink.ready(path));
                sink.send(path, headers, {});
            }
        };
        const auto seen = [&] {
            std::array<rte_mbuf*, RxQueue::kBurst> frames;
            uint32_t seen = 0;
            while (const uint16_t count = receiver.burst(frames.data())) {
                seen += count;
                receiver.release();
            }
            return seen;
        };
        build(static_cast<uint16_t>(burst - 1));
        EXPECT_EQ(seen(), 0u);
        rte_mbuf* const mbuf = sink.take();
        ASSERT_NE(mbuf, nullptr);
        mbuf->data_len = 60;
        mbuf->pkt_len = 60;
        sink.send_raw(port.id(), mbuf);
        EXPECT_EQ(seen(), burst);
        build(static_cast<uint16_t>(burst - 1));
        EXPECT_EQ(seen(), 0u);
        sink.flush();
        EXPECT_EQ(seen(), burst - 1u);
    }
    rte_mempool_free(pool);
}

// Duplicates, and frames that were delayed, come in addition to the frames of the port. Together they exceed one burst
// of the port.
TEST(WorkerTest, TakesAllThatAnImpairmentGives) {
    Runtime* const runtime = started();
    ASSERT_NE(runtime, nullptr);
    for (const char* changes : {"duplicate=1", "delay_us=100"}) {
        EXPECT_EQ(runtime->impair(*runtime->interfaces()[0], std::nullopt, changes), "");
        Worker& worker = *runtime->workers()[0];
        const Worker::Hold hold(worker);
        const uint64_t& taken = worker.core(hold).counters().parse[static_cast<size_t>(wire::ParseError::kNotRoce)];
        const uint64_t before = taken, until_ns = runtime->now_ns() + 5'000'000'000;
        uint32_t most = 0;
        for (uint32_t i = 1; taken < before + 10'000 && runtime->now_ns() < until_ns; ++i) {
            most = std::max(most, worker.core(hold).round());
            if (i % 16 == 0) usleep(200);  // frames left by earlier rounds are now due together
        }
        EXPECT_GE(taken, before + 10'000) << changes;
        EXPECT_GT(most, WorkerCore::kRxBurst) << changes;
    }
    runtime->stop();
}

}  // namespace
}  // namespace rove::datapath
