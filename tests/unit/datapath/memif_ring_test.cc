// SPDX-License-Identifier: Apache-2.0
// The two ends of a memif in one process: what is seen beside the driver is what the driver then does.
#include "datapath/memif_ring.h"

#include <gtest/gtest.h>
#include <rte_eal.h>
#include <sched.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "datapath/rx_queue.h"
#include "datapath/tx_queue.h"

namespace rove::datapath {
namespace {

constexpr uint16_t kServer = 0, kClient = 1, kNull = 2;
constexpr uint16_t kFrameBytes = 82;
constexpr uint32_t kSlots = 64;          // rsize=6
constexpr uint32_t kBufferBytes = 2048;  // bsize=2048

rte_mempool* pool() {
    static rte_mempool* const pool = rte_pktmbuf_pool_create("memif_ring_test", 4095, 0, 0, 4096, SOCKET_ID_ANY);
    return pool;
}

void set_up(uint16_t port) {
    const rte_eth_conf conf{};
    ASSERT_EQ(rte_eth_dev_configure(port, 1, 1, &conf), 0);
    ASSERT_EQ(rte_eth_rx_queue_setup(port, 0, kSlots, SOCKET_ID_ANY, nullptr, pool()), 0);
    ASSERT_EQ(rte_eth_tx_queue_setup(port, 0, kSlots, SOCKET_ID_ANY, nullptr), 0);
}

class MemifRingTest : public testing::Test {
  protected:
    static void SetUpTestSuite() {
        const std::string cpu = std::to_string(sched_getcpu());
        const std::string ring = ",rsize=6,bsize=2048,socket=rove-memif-ring-test-" + std::to_string(getpid());
        std::vector<std::string> arguments = {"test",
                                              "--no-huge",
                                              "--no-shconf",
                                              "--no-pci",
                                              "--no-telemetry",
                                              "--log-level=3",
                                              "--lcores=0@(" + cpu + ")",
                                              "-m64",
                                              "--vdev=net_memif0,role=server" + ring,
                                              "--vdev=net_memif1,role=client" + ring,
                                              "--vdev=net_null0"};
        std::vector<char*> argv;
        for (std::string& argument : arguments) argv.push_back(argument.data());
        ASSERT_GE(rte_eal_init(static_cast<int>(argv.size()), argv.data()), 0);
        for (const uint16_t port : {kServer, kClient, kNull}) set_up(port);
    }

    static bool up(uint16_t port) {
        rte_eth_link link{};
        return rte_eth_link_get_nowait(port, &link) == 0 && link.link_status == RTE_ETH_LINK_UP;
    }
    static void connect() {
        ASSERT_EQ(rte_eth_dev_start(kServer), 0);
        ASSERT_EQ(rte_eth_dev_start(kClient), 0);
        for (int tries = 0; !up(kServer) || !up(kClient); ++tries) {
            ASSERT_LT(tries, 5000);
            usleep(1000);
        }
    }
    static void disconnect() {
        rte_eth_dev_stop(kClient);
        for (int tries = 0; up(kServer); ++tries) {
            ASSERT_LT(tries, 5000);
            usleep(1000);
        }
        rte_eth_dev_stop(kServer);
    }
    // Frames numbered from `number` on, each filled with what its number gives.
    static uint16_t send(uint16_t port, uint32_t number, uint16_t count) {
        std::array<rte_mbuf*, kSlots> frames;
        EXPECT_EQ(rte_pktmbuf_alloc_bulk(pool(), frames.data(), count), 0);
        for (uint16_t i = 0; i < count; ++i) {
            const std::vector<uint8_t> bytes = frame(number + i);
            std::memcpy(rte_pktmbuf_append(frames[i], kFrameBytes), bytes.data(), bytes.size());
        }
        const uint16_t sent = rte_eth_tx_burst(port, 0, frames.data(), count);
        rte_pktmbuf_free_bulk(frames.data() + sent, count - sent);
        return sent;
    }
    static std::vector<uint8_t> frame(uint32_t number) {
        std::vector<uint8_t> bytes(kFrameBytes, static_cast<uint8_t>(number * 7));
        std::memcpy(bytes.data(), &number, sizeof number);
        return bytes;
    }
    static void expect_frame(const uint8_t* bytes, uint32_t number) {
        ASSERT_EQ(std::vector<uint8_t>(bytes, bytes + kFrameBytes), frame(number));
    }
    // A frame of any length, that of its number.
    static uint16_t frame_bytes(uint32_t number) {
        return static_cast<uint16_t>(60 + number * 7919 % (kBufferBytes - 59));
    }
    static rte_mbuf* make_frame(uint32_t number) {
        rte_mbuf* const mbuf = rte_pktmbuf_alloc(pool());
        uint8_t* const bytes = reinterpret_cast<uint8_t*>(rte_pktmbuf_append(mbuf, frame_bytes(number)));
        for (uint32_t i = 0; i < mbuf->data_len; ++i) bytes[i] = static_cast<uint8_t>(number * 31 + i * 7 + i / 256);
        return mbuf;
    }
    // A burst, of which the first is `number`. Returns how many.
    static uint16_t take(RxQueue& queue, uint32_t number) {
        std::array<rte_mbuf*, RxQueue::kBurst> mbufs;
        const uint16_t got = queue.look() ? queue.burst(mbufs.data()) : uint16_t{0};
        for (uint16_t i = 0; i < got; ++i) {
            rte_mbuf* const wanted = make_frame(number + i);
            EXPECT_EQ(mbufs[i]->pkt_len, wanted->pkt_len);
            EXPECT_EQ(std::memcmp(rte_pktmbuf_mtod(mbufs[i], void*), rte_pktmbuf_mtod(wanted, void*), wanted->data_len),
                      0);
            rte_pktmbuf_free(wanted);
        }
        rte_pktmbuf_free_bulk(mbufs.data(), got);
        return got;
    }

