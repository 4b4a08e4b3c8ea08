// SPDX-License-Identifier: Apache-2.0
// The sink builds no frame that is longer than its buffer, whoever asks for it.
#include "datapath/packet_sink.h"

#include <gtest/gtest.h>
#include <rte_eal.h>

#include <vector>

namespace rove::datapath {
namespace {

class NobodyListens : public Listener {
    void notify(transport::CompletionQueue&) override {}
    void event(ibv_event_type, transport::QueuePair&) override {}
    void event(ibv_event_type, transport::CompletionQueue&) override {}
    void event(ibv_event_type, transport::SharedRecvQueue&) override {}
    void port_event(ibv_event_type, const Device&) override {}
};

rte_mempool* start() {
    std::vector<std::string> words = {"packet_sink_test", "--no-huge", "--no-pci", "--no-shconf", "--no-telemetry", "-m", "64", "-l", "0"};
    std::vector<char*> arguments;
    for (std::string& word : words) arguments.push_back(word.data());
    if (rte_eal_init(static_cast<int>(arguments.size()), arguments.data()) < 0) return nullptr;
    return rte_pktmbuf_pool_create("sink", 63, 0, 0, frame_room_bytes(1024) + RTE_PKTMBUF_HEADROOM, SOCKET_ID_ANY);
}

TEST(PacketSink, BuildsNoFrameThatIsLongerThanItsBuffer) {
    rte_mempool* const pool = start();
    ASSERT_NE(pool, nullptr);
    NobodyListens listener;
    PortCounters counters;
    const transport::MulticastGroups groups;
    Port port;  // never opened: what is sent goes to ourselves
    PacketSink sink(pool, listener, counters, groups);
    sink.add_port(port, 0);
    transport::Path path;
    path.flow.src = path.flow.dst = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF, 10, 0, 0, 1};
    path.headers = wire::make_template(path.flow);
    path.port = port.id();
    path.loopback = true;
    wire::Headers headers;
    headers.bth.opcode = wire::opcode(wire::Service::kUd, wire::Op::kSendOnly);
    const std::vector<uint8_t> data(200'000, 0x5A);

    uint64_t refused = 0;
    for (const uint32_t bytes : {0u, 1024u, frame_room_bytes(1024), 2000u, 4096u, 65'536u, 70'000u, 200'000u}) {
        const wire::Segment half{data.data(), bytes / 2}, rest{data.data(), bytes - bytes / 2};
        const wire::Segment payload[] = {half, rest};
        ASSERT_TRUE(sink.ready());
        sink.send(path, headers, payload);
        auto series = sink.series(path, headers, bytes);
        ASSERT_TRUE(sink.ready());
        series.send(headers, data.data());
        rte_mbuf* built[4];
        const uint16_t count = sink.take_loopback(built, 4);
        EXPECT_EQ(count, bytes <= 1024 ? 2 : 0) << bytes;
        for (uint16_t i = 0; i < count; ++i) {
            EXPECT_EQ(built[i]->data_len, wire::frame_bytes(path.headers, headers.bth.opcode, bytes));
            rte_pktmbuf_free(built[i]);
        }
        refused += bytes <= 1024 ? 0 : 2;
        EXPECT_EQ(counters[PortCounter::kTxTooLong], refused) << bytes;
    }
}

}  // namespace
}  // namespace rove::datapath
