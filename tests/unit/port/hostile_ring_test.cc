// SPDX-License-Identifier: Apache-2.0
// Tests rings whose peer writes arbitrary values into the shared memory, between our steps and during them. No step of
// ours accesses any other memory, and every step ends.
#include <gtest/gtest.h>
#include <rte_eal.h>
#include <rte_mbuf.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "port/memif/memif_connection.h"
#include "port/memif/ring.h"

namespace rove::datapath {
namespace {

using Role = MemifConnection::Role;
constexpr uint8_t kLog2Slots = 4;
constexpr uint32_t kSlots = 1u << kLog2Slots, kBufferBytes = 4096, kMbufBytes = 2048, kPage = 4096;

// The client has both rings at the start of the region.
constexpr uint32_t kRingsBytes = 2 * (sizeof(MemifRing) + kSlots * sizeof(MemifDescriptor));

rte_mempool* pool() {
    static rte_mempool* const pool = [] {
        const std::string core = "--lcores=0@(" + std::to_string(sched_getcpu()) + ")";
        std::vector<std::string> arguments = {"test", "--no-huge",      "--no-shconf",   "--no-pci",
                                              "-m32", "--no-telemetry", "--log-level=3", core};
        std::vector<char*> argv;
        for (std::string& argument : arguments) argv.push_back(argument.data());
        if (rte_eal_init(static_cast<int>(argv.size()), argv.data()) < 0) std::abort();
        return rte_pktmbuf_pool_create("hostile_ring_test", 255, 0, 0, RTE_PKTMBUF_HEADROOM + kMbufBytes,
                                       SOCKET_ID_ANY);
    }();
    return pool;
}

// Protects the pages before and after a region against every access.
class Guards {
  public:
    explicit Guards(const MemifConnection::Region& region) {
        for (uint8_t* const at :
             {region.address - kPage, region.address + (region.bytes + kPage - 1) / kPage * kPage}) {
            void* const page = mmap(at, kPage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
            if (page != MAP_FAILED) pages_.push_back(page);
        }
    }
    ~Guards() {
        for (void* const page : pages_) munmap(page, kPage);
    }
    Guards(const Guards&) = delete;
    Guards& operator=(const Guards&) = delete;

  private:
    std::vector<void*> pages_;
};

// The peer, which writes to its own mapping of the memory. Its indices are mostly plausible, so that frames flow.
class Hostile {
  public:
    Hostile(const MemifConnection& connection, Role role, uint64_t seed)
        : region_(connection.regions().front()), role_(role), random_(seed) {
        for (const auto* ring : {&connection.to_server(), &connection.to_client()}) {
            uint16_t &head = ring->ring->head, &tail = ring->ring->tail;
            rings_.push_back(
                {ring->ring, role == Role::kClient ? &head : &tail, role == Role::kClient ? &tail : &head});
        }
    }

