// SPDX-License-Identifier: Apache-2.0
// Rounds of a worker whose port has a full burst of frames each time, and the sink that its frames leave through.
#include <gtest/gtest.h>
#include <unistd.h>

#include <vector>

#include "datapath/packet_sink.h"
#include "datapath/ports/ethdev.h"
#include "datapath/runtime.h"
#include "datapath/worker_core.h"

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

// Started once in the process, and never destroyed.
Runtime* started() {
    static Runtime* runtime;
    if (runtime != nullptr) return runtime;
    Config config;
    config.file = "worker_test";
    DeviceConfig device;
    device.port = "net_null0";  // its frames are no RoCE
    device.addresses = {"10.9.0.1/24"};
    device.impair.device.duplicate = 1;
    config.devices.push_back(device);
    std::string error;
    runtime = Runtime::start(config, listener, &error);
    EXPECT_NE(runtime, nullptr) << error;
    return runtime;
}

// Whoever asks for it: behind an mbuf lies another. D1: a datagram of 70 000 bytes was built over 30 of them.
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

// Twins beside what the port gave, or what has waited: more than a port gives at once.
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
            if (i % 16 == 0) usleep(200);  // what the rounds before left waiting is due at once
        }
        EXPECT_GE(taken, before + 10'000) << changes;
        EXPECT_GT(most, WorkerCore::kRxBurst) << changes;
    }
    runtime->stop();
}

}  // namespace
}  // namespace rove::datapath
