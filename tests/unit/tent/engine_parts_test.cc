// SPDX-License-Identifier: Apache-2.0
// Tests the parts of the engine that need neither ports nor peers: descriptors and messages from outside, pools, and
// lookups.
#include <gtest/gtest.h>
#include <rte_pause.h>
#include <time.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <thread>

#include "tent/control/frame.h"
#include "tent/engine/background.h"
#include "tent/engine/clock.h"
#include "tent/engine/core.h"
#include "tent/engine/segment.h"
#include "tent/engine/shard.h"
#include "tent/engine/task.h"
#include "tent/engine/withdrawn.h"
#include "tent/memory/memory.h"
#include "tent/metadata/store.h"
#include "tent/transports/rdma/connection.h"

namespace rove::tent {

// A backend that receives nothing.
class QuietBackend : public Backend {
  public:
    QuietBackend() : Backend(Transport::UNSPEC, {}) {}
    std::unique_ptr<Channel> open(Peer&, uint64_t) override { return nullptr; }
    bool progress(uint64_t) override {
        ++rounds;
        if (std::this_thread::get_id() != program) ++background_rounds;
        return moves;
    }
    bool is_idle() override { return true; }
    uint64_t next_deadline(uint64_t) const override { return kNever; }

    const std::thread::id program = std::this_thread::get_id();
    bool moves = false;
    uint32_t rounds = 0, background_rounds = 0;
};

struct ShardTest : testing::Test {
    ShardTest() { shard.add_backend(std::unique_ptr<Backend>(backend)); }
    Core core{::rove::tent::Config{}};
    Shard& shard = core.shard(0);
    QuietBackend* backend = new QuietBackend;
};

TEST_F(ShardTest, WhatIsDueIsDoneThoughPollsFindNothing) {
    for (int i = 0; i < 64; ++i) shard.try_drive();
    EXPECT_GE(backend->rounds, 4u);
    EXPECT_LT(backend->rounds, 32u) << "most need no clock";
}

TEST_F(ShardTest, ADispatchIsNotBeforeWhatOthersDid) {
    const uint64_t submit_ns = monotonic_ns();
    uint64_t revived_ns = submit_ns;
    shard.with_lock([&] {
        while (revived_ns == submit_ns) revived_ns = monotonic_ns();
    });
    shard.dispatch(shard.try_lock(), submit_ns);
    EXPECT_GE(shard.latest_ns(), revived_ns);
    shard.dispatch(shard.try_lock(), submit_ns + 1'000'000'000);
    EXPECT_EQ(shard.latest_ns(), submit_ns + 1'000'000'000);
}

// Each round of the background thread takes the core or the lock from a program that drives. The number of rounds must
// not depend on the length of an earlier sleep: a few calls in 20 us already count as a program that drives.
TEST_F(ShardTest, TheBackgroundThreadLeavesAProgramThatDrivesAlone) {
    Task task;
    task.peer = std::make_shared<Peer>("peer", "", core.credentials());
    task.local = std::make_shared<LocalBuffer>();
    shard.begin(task, monotonic_ns());
    backend->moves = true;
    Background background(core);
    background.start([] {});
    uint32_t least = UINT32_MAX;
    for (int attempt = 0; attempt < 100 && least >= 50; ++attempt) {  // at least one attempt has a core to itself
        uint32_t before = 0;
        shard.with_lock([&] { before = backend->background_rounds; });
        for (const uint64_t until = monotonic_ns() + 20'000'000; monotonic_ns() < until;) {
            shard.try_drive();
            for (const uint64_t next = monotonic_ns() + 5'000; monotonic_ns() < next;) rte_pause();
        }
        shard.with_lock([&] { least = std::min(least, backend->background_rounds - before); });
    }
    background.stop();
    EXPECT_LT(least, 50u);
}

// Wakes the thread as a submitter does that has copied the memory itself. The background thread runs every 100 ms in
// any case.
TEST_F(ShardTest, NobodyWakesTheBackgroundThreadForWhatIsDone) {
    Background background(core);
    background.start([] {});
    const auto rounds = [&] {
        uint32_t count = 0;
        shard.with_lock([&] { count = backend->background_rounds; });
        return count;
    };
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    const uint64_t begun_ns = monotonic_ns();
    const uint32_t before = rounds();
    for (int i = 0; i < 50; ++i) {
        background.wake();
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    EXPECT_LE(rounds() - before, 2 + (monotonic_ns() - begun_ns) / 50'000'000);
    background.stop();
}

SegmentDesc sample() {
    SegmentDesc segment;
    segment.name = "127.0.0.1:15000";
    segment.instance = uint64_t{1} << 60;
    segment.shm_server = "s";
    segment.devices.push_back({.name = "rove0", .gid = {1, 2, 0xFF}, .mtu = 4096});
    segment.buffers.push_back(
        {.address = 1000, .length = 100, .location = "*", .rkeys = {7}, .shared = ObjectId{1, 2, 3}});
    segment.buffers.push_back({.address = 2000, .length = 50, .location = "cpu:0", .writable = false, .rkeys = {8}});
    return segment;
}

TEST(Segment, TravelsAsJson) {
    const auto parsed = parse_segment(*parse_object(to_json(sample()).dump()));
    ASSERT_TRUE(parsed);
    EXPECT_EQ(to_json(*parsed), to_json(sample()));
}

TEST(Segment, WhatIsNotOneIsRefused) {
    const Json good = to_json(sample());
    ASSERT_TRUE(parse_segment(good));
    for (const auto& [key, value] : good.items()) {
        Json changed = good;
        changed.erase(key);
        EXPECT_FALSE(parse_segment(changed)) << "without " << key;
        changed[key] = Json::array({1.5});
        EXPECT_FALSE(parse_segment(changed)) << "wrong " << key;
    }
    const auto refuses = [&](const char* list, const char* key, Json value) {
        Json changed = good;
        changed[list][0][key] = std::move(value);
        EXPECT_FALSE(parse_segment(changed)) << list << "." << key;
    };
    refuses("buffers", "length", UINT64_MAX);
    refuses("buffers", "addr", -1);
    refuses("buffers", "shared", "/dev/shm/other");
    refuses("buffers", "rkey", Json::array());
    refuses("buffers", "rkey", Json::array({uint64_t{1} << 32}));
    refuses("devices", "gid", "12");
    refuses("devices", "gid", std::string(32, 'z'));
    refuses("devices", "mtu", 5000);
}

TEST(Segment, ARangeMustLieInOneBuffer) {
    SegmentDesc segment = sample();
    EXPECT_EQ(segment.find(1000, 100), &segment.buffers[0]);
    EXPECT_EQ(segment.find(1099, 1), &segment.buffers[0]);
    EXPECT_EQ(segment.find(1099, 2), nullptr);
    EXPECT_EQ(segment.find(999, 1), nullptr);
    EXPECT_EQ(segment.find(1000, UINT64_MAX), nullptr);
    EXPECT_EQ(segment.find(UINT64_MAX, 2), nullptr);
    segment.buffers.insert(segment.buffers.begin(), {.address = 900, .length = 5000});
    EXPECT_EQ(segment.find(1099, 2), &segment.buffers[0]) << "a larger one that begins earlier";
}

TEST(Message, HostileJsonIsNoObject) {
    EXPECT_FALSE(parse_object("[1]"));
    EXPECT_FALSE(parse_object("{"));
    EXPECT_FALSE(parse_object(""));
    EXPECT_FALSE(parse_object(std::string("\xFF\xFE\0{", 4)));
    std::string deep = "{\"a\":";
    for (int i = 0; i < 100000; ++i) deep += '[';
    EXPECT_FALSE(parse_object(deep));
    FrameHeader header;
    EXPECT_TRUE(header.is_valid(FrameHeader::kMaxQuestion));
    header.length = FrameHeader::kMaxQuestion + 1;
    EXPECT_FALSE(header.is_valid(FrameHeader::kMaxQuestion));
    EXPECT_TRUE(header.is_valid(FrameHeader::kMaxAnswer));
}

TEST(Endpoint, IsChecked) {
    Endpoint endpoint;
    endpoint.qpns = {1, 2, 0xFFFFFF, 4, 5, 6};  // two lanes
    endpoint.psns = {0, 0, 0, 0, 0, 0};
    const Json good = to_json(endpoint);
    ASSERT_TRUE(parse_endpoint(good));
    for (const auto& [key, value] : good.items()) {
        Json changed = good;
        changed.erase(key);
        EXPECT_FALSE(parse_endpoint(changed)) << "without " << key;
    }
    Json changed = good;
    changed["qpns"] = Json::array({1, 2, 0x1000000, 4, 5, 6});
    EXPECT_FALSE(parse_endpoint(changed));
    changed["qpns"] = Json::array({1, 2, 3});
    EXPECT_FALSE(parse_endpoint(changed)) << "another number of PSNs";
    changed["psns"] = changed["qpns"] = Json::array({1, 2});
    EXPECT_FALSE(parse_endpoint(changed)) << "not of all priorities";
    changed["psns"] = changed["qpns"] = Json(std::vector<int>(kPriorities * (kMaxLanes + 1), 1));
    EXPECT_FALSE(parse_endpoint(changed));
}

TEST(Base64, AsRfc4648Has) {
    const std::pair<std::string, std::string> vectors[] = {
        {"", ""}, {"f", "Zg=="}, {"fo", "Zm8="}, {"foo", "Zm9v"}, {"foob", "Zm9vYg=="}};
    for (const auto& [bytes, text] : vectors) {
        EXPECT_EQ(base64_encode(bytes), text);
        EXPECT_EQ(base64_decode(text), bytes);
    }
    const std::string bytes("\xFF\0\x80~", 4);
    EXPECT_EQ(base64_decode(base64_encode(bytes)), bytes);
    EXPECT_FALSE(base64_decode("Zg="));
    EXPECT_FALSE(base64_decode("Z*=="));
}

// Each reading lies between two readings of the system's clock, and some readings are far apart. The test allows a
// drift of 10 us.
TEST(Clock, IsTheSystemsAndNeverGoesBack) {
    const auto system_ns = [] {
        timespec now;
        clock_gettime(CLOCK_MONOTONIC, &now);
        return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
    };
    constexpr uint64_t kDriftNs = 10'000;
    uint64_t last = 0;
    for (int i = 0; i < 200'000; ++i) {
        if (i % 20'000 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(i / 20'000));
        const uint64_t before = system_ns(), told = monotonic_ns(), after = system_ns();
        ASSERT_GE(told + kDriftNs, before) << "reading " << i;
        ASSERT_LE(told, after + kDriftNs) << "reading " << i;
        ASSERT_GE(told, last) << "reading " << i;
        last = told;
    }
}

TEST(Withdrawn, MemoryMayReturnForSomeTime) {
    SegmentDesc both, one;
    both.buffers.resize(2);
    both.buffers[0] = {.address = 1000, .length = 100};
    both.buffers[1] = {.address = 2000, .length = 100};
    one.buffers = {both.buffers[1]};
    Withdrawn withdrawn;
    constexpr uint64_t kBegun = 1'000'000, kOver = kBegun + Withdrawn::kReturnsNs;
    withdrawn.note(both, one, kBegun);
    EXPECT_TRUE(withdrawn.may_return(1000, 100, kBegun));
    EXPECT_TRUE(withdrawn.may_return(1099, 1, kOver - 1));
    EXPECT_FALSE(withdrawn.may_return(1099, 2, kBegun)) << "it was never there";
    EXPECT_FALSE(withdrawn.may_return(999, 2, kBegun));
    EXPECT_FALSE(withdrawn.may_return(2000, 100, kBegun)) << "it is there";
    EXPECT_FALSE(withdrawn.may_return(1000, 100, kOver));
    withdrawn.note(one, {}, kOver);
    EXPECT_TRUE(withdrawn.may_return(2000, 100, kOver));
    EXPECT_FALSE(withdrawn.may_return(1000, 100, kOver)) << "each has its own time";
}

TEST(SlicePool, T10_GivesAllOrNothing) {
    SlicePool pool(2048);
    Slice* all = pool.take(2048);
    ASSERT_NE(all, nullptr);
    EXPECT_EQ(pool.take(1), nullptr);
    Slice* second = static_cast<Slice*>(all->next);
    all->next = nullptr;
    pool.give(all, all);
    EXPECT_EQ(pool.take(2), nullptr);
    Slice* one = pool.take(1);
    EXPECT_EQ(one, all);
    EXPECT_EQ(&pool.at(second->index), second);
}

TEST(SlicePool, WhatIsKeptForOthersIsNotGiven) {
    SlicePool pool(2048);
    EXPECT_EQ(pool.take(2048, 1), nullptr);
    ASSERT_NE(pool.take(1024, 1024), nullptr);
    EXPECT_EQ(pool.take(1, 1024), nullptr) << "LOW has what it may have";
    EXPECT_NE(pool.take(1024), nullptr) << "the rest is for HIGH";
}

TEST(LocalMemory, FindsWhatHoldsAll) {
    LocalMemory memory;
    const auto add = [&](uint64_t address, uint64_t length) {
        auto buffer = std::make_shared<LocalBuffer>();
        buffer->address = address;
        buffer->length = length;
        memory.add(buffer);
        return buffer;
    };
    const auto low = add(1000, 100), high = add(1100, 100);
    uint64_t change = 0;
    EXPECT_EQ(memory.acquire(1050, 50, 1, &change), low);
    EXPECT_EQ(memory.acquire(1050, 51, 0, &change), nullptr) << "two neighbours are not one buffer";
    EXPECT_EQ(memory.serve(1100, 100), high);
    EXPECT_EQ(memory.exact(1000, 99), nullptr);
    EXPECT_EQ(memory.count_overlapping(1099, 1), 1u);
    EXPECT_EQ(memory.count_overlapping(1099, 2), 2u);
    EXPECT_EQ(memory.count_overlapping(900, 100), 0u);
    EXPECT_FALSE(memory.remove_unused(*high)) << "a peer is served from it";
    EXPECT_FALSE(memory.remove_unused(*low)) << "a task has begun";
    low->tasks.undo_begin(1);
    EXPECT_TRUE(memory.remove_unused(*low));
    EXPECT_NE(memory.change(), change);
    EXPECT_EQ(memory.acquire(1050, 1, 0, &change), nullptr);
}

}  // namespace rove::tent
