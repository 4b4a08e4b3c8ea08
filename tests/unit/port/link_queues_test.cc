// SPDX-License-Identifier: Apache-2.0
// Tests silent links, links that ring, and sleeping receivers: no frame is missed, and no sender rings twice.
#include "port/memif/link_queues.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "mesh_links.h"

namespace rove::datapath {
namespace {

class LinkQueuesTest : public testing::Test {
  protected:
    void connect(uint16_t count) {
        for (uint16_t i = 0; i < count; ++i) {
            links_.push_back(std::make_unique<MeshLink>(bells_, static_cast<uint16_t>(i * 37)));
            ASSERT_TRUE(links_.back()->is_connected()) << links_.back()->client().why();
            queues_.add(links_.back()->receiver());
        }
    }
    bool is_due(size_t link) {
        const auto due = queues_.due();
        return std::ranges::count(due, &links_[link]->receiver()) == 1;
    }
    void make_silent() {
        for (uint32_t round = 0; round < 3 * LinkQueues::kSilentRounds; ++round) queues_.due();
    }
    // Reads the messages that wait on the sockets, and returns their number.
    size_t take_messages() {
        size_t messages = 0;
        char byte;
        for (const auto& link : links_)
            while (recv(link->doorbell(), &byte, 1, MSG_DONTWAIT) == 1) ++messages;
        return messages;
    }