    void store() {
        const Ring& of = rings_[below(2)];
        MemifRing& ring = *of.ring;
        MemifDescriptor& descriptor = ring.descriptors[below(kSlots)];
        switch (below(10)) {
            case 0:
            case 1:
                return set(*of.own, index_near(*of.others));
            case 2:
                return set(ring.flags, static_cast<uint16_t>(random_()));
            case 3:
                return set(ring.cookie, static_cast<uint32_t>(random_()));
            case 4:
                return set(descriptor.flags, static_cast<uint16_t>(below(3)));
            case 5:
                return set(descriptor.region, static_cast<uint16_t>(below(4) == 0 ? random_() : 0));
            case 6:
                return set(descriptor.length, length());
            case 7:
                return set(descriptor.offset, offset());
            case 8:
                return set(region_.address[kRingsBytes + below(region_.bytes - kRingsBytes)],
                           static_cast<uint8_t>(random_()));
            case 9:
                // Writes all descriptors of the ring at once. The next frames then have as many parts as there are
                // slots, or all are large.
                for (uint32_t slot = 0; slot < kSlots; ++slot) {
                    set(ring.descriptors[slot].flags, static_cast<uint16_t>(below(2)));
                    set(ring.descriptors[slot].length, length());
                }
        }
    }
    // Corrupts, during `step`, the index that our side owns in each ring. Our side never reads it, and writes it again
    // only when frames are transferred. The other peer would need the right value for that, so it is restored.
    void while_others_indices_are_wrong(auto&& step) {
        std::array<std::array<uint16_t, 2>, 2> values;
        for (size_t i = 0; i < 2; ++i) {
            values[i] = {__atomic_load_n(rings_[i].others, __ATOMIC_RELAXED), static_cast<uint16_t>(random_())};
            set(*rings_[i].others, values[i][1]);
        }
        step();
        for (size_t i = 0; i < 2; ++i)
            __atomic_compare_exchange_n(rings_[i].others, &values[i][1], values[i][0], false, __ATOMIC_RELAXED,
                                        __ATOMIC_RELAXED);
    }

  private:
    size_t below(size_t bound) { return random_() % bound; }
    template <typename Number>
    void set(Number& at, Number value) {
        __atomic_store_n(&at, value, __ATOMIC_RELAXED);
    }
    uint16_t index_near(const uint16_t& others) {
        if (below(8) == 0) return static_cast<uint16_t>(random_());
        const uint16_t there = __atomic_load_n(&others, __ATOMIC_RELAXED);
        const auto slots = static_cast<uint16_t>(below(kSlots + 1));
        return static_cast<uint16_t>(role_ == Role::kClient ? there + slots : there - slots);
    }
    uint32_t length() {
        const std::array<uint32_t, 8> lengths = {0, 1, 64, kBufferBytes, kBufferBytes + 1, 0xffff, 0x10000, 0xffffffff};
        return below(4) == 0 ? static_cast<uint32_t>(random_()) : lengths[below(lengths.size())];
    }
    uint32_t offset() {
        const auto end = static_cast<uint32_t>(region_.bytes);
        const std::array<uint32_t, 6> offsets = {0, end - 64, end - 1, end, end + 1, 0xffffffff};
        return below(3) == 0 ? offsets[below(offsets.size())] : static_cast<uint32_t>(below(end));
    }

    struct Ring {
        MemifRing* ring;
        uint16_t *own, *others;
    };

    const MemifConnection::Region region_;
    const Role role_;
    std::vector<Ring> rings_;
    std::mt19937_64 random_;
};

// Our end. It counts the frames of its steps.
class Ours {
  public:
    Ours(const MemifConnection& connection, Role role, uint64_t seed)
        : is_client_(role == Role::kClient),
          regions_(connection.regions()),
          sender_(connection, role),
          receiver_(connection, role, pool()),
          random_(seed) {}

    void step() {
        switch (below(9)) {
            case 0:
            case 1:
                return build(below(2) == 0 ? 64 : below(2 * kBufferBytes));
            case 2: {
                const std::vector<uint8_t> frame(below(4 * kBufferBytes));
                sender_.send_copy(frame.data(), static_cast<uint32_t>(frame.size()));
                return;
            }
            case 3:
                sender_.for_each_unpublished(
                    [&](std::span<const uint8_t> frame) { touch(frame.data(), frame.size()); });
                return;
            case 4:
                return sender_.publish();
            case 5:
            case 6:
                return receive();
            case 7:
                if (receiver_.arm()) receiver_.disarm();
                return;
            case 8:
                sum_ += sender_.full() + sender_.has_unread() + receiver_.has_frames();
                sum_ += sender_.frames() + receiver_.frames() + receiver_.errors() + receiver_.no_mbuf();
        }
    }
    uint64_t frames_received() const { return receiver_.frames(); }
    uint64_t frames_sent() const { return sender_.frames(); }

