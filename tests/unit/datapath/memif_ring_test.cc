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

namespace rove::datapath {
namespace {

constexpr uint16_t kServer = 0, kClient = 1, kNull = 2;
constexpr uint16_t kFrameBytes = 82;
constexpr uint32_t kSlots = 64;  // rsize=6

rte_mempool* pool() {
    static rte_mempool* const pool = rte_pktmbuf_pool_create("memif_ring_test", 4095, 0, 0, 2048, SOCKET_ID_ANY);
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
        EXPECT_FALSE(server.owes_buffers());
        // The client's driver must be called once, or the server has nothing to write to.
        RxQueue queue(kClient, 0);
        std::array<rte_mbuf*, RxQueue::kBurst> none;
        EXPECT_EQ(send(kServer, 0, 1), 0);
        EXPECT_TRUE(client.owes_buffers());
        EXPECT_TRUE(queue.look());
        EXPECT_EQ(queue.burst(none.data()), 0);
        EXPECT_FALSE(client.owes_buffers());
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
    EXPECT_FALSE(queue.surprised());
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
    EXPECT_FALSE(queue.surprised());
    EXPECT_EQ(queue.burst(mbufs.data()), RxQueue::kBurst);
    queue.fetch_next();
    queue.idle();
    rte_pktmbuf_free_bulk(mbufs.data(), RxQueue::kBurst);
    rte_eth_dev_stop(kNull);
}

}  // namespace
}  // namespace rove::datapath