    Bells bells_;
    std::vector<std::unique_ptr<MeshLink>> links_;
    LinkQueues queues_;
};

TEST_F(LinkQueuesTest, SilentLinksAreNotPolledUntilTheyRing) {
    connect(100);
    EXPECT_EQ(queues_.due().size(), 100u);
    make_silent();
    EXPECT_EQ(queues_.due().size(), LinkQueues::kAlwaysPolled);
    for (const size_t link : {99u, 50u, 0u}) {
        ASSERT_TRUE(links_[link]->send(1));
        EXPECT_TRUE(is_due(link)) << link;
        ASSERT_TRUE(links_[link]->send(2));
        uint8_t value = 1;
        uint32_t wrong = 0;
        EXPECT_EQ(links_[link]->receive(&value, &wrong), 2u);
        EXPECT_EQ(wrong, 0u);
    }
    EXPECT_EQ(take_messages(), 0u) << "the receiver was awake";
    make_silent();
    EXPECT_EQ(queues_.due().size(), LinkQueues::kAlwaysPolled);
}

TEST_F(LinkQueuesTest, ALinkWithFramesThatAreNotReadStaysPolled) {
    connect(20);
    ASSERT_TRUE(links_[7]->send(1));
    make_silent();
    EXPECT_TRUE(is_due(7));
}

TEST_F(LinkQueuesTest, ASleepIsEndedOnce) {
    connect(20);
    make_silent();
    for (int sleep = 0; sleep < 3; ++sleep) {
        ASSERT_TRUE(queues_.arm());
        for (const size_t link : {3u, 19u})
            for (uint8_t i = 0; i < 5; ++i) ASSERT_TRUE(links_[link]->send(i));
        EXPECT_EQ(take_messages(), 2u) << "one from each sender";
        EXPECT_FALSE(queues_.arm()) << "frames are there";
        queues_.disarm();
        EXPECT_TRUE(is_due(3));
        EXPECT_TRUE(is_due(19));
        for (const size_t link : {3u, 19u}) {
            uint8_t value = 0;
            uint32_t wrong = 0;
            EXPECT_EQ(links_[link]->receive(&value, &wrong), 5u);
        }
    }
    // A receiver that arms again, because another receiver woke up, gets another ring.
    ASSERT_TRUE(queues_.arm());
    ASSERT_TRUE(links_[3]->send(1));
    EXPECT_EQ(take_messages(), 1u);
    queues_.arm_again();
    ASSERT_TRUE(links_[3]->send(2));
    EXPECT_EQ(take_messages(), 1u);
}

TEST_F(LinkQueuesTest, BellsThatNoLinkHasAreIgnored) {
    connect(2);
    for (uint16_t bell = 0; bell < BellPage::kBells; ++bell) bells_.page()->ring(bell);
    EXPECT_EQ(queues_.due().size(), 2u);
    EXPECT_FALSE(bells_.page()->has_rung());
    queues_.remove(links_[1]->receiver());
    bells_.page()->ring(37);
    EXPECT_EQ(queues_.due().size(), 1u);
}

// Sends frames of all sizes. The receiver sometimes falls behind, so that the ring fills up.
TEST_F(LinkQueuesTest, ALinkTakesMoreBuffersAsItNeedsThemAndEachFrameIsRight) {
    connect(1);
    std::mt19937 random(3);
    uint8_t sent = 0, value = 0;
    uint32_t wrong = 0, received = 0, all = 0;
    for (uint32_t round = 0; round < 5000; ++round) {
        const uint32_t burst = round < 100 ? 1 : random() % 64, bytes = round < 2500 ? 64 : 64 + random() % 4000;
        for (uint32_t i = 0; i < burst && links_[0]->send(sent, bytes); ++i) ++sent, ++all;
        if (random() % 8 != 0) received += links_[0]->receive(&value, &wrong);
    }
    while (const uint32_t more = links_[0]->receive(&value, &wrong)) received += more;
    EXPECT_EQ(received, all);
    EXPECT_EQ(wrong, 0u);
}

TEST_F(LinkQueuesTest, ASeldomUsedLinkTakesLittleMemory) {
    connect(1);
    uint8_t value = 0;
    uint32_t wrong = 0;
    for (uint32_t i = 0; i < 5000; ++i) {
        ASSERT_TRUE(links_[0]->send(static_cast<uint8_t>(i)));
        links_[0]->receive(&value, &wrong);
    }
    EXPECT_EQ(wrong, 0u);
    const MemifConnection::Region& region = links_[0]->client().regions().front();
    std::vector<unsigned char> resident(region.bytes / 4096 + 1);
    ASSERT_EQ(mincore(region.address, region.bytes, resident.data()), 0);
    const auto pages = std::ranges::count_if(resident, [](unsigned char page) { return (page & 1) != 0; });
    EXPECT_LE(pages, 16) << "of 4 KiB";
}

// Three threads send while the receiver sleeps whenever it can. Halfway they pause until it has slept, so that it
// sleeps on every machine.
TEST_F(LinkQueuesTest, NoFrameIsMissedByAReceiverThatSleeps) {
    constexpr uint16_t kLinks = 12;
    constexpr uint32_t kFrames = 20000;
    connect(kLinks);
    std::atomic<uint32_t> sleeps = 0;
    std::vector<std::jthread> senders;
    for (uint16_t first = 0; first < kLinks; first += kLinks / 3)
        senders.emplace_back([&, first] {
            std::mt19937 random(first);
            std::array<uint8_t, kLinks> values{};
            for (uint32_t i = 0; i < kFrames;) {
                const size_t link = first + random() % (kLinks / 3);
                if (!links_[link]->send(values[link])) {
                    std::this_thread::yield();
                    continue;
                }
                ++values[link], ++i;
                while (i == kFrames / 2 && sleeps == 0) std::this_thread::yield();
                if (random() % 64 == 0) std::this_thread::sleep_for(std::chrono::microseconds(random() % 200));
            }
        });
    std::array<uint8_t, kLinks> values{};
    uint32_t wrong = 0;
    for (uint32_t received = 0; received < 3 * kFrames;) {
        uint32_t now = 0;
        for (RingReceiver* const due : queues_.due())
            for (uint16_t link = 0; link < kLinks; ++link)
                if (&links_[link]->receiver() == due) now += links_[link]->receive(&values[link], &wrong);
        received += now;
        if (now != 0 || received == 3 * kFrames) continue;
        if (queues_.arm()) {
            std::vector<pollfd> doorbells;
            for (const auto& link : links_) doorbells.push_back({link->doorbell(), POLLIN, 0});
            ++sleeps;
            ASSERT_GT(poll(doorbells.data(), doorbells.size(), 20'000), 0) << "after " << received << " frames";
            take_messages();
        }
        queues_.disarm();
    }
    EXPECT_EQ(wrong, 0u);
}

}  // namespace
}  // namespace rove::datapath