  private:
    size_t below(size_t bound) { return random_() % bound; }

    // Checks that the bytes are within the shared memory, and reads all of them.
    void touch(const uint8_t* bytes, size_t count) {
        const bool is_shared = std::any_of(regions_.begin(), regions_.end(), [&](const auto& region) {
            return bytes >= region.address && count <= region.bytes &&
                   static_cast<size_t>(bytes - region.address) <= region.bytes - count;
        });
        ASSERT_TRUE(is_shared);
        for (size_t i = 0; i < count; ++i) sum_ += __atomic_load_n(bytes + i, __ATOMIC_RELAXED);
    }

    void build(size_t bytes) {
        uint8_t* const buffer = sender_.next(static_cast<uint32_t>(bytes));
        if (buffer == nullptr) return;
        touch(buffer, bytes);
        ASSERT_TRUE(!is_client_ || bytes <= kBufferBytes) << "a slot's buffer of our own";
        if (below(2) == 0)
            std::memset(buffer, 0xab, bytes);
        else
            sender_.store(buffer, std::vector<uint8_t>(bytes + 1).data(), static_cast<uint32_t>(bytes));
        sender_.took(static_cast<uint32_t>(bytes));
    }

    void receive() {
        std::array<rte_mbuf*, RxQueue::kBurst> frames;
        const uint16_t count = receiver_.burst(frames.data());
        ASSERT_LE(count, RxQueue::kBurst);
        for (uint16_t i = 0; i < count; ++i) {
            rte_mbuf* const frame = frames[i];
            ASSERT_EQ(frame->nb_segs, 1);
            ASSERT_EQ(frame->pkt_len, frame->data_len);
            if (frame->pool == nullptr) {
                touch(rte_pktmbuf_mtod(frame, const uint8_t*), frame->data_len);
                continue;
            }
            ASSERT_EQ(frame->pool, pool());
            ASSERT_LE(uint32_t{frame->data_off} + frame->data_len, frame->buf_len);
            rte_pktmbuf_free(frame);
        }
        receiver_.release();
    }