    // Sends and takes as many frames as let every index go round: each is seen as soon as it is there, where it is said
    // to lie, and none before.
    static void pass_frames(uint16_t from, uint16_t to) {
        MemifRing tx(from, 0, MemifRing::Use::kTransmit), rx(to, 0, MemifRing::Use::kReceive);
        RxQueue queue(to, 0);
        std::mt19937 random(to);
        uint32_t sent = 0, taken = 0;
        while (taken < 70'000) {
            ASSERT_TRUE(tx.find());
            ASSERT_TRUE(rx.find());
            const uint8_t* const goes_to = tx.buffer(0);
            const auto count = static_cast<uint16_t>(1 + random() % kSlots);
            const uint16_t room = tx.room();
            ASSERT_EQ(room, kSlots - (sent - taken));
            for (uint16_t ahead = 0; ahead < room; ++ahead) tx.fetch_to_write(ahead, kFrameBytes);
            const uint16_t accepted = send(from, sent, count);
            if (accepted != 0) expect_frame(goes_to, sent);
            ASSERT_EQ(accepted, std::min(count, room));
            sent += accepted;
            tx.hand_over(std::min<uint16_t>(accepted, 2));
            if (accepted != 0) expect_frame(tx.buffer(static_cast<uint16_t>(-1)), sent - 1);
            ASSERT_EQ(rx.filled(), sent - taken);
            for (uint16_t ahead = 0; ahead < rx.filled(); ++ahead) expect_frame(rx.buffer(ahead), taken + ahead);
            ASSERT_EQ(queue.look(), sent != taken);
            std::array<rte_mbuf*, RxQueue::kBurst> mbufs;
            const uint16_t got = queue.burst(mbufs.data());
            ASSERT_EQ(got, std::min<uint32_t>(sent - taken, RxQueue::kBurst));
            for (uint16_t i = 0; i < got; ++i) {
                queue.fetch_next();
                expect_frame(rte_pktmbuf_mtod(mbufs[i], const uint8_t*), taken++);
            }
            queue.idle();
            rte_pktmbuf_free_bulk(mbufs.data(), got);
        }
        while (queue.look()) {
            std::array<rte_mbuf*, RxQueue::kBurst> mbufs;
            const uint16_t got = queue.burst(mbufs.data());
            rte_pktmbuf_free_bulk(mbufs.data(), got);
            taken += got;
        }
        EXPECT_EQ(taken, sent);
    }
};

TEST_F(MemifRingTest, SeesWhatTheDriverDoes) {
    MemifRing server(kServer, 0, MemifRing::Use::kReceive), client(kClient, 0, MemifRing::Use::kReceive);
    for (int connection = 0; connection < 3; ++connection) {
        EXPECT_FALSE(server.find());
        EXPECT_FALSE(client.find());
        connect();
        ASSERT_TRUE(server.find());
        ASSERT_TRUE(client.find());
        EXPECT_EQ(server.filled(), 0);
        EXPECT_FALSE(server.lacks_buffers());
        // The client's driver must be called once, or the server has nothing to write to.
        RxQueue queue(kClient, 0);
        std::array<rte_mbuf*, RxQueue::kBurst> none;
        EXPECT_EQ(send(kServer, 0, 1), 0);
        EXPECT_TRUE(client.lacks_buffers());
        EXPECT_TRUE(queue.look());
        EXPECT_EQ(queue.burst(none.data()), 0);
        EXPECT_FALSE(client.lacks_buffers());
        EXPECT_FALSE(queue.look());
        pass_frames(kClient, kServer);
        pass_frames(kServer, kClient);
        disconnect();
    }
    EXPECT_FALSE(server.find());
    EXPECT_FALSE(client.find());
}

// The peer goes while it is known that there are more frames, the next of which lies in the first slot.
TEST_F(MemifRingTest, ForgetsWhatWasThere) {
    connect();
    RxQueue queue(kServer, 0);
    std::array<rte_mbuf*, RxQueue::kBurst> mbufs;
    uint32_t taken = 0;
    for (const uint16_t more : {uint16_t{RxQueue::kBurst}, uint16_t{RxQueue::kBurst + 8}}) {
        ASSERT_EQ(send(kClient, taken, more), more);
        ASSERT_TRUE(queue.look());
        ASSERT_EQ(queue.burst(mbufs.data()), RxQueue::kBurst);
        rte_pktmbuf_free_bulk(mbufs.data(), RxQueue::kBurst);
        taken += RxQueue::kBurst;
    }
    ASSERT_EQ(taken, kSlots);
    disconnect();
    EXPECT_TRUE(queue.look());
    EXPECT_FALSE(queue.after_idle());
    queue.fetch_next();  // crashes if it looks there
    queue.idle();
}

TEST_F(MemifRingTest, KnowsNothingOfOtherDrivers) {
    ASSERT_EQ(rte_eth_dev_start(kNull), 0);
    EXPECT_FALSE(MemifRing().find());
    EXPECT_FALSE(MemifRing(kNull, 0, MemifRing::Use::kReceive).find());
    RxQueue queue(kNull, 0);
    std::array<rte_mbuf*, RxQueue::kBurst> mbufs;
    EXPECT_TRUE(queue.look());
    EXPECT_FALSE(queue.after_idle());
    EXPECT_EQ(queue.burst(mbufs.data()), RxQueue::kBurst);
    queue.fetch_next();
    queue.idle();
    rte_pktmbuf_free_bulk(mbufs.data(), RxQueue::kBurst);
    rte_eth_dev_stop(kNull);
}

// Of any length, by the driver and beside it in turns: the peer's driver gets each, and ours counts each.
TEST_F(MemifRingTest, SendsAsTheDriverDoes) {
    connect();
    for (const auto& [from, to] : {std::pair{kClient, kServer}, std::pair{kServer, kClient}}) {
        MemifRing ring(from, 0, MemifRing::Use::kTransmit);
        TxQueue tx(from, 0);
        RxQueue rx(to, 0);
        std::array<rte_mbuf*, RxQueue::kBurst> none;
        rx.burst(none.data());  // gives buffers, as a client
        rte_eth_stats before, after;
        ASSERT_EQ(rte_eth_stats_get(from, &before), 0);
        std::mt19937 random(from);
        uint32_t sent = 0, taken = 0;
        uint64_t bytes = 0;
        while (taken < 70'000) {
            ASSERT_TRUE(ring.find());
            const auto count = static_cast<uint16_t>(1 + random() % kSlots);
            const auto room = static_cast<uint16_t>(kSlots - (sent - taken));
            std::array<rte_mbuf*, kSlots> frames;
            uint32_t together = 0;
            for (uint16_t i = 0; i < count; ++i) together += (frames[i] = make_frame(sent + i))->data_len;
            uint16_t accepted = 0;
            switch (random() % 3) {
                case 0:
                    accepted = rte_eth_tx_burst(from, 0, frames.data(), count);
                    break;
                case 1:
                    accepted = ring.send_past_caches(frames.data(), count);
                    break;
                default:
                    accepted = tx.burst(frames.data(), count, together);
            }
            ASSERT_EQ(accepted, std::min(count, room));
            rte_pktmbuf_free_bulk(frames.data() + accepted, count - accepted);
            for (uint16_t i = 0; i < accepted; ++i) bytes += frame_bytes(sent++);
            for (uint16_t bursts = random() % 4; bursts != 0; --bursts) taken += take(rx, taken);
        }
        while (const uint16_t got = take(rx, taken)) taken += got;
        EXPECT_EQ(taken, sent);
        ASSERT_EQ(rte_eth_stats_get(from, &after), 0);
        EXPECT_EQ(after.opackets - before.opackets, sent);
        EXPECT_EQ(after.obytes - before.obytes, bytes);
        EXPECT_EQ(rte_mempool_in_use_count(pool()), 0u);
    }
    disconnect();
}

TEST_F(MemifRingTest, LeavesToTheDriverWhatIsNotForItsWay) {
    connect();
    MemifRing ring(kClient, 0, MemifRing::Use::kTransmit);
    ASSERT_TRUE(ring.find());
    std::array<rte_mbuf*, 4> frames;
    const auto expect_taken = [&] {
        std::array<rte_mbuf*, RxQueue::kBurst> mbufs;
        ASSERT_EQ(rte_eth_rx_burst(kServer, 0, mbufs.data(), RxQueue::kBurst), frames.size());
        for (size_t i = 0; i < frames.size(); ++i) {
            EXPECT_EQ(mbufs[i]->pkt_len, i == 1 ? kBufferBytes + 100 : frame_bytes(static_cast<uint32_t>(i)));
            rte_pktmbuf_free(mbufs[i]);
        }
    };
    const auto make = [&] {
        for (size_t i = 0; i < frames.size(); ++i) frames[i] = make_frame(static_cast<uint32_t>(i));
    };
    make();
    frames[1]->data_len = frames[1]->pkt_len = kBufferBytes + 100;  // takes two slots
    ASSERT_EQ(ring.send_past_caches(frames.data(), frames.size()), 1);
    ASSERT_EQ(rte_eth_tx_burst(kClient, 0, frames.data() + 1, 3), 3);
    expect_taken();
    make();
    frames[1]->data_len = frames[1]->pkt_len = kBufferBytes;
    rte_mbuf* const second = rte_pktmbuf_alloc(pool());
    ASSERT_NE(rte_pktmbuf_append(second, 100), nullptr);
    ASSERT_EQ(rte_pktmbuf_chain(frames[1], second), 0);
    ASSERT_EQ(ring.send_past_caches(frames.data(), frames.size()), 1);
    ASSERT_EQ(rte_eth_tx_burst(kClient, 0, frames.data() + 1, 3), 3);
    expect_taken();
    // A capture wants to see every frame.
    const auto* const capture = rte_eth_add_tx_callback(
        kClient, 0, [](uint16_t, uint16_t, rte_mbuf**, uint16_t count, void*) { return count; }, nullptr);
    ASSERT_NE(capture, nullptr);
    make();
    EXPECT_EQ(ring.send_past_caches(frames.data(), frames.size()), 0);
    ASSERT_EQ(rte_eth_remove_tx_callback(kClient, 0, capture), 0);
    rte_pktmbuf_free_bulk(frames.data(), frames.size());
    disconnect();
}

// A server's peer writes to the descriptors what he likes.
TEST_F(MemifRingTest, WritesNowhereButInBuffers) {
    connect();
    RxQueue rx(kClient, 0);
    std::array<rte_mbuf*, RxQueue::kBurst> none;
    ASSERT_EQ(rx.burst(none.data()), 0);  // gives buffers
    MemifRing ring(kServer, 0, MemifRing::Use::kTransmit);
    ASSERT_TRUE(ring.find());
    struct Descriptor {
        uint16_t flags, region;
        uint32_t length, offset, metadata;
    };
    // The region: a ring each way, of a header of 128 bytes and the descriptors; then the buffers of the client's.
    constexpr uint32_t kRingBytes = 128 + kSlots * sizeof(Descriptor);
    constexpr uint32_t kRegionBytes = 2 * (kRingBytes + kSlots * kBufferBytes);
    uint8_t* const region = const_cast<uint8_t*>(ring.buffer(0)) - 2 * kRingBytes - kSlots * kBufferBytes;
    Descriptor& descriptor = *reinterpret_cast<Descriptor*>(region + kRingBytes + 128);
    const Descriptor good = descriptor;
    ASSERT_EQ(region + good.offset, ring.buffer(0));
    ASSERT_EQ(good.length, kBufferBytes);
    std::array<rte_mbuf*, 1> frames = {make_frame(0)};
    frames[0]->data_len = frames[0]->pkt_len = 1000;  // 16 lines, the last not full
    const std::vector<uint8_t> before(region, region + kRegionBytes);
    const auto with = [&](uint16_t in, uint32_t length, uint32_t offset) {
        descriptor.region = in;
        descriptor.length = length;
        descriptor.offset = offset;
        const uint16_t sent = ring.send_past_caches(frames.data(), 1);
        descriptor = good;
        return sent;
    };
    EXPECT_EQ(with(1, good.length, good.offset), 0);
    EXPECT_EQ(with(0, 1023, good.offset), 0);
    EXPECT_EQ(with(0, 0, good.offset), 0);
    EXPECT_EQ(with(0, good.length, good.offset + 8), 0);
    for (const uint32_t offset :
         {kRegionBytes - 1023, kRegionBytes - 960, kRegionBytes, uint32_t{0} - 1024, UINT32_MAX})
        EXPECT_EQ(with(0, good.length, offset), 0);
    EXPECT_EQ(std::vector<uint8_t>(region, region + kRegionBytes), before);
    EXPECT_EQ(with(0, 1024, kRegionBytes - 1024), 1);
    disconnect();
}

}  // namespace
}  // namespace rove::datapath
