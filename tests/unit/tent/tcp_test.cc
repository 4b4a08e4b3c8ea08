// SPDX-License-Identifier: Apache-2.0
// Tests connections of the tcp transport to a real server, and the number of bytes that is handed over to them.
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <deque>
#include <vector>

#include "short_names.h"
#include "tent/control/connection_name.h"
#include "tent/engine/clock.h"
#include "tent/engine/core.h"
#include "tent/engine/peer.h"
#include "tent/transports/tcp/tcp_backend.h"

namespace rove::tent {
namespace {

constexpr uint64_t kPatience = 20'000 * kMs;
constexpr uint64_t kSlice = 65'536, kSlices = 12;

class TcpConnectionTest : public testing::Test {
  protected:
    TcpConnectionTest() {
        auto buffer = std::make_shared<LocalBuffer>();
        buffer->address = address(there);
        buffer->length = there.size();
        memory.add(buffer);
        std::fill(there.begin(), there.end(), 't');
        std::fill(here.begin(), here.end(), 'h');
        connect();
    }
    static uint64_t address(const std::vector<uint8_t>& bytes) { return reinterpret_cast<uint64_t>(bytes.data()); }

    void connect() {
        int pair[2];
        ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
        server.admit(to_hex(hello.owner));
        server.take(Stream(pair[1]));
        Stream stream(pair[0]);
        TcpAnswer answer;
        ASSERT_TRUE(stream.send(&hello, sizeof(hello), monotonic_ns() + kPatience));
        ASSERT_TRUE(stream.receive(&answer, sizeof(answer), monotonic_ns() + kPatience));
        connection.open(std::move(stream), hello.number, monotonic_ns(), &ended);
    }
    void add(Request::OpCode opcode, size_t i, uint64_t remote) {
        Task& task = tasks.emplace_back();
        task.is_write = opcode == Request::WRITE;
        Slice& slice = slices.emplace_back();
        slice.task = &task;
        slice.local = here.data() + i * kSlice;
        slice.remote = remote;
        slice.length = kSlice;
        connection.add({.slice = &slice}, monotonic_ns());
    }
    void advance_until(size_t count) {
        const uint64_t end_ns = monotonic_ns() + kPatience;
        while (ended.size() < count && monotonic_ns() < end_ns) {
            connection.advance(kSlice, monotonic_ns(), &ended);
            if (connection.has_more() || !connection.has_slices()) continue;
            pollfd one{connection.fd(), POLLIN | POLLOUT, 0};
            poll(&one, 1, 1);
            static_assert(POLLIN == EPOLLIN && POLLOUT == EPOLLOUT && POLLHUP == EPOLLHUP && POLLERR == EPOLLERR);
            connection.note(static_cast<uint32_t>(one.revents));
        }
    }

