// SPDX-License-Identifier: Apache-2.0
// Tests the order in which waiting requests move, over several transports and peers, and their end if no request can
// move.
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <string>
#include <vector>

#include "short_names.h"
#include "tent/engine/clock.h"
#include "tent/engine/core.h"
#include "tent/engine/shard.h"

namespace rove::tent {
namespace {

// Carries slices immediately while it has room, and records their order.
class FakeChannel : public Channel {
  public:
    FakeChannel(Shard& shard, std::string name, std::vector<std::string>* order)
        : Channel(shard.config().queues), shard_(shard), name_(std::move(name)), order_(order) {}
    bool available(const BufferDesc&) const override { return true; }
    void abandon(uint64_t) override {}
    Dispatched dispatch(uint8_t level, uint8_t allowed, uint64_t now_ns) override {
        Dispatched result;
        for (uint32_t taken = 0;; ++taken) {
            Waiting* waiting = queues.first(level, allowed);
            if (waiting == nullptr || room == 0) return result;
            if (taken == burst) return {.moved = true, .more = true};
            auto& slice = static_cast<Slice&>(*queues.take(*waiting, now_ns));
            result.moved = true;
            if (!shard_.is_wanted(slice)) {
                shard_.drop(slice);
                continue;
            }
            --room;
            order_->push_back(name_ + name(slice.task->priority)[0]);
            shard_.done(slice);
        }
    }

    uint32_t room = UINT32_MAX, burst = UINT32_MAX;

  private:
    Shard& shard_;
    const std::string name_;
    std::vector<std::string>* const order_;
};

class FakeBackend : public Backend {
  public:
    FakeBackend(Transport transport, const QueueConfig& config) : Backend(transport, config) {}
    using Backend::add;
    std::unique_ptr<Channel> open(Peer&, uint64_t) override { return nullptr; }
    bool progress(uint64_t) override { return false; }
    uint64_t next_deadline(uint64_t) const override { return kNever; }
};

class ShardOrderTest : public testing::Test {
  protected:
    ShardOrderTest() : core(config()) {
        core.recycle = [](Batch&) {};
        for (const Transport transport : {Transport::SHM, Transport::TCP}) {
            auto backend = std::make_unique<FakeBackend>(transport, core.config().queues);
            for (const size_t peer : {0u, 1u}) open(*backend, transport, shard, peer);
            shard.add_backend(std::move(backend));
        }
        auto backend = std::make_unique<FakeBackend>(Transport::SHM, core.config().queues);
        peers[2]->set_shard(1);
        open(*backend, Transport::SHM, core.shard(1), 2);
        core.shard(1).add_backend(std::move(backend));
        batch.users.store(Batch::kProgram);
        pass(3'600'000 * kMs);
    }
    static ::rove::tent::Config config() {
        ::rove::tent::Config config;
        config.max_timeout_ns = 20 * kMs;
        config.num_workers = 2;
        return config;
    }
    void open(FakeBackend& backend, Transport transport, Shard& of, size_t peer) {
        const std::string name = std::string(transport == Transport::SHM ? "s" : "t") + std::to_string(peer);
        auto channel = std::make_unique<FakeChannel>(of, name, &order);
        backend.add(*channel);
        channels.push_back(channel.get());
        peers[peer]->slot(static_cast<size_t>(transport)) = std::move(channel);
    }
    Task& submit(Transport transport, size_t peer, Priority priority, uint32_t slices = 1,
                 uint64_t deadline_ns = kNever) {
        Task& task = tasks.emplace_back();
        task.batch = &batch;
        task.peer = peers[peer];
        task.local = local;
        task.priority = priority;
        task.selection.transport = transport;
        task.bytes = slices;
        task.slices_left = task.count = slices;
        task.since_ns = task.progress_ns = now_ns;
        task.deadline_ns = deadline_ns;
        Slice* slice = core.pool().take(slices);
        task.first = slice;
        for (uint32_t i = 0; i < slices; ++i) {
            slice->task = slice->part = &task;
            slice->remote = i;
            slice->length = 1;
            task.last = slice;
            slice = static_cast<Slice*>(slice->next);
        }
        batch.users.fetch_add(1);
        task.state.store(TransferStatusEnum::PENDING);
        Shard& of = core.shard(peers[peer]->shard());
        of.begin(task, task.since_ns);
        of.backend(transport)->submit(task);
        return task;
    }
    // Advances the shard's own time, which is the time of the latest call (Shard::latest_ns()), far ahead of the clock.
    void pass(uint64_t ns) { shard.dispatch(shard.try_lock(), now_ns += ns); }
    void round() {
        uint64_t deadline_ns = 0;
        shard.background_round(&deadline_ns);
    }
    std::string sorted(size_t from, size_t to) {
        std::vector<std::string> part(order.begin() + static_cast<ptrdiff_t>(from),
                                      order.begin() + static_cast<ptrdiff_t>(to));
        std::sort(part.begin(), part.end());
        std::string text;
        for (const std::string& one : part) text += one + " ";
        return text;
    }