    const bool is_client_;
    const std::vector<MemifConnection::Region> regions_;
    RingSender sender_;
    RingReceiver receiver_;
    std::mt19937_64 random_;
    uint64_t sum_ = 0;
};

// Both ends of a connection. Our end has the role `role`.
struct Connected {
    explicit Connected(Role role) {
        std::array<int, 2> ends;
        EXPECT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()), 0);
        MemifConnection::Settings settings{.role = role, .log2_slots = kLog2Slots, .buffer_bytes = kBufferBytes};
        ours = std::make_unique<MemifConnection>(ends[0], settings);
        settings.role = their_role = role == Role::kClient ? Role::kServer : Role::kClient;
        theirs = std::make_unique<MemifConnection>(ends[1], settings);
        for (int i = 0; i < 10; ++i) ours->advance(), theirs->advance();
        EXPECT_EQ(ours->advance(), MemifConnection::State::kConnected) << ours->why();
        EXPECT_EQ(theirs->advance(), MemifConnection::State::kConnected) << theirs->why();
    }
    Role their_role;
    std::unique_ptr<MemifConnection> ours, theirs;
};

class HostileRingTest : public testing::TestWithParam<Role> {
  protected:
    void SetUp() override { before_ = rte_mempool_avail_count(pool()); }
    void TearDown() override { EXPECT_EQ(rte_mempool_avail_count(pool()), before_) << "mbufs are lost"; }
    unsigned before_ = 0;
};

// ROVE_SEED=N runs one seed, ROVE_SEEDS=N runs N seeds.
TEST_P(HostileRingTest, StoresBetweenStepsDoNoHarm) {
    const auto environment = [](const char* name, uint64_t otherwise) {
        const char* const value = std::getenv(name);
        return value == nullptr ? otherwise : std::strtoull(value, nullptr, 0);
    };
    const uint64_t only = environment("ROVE_SEED", 0), seeds = environment("ROVE_SEEDS", 100);
    uint64_t received = 0, sent = 0;
    for (uint64_t seed = only != 0 ? only : 1; seed <= (only != 0 ? only : seeds); ++seed) {
        SCOPED_TRACE("ROVE_SEED=" + std::to_string(seed));
        Connected connected(GetParam());
        const Guards guards(connected.ours->regions().front());
        Hostile hostile(*connected.theirs, connected.their_role, seed);
        Ours ours(*connected.ours, GetParam(), seed);
        for (int step = 0; step < 2000; ++step) {
            hostile.while_others_indices_are_wrong([&] { ours.step(); });
            if (HasFatalFailure()) return;
            hostile.store();
        }
        received += ours.frames_received();
        sent += ours.frames_sent();
    }
    // The test would prove little if the peer's stores stopped the traffic.
    EXPECT_GT(received, 100u);
    EXPECT_GT(sent, 100u);
}

TEST_P(HostileRingTest, StoresDuringStepsDoNoHarm) {
    constexpr uint64_t kSteps = 100000, kFrames = 20;
    Connected connected(GetParam());
    const Guards guards(connected.ours->regions().front());
    Ours ours(*connected.ours, GetParam(), 1);
    std::atomic<bool> stop{false};
    std::thread thread([&] {
        // EAL has bound the parent of this thread to one core.
        cpu_set_t all;
        std::memset(&all, 0xff, sizeof(all));
        sched_setaffinity(0, sizeof(all), &all);
        Hostile hostile(*connected.theirs, connected.their_role, 2);
        std::mt19937_64 random(3);
        while (!stop.load(std::memory_order_relaxed)) {
            for (uint64_t stores = random() % 64; stores > 0; --stores) hostile.store();
            // The peer pauses between bursts of stores. Without a pause, an index would almost never stay right for the
            // duration of a frame.
            std::this_thread::sleep_for(std::chrono::microseconds(10));
        }
    });
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    for (uint64_t step = 0; !HasFatalFailure() && std::chrono::steady_clock::now() < end; ++step) {
        if (step >= kSteps && ours.frames_received() >= kFrames && ours.frames_sent() >= kFrames) break;
        ours.step();
    }
    stop = true;
    thread.join();
    EXPECT_GE(ours.frames_received(), kFrames);
    EXPECT_GE(ours.frames_sent(), kFrames);
}

// The peer's index claims that it filled more slots than exist, or that it returned slots that it never had.
TEST_P(HostileRingTest, AnIndexBeyondTheRingIsNothing) {
    const bool is_client = GetParam() == Role::kClient;
    for (const uint16_t beyond : {uint16_t{1}, uint16_t{2}, uint16_t{1000}, uint16_t{0x7fff}, uint16_t{0x8000}}) {
        Connected connected(GetParam());
        MemifRing &to_server = *connected.theirs->to_server().ring, &to_client = *connected.theirs->to_client().ring;
        RingSender sender(*connected.ours, GetParam());
        RingReceiver receiver(*connected.ours, GetParam(), pool());
        (is_client ? to_client.tail : to_server.head) = static_cast<uint16_t>(kSlots + beyond);
        (is_client ? to_server.tail : to_client.head) = static_cast<uint16_t>(is_client ? beyond : kSlots + beyond);
        std::array<rte_mbuf*, RxQueue::kBurst> frames;
        EXPECT_FALSE(receiver.has_frames());
        EXPECT_EQ(receiver.burst(frames.data()), 0);
        EXPECT_TRUE(receiver.arm());
        EXPECT_TRUE(sender.full());
        EXPECT_EQ(sender.next(64), nullptr);
        EXPECT_FALSE(sender.send_copy(std::array<uint8_t, 64>().data(), 64));
        // The largest valid index works.
        (is_client ? to_client.tail : to_server.head) = static_cast<uint16_t>(kSlots);
        (is_client ? to_server.tail : to_client.head) = static_cast<uint16_t>(is_client ? 0 : kSlots);
        EXPECT_EQ(receiver.burst(frames.data()), kSlots);
        receiver.release();
        for (uint32_t slot = 0; slot < kSlots; ++slot) {
            ASSERT_NE(sender.next(64), nullptr);
            sender.took(64);
        }
        EXPECT_TRUE(sender.full());
    }
}

// Non-temporal stores write whole cache lines. The bytes behind the frame in its last line must not leak this process's
// memory to the peer.
TEST_P(HostileRingTest, AFrameStoredPastTheCachesIsWhole) {
    Connected connected(GetParam());
    RingSender sender(*connected.ours, GetParam());
    RingReceiver receiver(*connected.theirs, connected.their_role, pool());
    std::mt19937_64 random(1);
    const auto try_size = [&](uint32_t bytes) {
        SCOPED_TRACE(bytes);
        std::vector<uint8_t> sent(bytes + RTE_CACHE_LINE_SIZE);
        for (uint8_t& byte : sent) byte = static_cast<uint8_t>(random() | 1);
        uint8_t* const buffer = sender.next(bytes);
        ASSERT_NE(buffer, nullptr);
        sender.store(buffer, sent.data(), bytes);
        sender.took(bytes);
        sender.publish();
        std::array<rte_mbuf*, RxQueue::kBurst> frames;
        ASSERT_EQ(receiver.burst(frames.data()), 1);
        ASSERT_EQ(frames[0]->data_len, bytes);
        const auto* const came = rte_pktmbuf_mtod(frames[0], const uint8_t*);
        EXPECT_TRUE(std::equal(sent.begin(), sent.begin() + bytes, came));
        for (uint32_t at = bytes; at % RTE_CACHE_LINE_SIZE != 0; ++at) EXPECT_EQ(came[at], 0) << at;
        receiver.release();
    };
    for (uint32_t bytes = 1; bytes <= 3 * RTE_CACHE_LINE_SIZE; ++bytes) try_size(bytes);
    for (const uint32_t bytes : {1098u, kBufferBytes - 1, kBufferBytes}) try_size(bytes);
}

// The server stores frames in buffers that the client offers. They may start and end at any address.
TEST(RingSenderTest, ABufferWithoutRoomForWholeLinesIsNotOverrun) {
    Connected connected(Role::kServer);
    RingSender sender(*connected.ours, Role::kServer);
    const MemifConnection::Region& region = connected.theirs->regions().front();
    const std::vector<uint8_t> frame(kBufferBytes, 0x11);
    for (const uint32_t begin : {0u, 10u}) {
        for (const uint32_t bytes : {70u, 100u, 127u, 128u}) {
            SCOPED_TRACE(std::to_string(begin) + ", " + std::to_string(bytes));
            MemifDescriptor& offered = connected.theirs->to_client().ring->descriptors[sender.frames() & (kSlots - 1)];
            offered.offset += begin;
            offered.length = bytes;
            uint8_t* const theirs = region.address + offered.offset;
            std::memset(theirs, 0xff, 256);
            uint8_t* const buffer = sender.next(bytes);
            ASSERT_NE(buffer, nullptr);
            offered.length = kBufferBytes;  // after next() has read the length
            sender.store(buffer, frame.data(), bytes);
            sender.took(bytes);
            EXPECT_TRUE(std::equal(theirs, theirs + bytes, frame.begin()));
            for (uint32_t at = bytes; at < 256; ++at) EXPECT_EQ(theirs[at], 0xff) << at;
        }
    }
}

INSTANTIATE_TEST_SUITE_P(Roles, HostileRingTest, testing::Values(Role::kClient, Role::kServer),
                         [](const auto& info) { return info.param == Role::kClient ? "client" : "server"; });

}  // namespace
}  // namespace rove::datapath