    std::vector<uint8_t> there = std::vector<uint8_t>(kSlices * kSlice);
    std::vector<uint8_t> here = std::vector<uint8_t>(kSlices * kSlice);
    LocalMemory memory;
    TcpServer server{memory};
    TcpHello hello{.number = 7};
    TcpConnection connection;
    std::deque<Task> tasks;
    std::deque<Slice> slices;
    std::vector<TcpSlice> ended;
};

// More requests than fit into the socket, including some that are refused.
TEST_F(TcpConnectionTest, RequestsFollowEachOtherInBothDirections) {
    for (size_t i = 0; i < kSlices; ++i) {
        const uint64_t remote = address(there) + i * kSlice;
        const bool is_refused = i % 4 == 2;
        add(i % 2 == 0 ? Request::WRITE : Request::READ, i, is_refused ? address(here) : remote);
    }
    advance_until(kSlices);
    ASSERT_EQ(ended.size(), kSlices);
    for (size_t i = 0; i < kSlices; ++i) {
        const bool is_refused = i % 4 == 2, is_write = i % 2 == 0;
        EXPECT_EQ(ended[i].slice, &slices[i]);
        EXPECT_EQ(ended[i].outcome, is_refused ? TcpOutcome::kRefused : TcpOutcome::kDone) << i;
        const auto is_all = [&](const std::vector<uint8_t>& bytes, uint8_t value) {
            const auto first = bytes.begin() + static_cast<ptrdiff_t>(i * kSlice);
            return std::all_of(first, first + kSlice, [value](uint8_t byte) { return byte == value; });
        };
        EXPECT_TRUE(is_all(there, is_write && !is_refused ? 'h' : 't')) << i;
        EXPECT_TRUE(is_all(here, is_write || is_refused ? 'h' : 't')) << i;
    }
}

// Writes that the peer may have read partly can be reported only after the peer has closed the connection.
TEST_F(TcpConnectionTest, WhatThePeerMayStillCarryIsMarked) {
    for (size_t i = 0; i < 4; ++i) add(i == 1 ? Request::READ : Request::WRITE, i, address(there) + i * kSlice);
    connection.advance(1, monotonic_ns(), &ended);  // sends a part only
    connection.end(&ended);
    ASSERT_EQ(ended.size(), 4u);
    EXPECT_EQ(connection.state(), TcpConnection::State::kClosed);
    EXPECT_TRUE(std::any_of(ended.begin(), ended.end(), [](const TcpSlice& one) { return one.may_land; }));
    for (const TcpSlice& one : ended) {
        EXPECT_EQ(one.outcome, TcpOutcome::kBroken);
        EXPECT_EQ(one.number, hello.number);
        EXPECT_FALSE(one.may_land && !one.slice->task->is_write);
    }
}

TEST(RecentBytes, AreThoseOfThisPeriodAndTheOneBefore) {
    constexpr uint64_t kStart = 1'000 * RecentBytes::kPeriodNs, kPeriod = RecentBytes::kPeriodNs;
    RecentBytes recent;
    recent.add(Priority::kMedium, 1, kStart);
    recent.add(Priority::kLow, 10, kStart + kPeriod);
    recent.add(Priority::kLow, 100, kStart + kPeriod - 1);  // from a thread whose clock is behind
    EXPECT_EQ(recent.behind(0, Priority::kLow, kStart + kPeriod), 111u);
    EXPECT_EQ(recent.behind(0, Priority::kMedium, kStart + kPeriod), 1u);
    EXPECT_EQ(recent.behind(1, Priority::kLow, kStart + kPeriod), 110u);
    recent.remove(Priority::kLow, 100, kStart + kPeriod - 1);
    EXPECT_EQ(recent.behind(0, Priority::kLow, kStart + 2 * kPeriod), 10u);
    recent.remove(Priority::kMedium, 1, kStart);  // too old to count
    recent.remove(Priority::kLow, 10, kStart + kPeriod);
    EXPECT_EQ(recent.behind(0, Priority::kLow, kStart + 2 * kPeriod), 0u);
    recent.add(Priority::kLow, 10, kStart + 2 * kPeriod);
    EXPECT_EQ(recent.behind(0, Priority::kLow, kStart + 9 * kPeriod), 0u);
}

class TcpBackendTest : public testing::Test {
  protected:
    static TcpBackend& add_backend(Shard& shard) {
        shard.add_backend(std::make_unique<TcpBackend>(shard));
        return static_cast<TcpBackend&>(*shard.backend(Transport::TCP));
    }
    // Hands over bytes while there is room, up to `most`, and returns their number.
    uint64_t hand_over(Priority priority, uint64_t most, uint64_t now_ns) {
        uint64_t bytes = 0;
        for (; bytes < most && backend.has_room(priority, now_ns); bytes += kSlice) {
            slice.length = kSlice;
            backend.hand_over(channel.lane(priority), slice, now_ns);
        }
        return bytes;
    }

    Core core{::rove::tent::Config()};
    TcpBackend& backend = add_backend(core.shard(0));
    Peer peer{"a", "x", core.credentials()};
    TcpChannel channel{core.shard(0), backend, peer};
    Slice slice;
};

TEST_F(TcpBackendTest, BesideHighOnlyALittleOfTheOthersIsUnderWay) {
    constexpr uint64_t kMuch = 64 << 20, kLittle = 256 << 10;
    uint64_t now_ns = monotonic_ns();
    EXPECT_EQ(hand_over(Priority::kLow, kMuch, now_ns), kMuch) << "alone";
    core.note_use(Priority::kHigh, now_ns += 100 * kMs);
    EXPECT_EQ(hand_over(Priority::kLow, kMuch, now_ns), kLittle);
    EXPECT_EQ(hand_over(Priority::kMedium, kMuch, now_ns), kLittle) << "MEDIUM is before LOW";
    EXPECT_EQ(hand_over(Priority::kLow, kMuch, now_ns), 0u) << "both together";
    EXPECT_EQ(hand_over(Priority::kHigh, kMuch, now_ns), kMuch);
    // Bytes that a peer does not read delay others only for a short time.
    EXPECT_EQ(hand_over(Priority::kLow, kMuch, now_ns += 10 * kMs), kLittle);
    // HIGH was used, but some time ago.
    EXPECT_EQ(hand_over(Priority::kLow, kMuch, now_ns += 100 * kMs), kMuch);
}

}  // namespace
}  // namespace rove::tent