    std::vector<std::string> order;
    Core core;
    Shard& shard = core.shard(0);
    std::shared_ptr<Peer> peers[3]{std::make_shared<Peer>("a", "x", core.credentials()),
                                   std::make_shared<Peer>("b", "x", core.credentials()),
                                   std::make_shared<Peer>("c", "x", core.credentials())};  // belongs to another shard
    std::vector<FakeChannel*> channels;
    std::shared_ptr<LocalBuffer> local = std::make_shared<LocalBuffer>();
    Batch batch;
    std::deque<Task> tasks;
    uint64_t now_ns = monotonic_ns();
};

TEST_F(ShardOrderTest, HighOfAllPeersAndTransportsBeforeMediumOfAllBeforeLowOfAll) {
    for (const Priority priority : {kLow, kMedium, kHigh})
        for (const Transport transport : {Transport::TCP, Transport::SHM})
            for (const size_t peer : {0u, 1u}) submit(transport, peer, priority);
    round();
    ASSERT_EQ(order.size(), 12u);
    EXPECT_EQ(sorted(0, 4), "s0h s1h t0h t1h ");
    EXPECT_EQ(sorted(4, 8), "s0m s1m t0m t1m ");
    EXPECT_EQ(sorted(8, 12), "s0l s1l t0l t1l ");
}

TEST_F(ShardOrderTest, WhileMoreOfALevelCouldGoLowerOnesWait) {
    for (FakeChannel* channel : channels) channel->burst = 2;
    submit(Transport::SHM, 0, kHigh, 5);
    submit(Transport::TCP, 1, kLow, 1);
    round();
    EXPECT_EQ(order, (std::vector<std::string>{"s0h", "s0h"}));
    round();
    round();
    EXPECT_EQ(order, (std::vector<std::string>{"s0h", "s0h", "s0h", "s0h", "s0h", "t1l"}));
}

TEST_F(ShardOrderTest, WhileAnotherShardHasMoreOfAHigherLevelItGoesFirst) {
    channels[0]->burst = 2;
    submit(Transport::SHM, 0, kHigh, 5);
    submit(Transport::SHM, 2, kLow, 1);
    submit(Transport::SHM, 2, kHigh, 1);
    round();  // a round of the first shard
    EXPECT_EQ(order, (std::vector<std::string>{"s0h", "s0h"}));
    core.shard(1).drive();
    EXPECT_EQ(order.back(), "s2h") << "it has the same level";
    for (int i = 0; i < 64; ++i) core.shard(1).try_drive();  // its driver also helps the first shard
    EXPECT_EQ(order, (std::vector<std::string>{"s0h", "s0h", "s2h", "s0h", "s0h", "s0h", "s2l"}));
}

TEST_F(ShardOrderTest, WhoDrivesOneShardLooksAfterTheOthers) {
    Task& task = submit(Transport::SHM, 2, kHigh, 1);
    for (int i = 0; i < 64; ++i) shard.try_drive();
    EXPECT_EQ(task.state.load(), TransferStatusEnum::COMPLETED);
}

TEST_F(ShardOrderTest, AChannelWithoutRoomKeepsNobodyWaiting) {
    channels[0]->room = 0;
    submit(Transport::SHM, 0, kHigh);
    submit(Transport::SHM, 1, kLow);
    round();
    EXPECT_EQ(order, (std::vector<std::string>{"s1l"}));
    channels[0]->room = 1;
    round();
    EXPECT_EQ(order.back(), "s0h");
}

TEST_F(ShardOrderTest, WhatGetsNowhereTimesOutWithAReason) {
    channels[0]->room = 3;
    Task& task = submit(Transport::SHM, 0, kHigh, 5);
    round();
    pass(core.config().max_timeout_ns - kMs);
    round();
    EXPECT_EQ(task.state.load(), TransferStatusEnum::PENDING);
    pass(2 * kMs);
    round();
    EXPECT_EQ(task.state.load(), TransferStatusEnum::TIMEOUT);
    EXPECT_EQ(task.transferred.load(), 3u);
    EXPECT_EQ(task.reason, Reason::kNoProgress);
    EXPECT_EQ(core.unfinished(), 0u);
}

// A request that makes progress may take any time.
TEST_F(ShardOrderTest, WhatGetsOnDoesNotTimeOutNorWhatWaitsBehindIt) {
    channels[0]->room = 0;
    Task& first = submit(Transport::SHM, 0, kLow, 6);
    Task& second = submit(Transport::SHM, 0, kLow, 1);
    for (int i = 0; i < 7; ++i) {
        pass(core.config().max_timeout_ns - kMs);
        round();
        channels[0]->room = 1;
        round();
    }
    EXPECT_EQ(first.state.load(), TransferStatusEnum::COMPLETED);
    EXPECT_EQ(second.state.load(), TransferStatusEnum::COMPLETED);
}

TEST_F(ShardOrderTest, ADeadlineOfItsOwnEndsWhatWaitsAndNothingElse) {
    channels[0]->room = 0;
    Task& late = submit(Transport::SHM, 0, kHigh, 2, now_ns + 5 * kMs);
    Task& other = submit(Transport::SHM, 0, kHigh, 1);
    round();
    pass(4 * kMs);
    round();
    EXPECT_EQ(late.state.load(), TransferStatusEnum::PENDING);
    pass(2 * kMs);
    round();
    EXPECT_EQ(late.state.load(), TransferStatusEnum::TIMEOUT);
    EXPECT_EQ(late.reason, Reason::kDeadline);
    channels[0]->room = 9;
    round();
    EXPECT_EQ(other.state.load(), TransferStatusEnum::COMPLETED);
    EXPECT_EQ(other.reason, Reason::kNone);
}

TEST_F(ShardOrderTest, WhatWasCanceledIsNotCarried) {
    channels[0]->room = 0;
    Task& task = submit(Transport::SHM, 0, kHigh, 2);
    round();
    task.canceled.store(true);
    channels[0]->room = 9;
    round();
    EXPECT_TRUE(order.empty());
    EXPECT_EQ(task.state.load(), TransferStatusEnum::CANCELED);
}

}  // namespace
}  // namespace rove::tent
