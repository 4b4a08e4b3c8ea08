// SPDX-License-Identifier: Apache-2.0
// Tests memory, segments and processes that come and go during transfers, from any thread at any time.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "local_engine.h"
#include "rove/tent.hpp"
#include "tent/engine/engine.h"

namespace rove::tent {
namespace {

using namespace std::chrono_literals;
using Time = std::chrono::steady_clock;

constexpr uint64_t kBufferBytes = 65536;
constexpr Transport kShm = Transport::SHM, kTcp = Transport::TCP, kAny = Transport::UNSPEC;

uint8_t* allocate(Engine& engine, Permission permission = Permission::kGlobalReadWrite) {
    void* memory = nullptr;
    EXPECT_TRUE(engine.allocate_memory(kBufferBytes, {.permission = permission}, &memory).ok());
    return static_cast<uint8_t*>(memory);
}

uint64_t open(Engine& engine, const Engine& target) {
    uint64_t handle = 0;
    EXPECT_TRUE(engine.open_segment(target.segment_name(), &handle).ok());
    return handle;
}

TransferStatusEnum wait(Engine& engine, uint64_t batch) {
    TaskStatus status;
    const auto deadline = Time::now() + 30s;
    do EXPECT_TRUE(engine.overall_status(batch, &status).ok());
    while (status.state == TransferStatusEnum::PENDING && Time::now() < deadline);
    return status.state;
}

// The result of a request, or of its submission.
struct Outcome {
    Code code = Code::kOk;
    TransferStatusEnum state = TransferStatusEnum::INITIAL;
};

Outcome transfer(Engine& engine, Request::OpCode opcode, void* source, uint64_t target, const void* there,
                 Transport hint) {
    const Request request{.opcode = opcode,
                          .source = source,
                          .target_id = target,
                          .target_offset = reinterpret_cast<uint64_t>(there),
                          .length = kBufferBytes,
                          .transport_hint = hint};
    const uint64_t batch = engine.allocate_batch(1);
    Outcome outcome;
    outcome.code = engine.submit(batch, {&request, 1}, nullptr).code();
    if (outcome.code == Code::kOk) outcome.state = wait(engine, batch);
    EXPECT_TRUE(engine.free_batch(batch).ok());
    return outcome;
}

TransferStatusEnum write_block(Engine& engine, void* source, uint64_t target, const void* there, Transport hint) {
    const Outcome outcome = transfer(engine, Request::WRITE, source, target, there, hint);
    EXPECT_EQ(outcome.code, Code::kOk);
    return outcome.state;
}

// Returns the number of mappings of engines' shared memory in this process.
size_t mapped() {
    std::ifstream maps("/proc/self/maps");
    size_t count = 0;
    for (std::string line; std::getline(maps, line);) count += line.find("memfd:rove-tent") != std::string::npos;
    return count;
}

template <typename Condition>
bool within(std::chrono::milliseconds time, Condition condition) {
    const auto deadline = Time::now() + time;
    while (!condition()) {
        if (Time::now() > deadline) return false;
        std::this_thread::sleep_for(1ms);
    }
    return true;
}

// Unregisters memory as soon as tcp no longer serves a peer from it. That may end shortly after the transfer itself.
void unregister(Engine& engine, void* memory) {
    EXPECT_TRUE(within(20s, [&] { return engine.unregister_memory(memory, kBufferBytes).ok(); }));
}

TEST(Lifetimes, MemoryThatIsRegisteredOnceMoreIsNotFreed) {
    const auto engine = start_local_engine();
    uint8_t* memory = allocate(*engine);
    ASSERT_TRUE(engine->register_memory(memory, kBufferBytes, {}).ok());
    EXPECT_EQ(engine->free_memory(memory).code(), Code::kInvalidArgument);
    ASSERT_TRUE(engine->unregister_memory(memory, kBufferBytes).ok());
    ASSERT_TRUE(engine->register_memory(memory + 4096, 4096, {}).ok());
    EXPECT_EQ(engine->free_memory(memory).code(), Code::kInvalidArgument) << "a part of it";
    ASSERT_TRUE(engine->unregister_memory(memory + 4096, 4096).ok());
    EXPECT_TRUE(engine->free_memory(memory).ok());
    EXPECT_EQ(engine->free_memory(memory).code(), Code::kAddressNotRegistered);
    memory = allocate(*engine);
    ASSERT_TRUE(engine->unregister_memory(memory, kBufferBytes).ok());
    EXPECT_TRUE(engine->free_memory(memory).ok()) << "its own registration had ended before";
}

TEST(Lifetimes, APeerLetsGoOfMemoryThatWasFreed) {
    const auto engine = start_local_engine(), peer = start_local_engine();
    uint8_t* source = allocate(*engine);
    uint8_t* first = allocate(*peer);
    uint8_t* second = allocate(*peer);
    const uint64_t segment = open(*engine, *peer);
    ASSERT_EQ(write_block(*engine, source, segment, first, kShm), TransferStatusEnum::COMPLETED);
    ASSERT_EQ(write_block(*engine, source, segment, second, kShm), TransferStatusEnum::COMPLETED);
    ASSERT_EQ(mapped(), 5u) << "three of their owners, two of the initiator";
    ASSERT_TRUE(peer->free_memory(first).ok());
    EXPECT_TRUE(within(20s, [] { return mapped() == 3; })) << mapped();
    EXPECT_EQ(write_block(*engine, source, segment, second, kShm), TransferStatusEnum::COMPLETED);
    EXPECT_NE(transfer(*engine, Request::WRITE, source, segment, first, kAny).state, TransferStatusEnum::COMPLETED);
    ASSERT_TRUE(engine->close_segment(segment).ok());
    EXPECT_TRUE(within(20s, [] { return mapped() == 2; })) << mapped();
}

TEST(Lifetimes, APeerThatRegistersAnewIsAskedWithinTheRequest) {
    const auto engine = start_local_engine(), peer = start_local_engine();
    uint8_t* source = allocate(*engine);
    uint8_t* there = allocate(*peer);
    const uint64_t segment = open(*engine, *peer);
    ASSERT_EQ(write_block(*engine, source, segment, there, kShm), TransferStatusEnum::COMPLETED);
    // The memory is no longer offered for mapping. The initiator does not know this, and tcp carries the request.
    ASSERT_TRUE(peer->unregister_memory(there, kBufferBytes).ok());
    ASSERT_TRUE(peer->register_memory(there, kBufferBytes, {}).ok());
    std::memset(source, 'n', kBufferBytes);
    EXPECT_EQ(write_block(*engine, source, segment, there, kAny), TransferStatusEnum::COMPLETED);
    EXPECT_EQ(std::memcmp(source, there, kBufferBytes), 0);
    unregister(*peer, there);
    EXPECT_EQ(write_block(*engine, source, segment, there, kAny), TransferStatusEnum::FAILED);
    EXPECT_EQ(transfer(*engine, Request::WRITE, source, segment, there, kAny).code, Code::kAddressNotRegistered)
        << "now it is known";
}

// An answer that the peer gave to an earlier question does not contain the new memory.
TEST(Lifetimes, MemoryThatIsNewIsFoundWhileOthersAsk) {
    const auto engine = start_local_engine(), peer = start_local_engine();
    const uint64_t segment = open(*engine, *peer);
    std::vector<std::jthread> threads;
    for (int i = 0; i < 4; ++i) {
        threads.emplace_back([&, source = allocate(*engine)] {
            for (int round = 0; round < 20; ++round)
                EXPECT_EQ(write_block(*engine, source, segment, allocate(*peer), kShm), TransferStatusEnum::COMPLETED);
        });
    }
}

// Returns true if a request completes although its memory is registered again only after the request began. The request
// waits for the registration, unless our core is taken for longer than that wait, so there are several attempts. With
// `is_known`, the initiator knows that the memory is unregistered.
bool is_carried_when_memory_returns(bool is_known) {
    const auto engine = start_local_engine(), peer = start_local_engine();
    std::vector<uint8_t> away(kBufferBytes), stays(kBufferBytes);
    uint8_t* source = allocate(*engine);
    EXPECT_TRUE(peer->register_memory(away.data(), kBufferBytes, {}).ok());
    EXPECT_TRUE(peer->register_memory(stays.data(), kBufferBytes, {}).ok());
    const uint64_t segment = open(*engine, *peer);
    EXPECT_EQ(write_block(*engine, source, segment, away.data(), kAny), TransferStatusEnum::COMPLETED);
    for (int attempt = 0; attempt < 20; ++attempt) {
        std::memset(source, 'a' + attempt, kBufferBytes);
        unregister(*peer, away.data());
        std::shared_ptr<const SegmentDesc> published;
        if (is_known) {
            EXPECT_TRUE(engine->segment_info(segment, &published).ok());
        }
        std::atomic<bool> begins{false};
        std::jthread registers([&] {
            while (!begins.load()) std::this_thread::sleep_for(100us);
            std::this_thread::sleep_for(5ms);
            EXPECT_TRUE(peer->register_memory(away.data(), kBufferBytes, {}).ok());
        });
        std::jthread beside([&] {  // does not wait
            EXPECT_EQ(write_block(*engine, source, segment, stays.data(), kAny), TransferStatusEnum::COMPLETED);
        });
        begins.store(true);
        const Outcome outcome = transfer(*engine, Request::WRITE, source, segment, away.data(), kAny);
        registers.join();
        if (outcome.state == TransferStatusEnum::COMPLETED) return std::memcmp(source, away.data(), kBufferBytes) == 0;
    }
    return false;
}

TEST(Lifetimes, ARequestUnderWayWaitsForMemoryThatIsRegisteredAnew) {
    EXPECT_TRUE(is_carried_when_memory_returns(false));
}

TEST(Lifetimes, ANewRequestWaitsForMemoryThatIsRegisteredAnew) {
    EXPECT_TRUE(is_carried_when_memory_returns(true));
}

TEST(Lifetimes, OthersReadAMappingThatIsReadOnly) {
    const auto engine = start_local_engine(), peer = start_local_engine();
    void* mapping = mmap(nullptr, kBufferBytes, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(mapping, MAP_FAILED);
    const MemorySettings read_only{.permission = Permission::kGlobalReadOnly};
    ASSERT_TRUE(peer->register_memory(mapping, kBufferBytes, read_only).ok());
    uint8_t* memory = allocate(*engine);
    std::memset(memory, 1, kBufferBytes);
    const uint64_t segment = open(*engine, *peer);
    EXPECT_EQ(transfer(*engine, Request::READ, memory, segment, mapping, kAny).state, TransferStatusEnum::COMPLETED);
    EXPECT_EQ(memory[kBufferBytes - 1], 0);
    EXPECT_EQ(transfer(*engine, Request::WRITE, memory, segment, mapping, kAny).code, Code::kInvalidArgument);
    EXPECT_EQ(transfer(*peer, Request::READ, mapping, Peers::kLocal, mapping, kAny).code, Code::kInvalidArgument)
        << "the owner cannot write to it either";
    munmap(mapping, kBufferBytes);
}

TEST(Lifetimes, TwoThreadsUseTheOwnSegmentFirst) {
    for (int i = 0; i < 20; ++i) {
        const auto engine = start_local_engine();
        uint8_t* memory[2] = {allocate(*engine), allocate(*engine)};
        uint8_t* there[2] = {allocate(*engine), allocate(*engine)};
        std::vector<std::jthread> threads;
        for (size_t t = 0; t < 2; ++t)
            threads.emplace_back([&, t] {
                EXPECT_EQ(write_block(*engine, memory[t], Peers::kLocal, there[t], kAny),
                          TransferStatusEnum::COMPLETED);
            });
    }
}

TEST(Lifetimes, AForkedChildLeavesTheEngineToItsParent) {
    Settings settings;
    settings.set("transports/rdma/enable", "false");
    settings.set("rpc_server_hostname", "127.0.0.1");
    auto engine = std::make_unique<TransferEngine>(settings);
    const auto peer = start_local_engine();
    ASSERT_TRUE(engine->available());
    void* memory = nullptr;
    ASSERT_TRUE(engine->allocateLocalMemory(&memory, kBufferBytes).ok());
    SegmentID segment;
    ASSERT_TRUE(engine->openSegment(segment, peer->segment_name()).ok());
    uint8_t* there = allocate(*peer);
    const auto write_block = [&] {
        Request request;
        request.opcode = Request::WRITE;
        request.source = memory;
        request.target_id = segment;
        request.target_offset = reinterpret_cast<uint64_t>(there);
        request.length = kBufferBytes;
        const BatchID batch = engine->allocateBatch(1);
        TransferStatus status{PENDING, 0};
        if (!engine->submitTransfer(batch, {request}).ok()) return FAILED;
        while (status.s == PENDING && engine->getTransferStatus(batch, status).ok()) continue;
        (void)engine->freeBatch(batch);
        return status.s;
    };
    ASSERT_EQ(write_block(), COMPLETED);
    const pid_t child = fork();
    if (child == 0) {
        alarm(20);
        void* other = nullptr;
        const bool refused = !engine->available() && !engine->allocateLocalMemory(&other, kBufferBytes).ok();
        engine.reset();
        _exit(refused ? 0 : 1);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
    EXPECT_EQ(write_block(), COMPLETED);
}

TEST(Lifetimes, AForkedChildKeepsNoSocketOfItsParent) {
    Settings settings;
    settings.set("transports/rdma/enable", "false");
    settings.set("rpc_server_hostname", "127.0.0.1");
    auto engine = std::make_unique<TransferEngine>(settings);
    ASSERT_TRUE(engine->available());
    settings.set("rpc_server_port", std::to_string(engine->getRpcServerPort()));
    int begun[2];
    ASSERT_EQ(pipe(begun), 0);
    const pid_t child = fork();
    if (child == 0) {
        (void)!::write(begun[1], "b", 1);
        pause();
        _exit(0);
    }
    char byte;
    ASSERT_EQ(::read(begun[0], &byte, 1), 1);
    close(begun[0]);
    close(begun[1]);
    engine.reset();
    engine = std::make_unique<TransferEngine>(settings);
    EXPECT_TRUE(engine->available()) << engine->startStatus().ToString();
    kill(child, SIGKILL);
    ASSERT_EQ(waitpid(child, nullptr, 0), child);
}

// Threads open, close, describe, register, allocate, free, submit and cancel, in an order that a seed decides. Calls
// that are impossible at that moment are refused, started requests end, and in the end no object counts as used.
class Storm {
  public:
    explicit Storm(uint64_t seed) : seed_(seed) {
        for (size_t i = 0; i < kWriters; ++i) {
            sources_[i] = allocate(*engine_);
            targets_[i] = allocate(*peer_);
            others_[i].resize(kBufferBytes);
        }
    }

    void run(std::chrono::milliseconds time) {
        std::vector<std::jthread> threads;
        const auto add = [&](auto step) {
            threads.emplace_back([this, step, number = threads.size()] {
                std::mt19937_64 random(seed_ + number);
                while (!stop_.load()) step(random);
            });
        };
        for (size_t i = 0; i < kWriters; ++i) add([this, i](auto& random) { transfer(random, i); });
        for (size_t i = 0; i < 2; ++i) add([this](auto& random) { open_or_close(random); });
        add([this](auto& random) { allocate_and_free(random, *engine_, local_); });
        add([this](auto& random) { allocate_and_free(random, *peer_, remote_); });
        add([this](auto& random) { register_and_unregister(random); });
        add([this](auto&) { describe(); });
        std::this_thread::sleep_for(time);
        // A busy machine may not end a single request in this time.
        EXPECT_TRUE(within(20s, [this] { return completed_.load() > 0; }));
        stop_.store(true);
        threads.clear();
        check_the_end();
    }

  private:
    static constexpr size_t kWriters = 2, kHandles = 4;

    static void nap(std::mt19937_64& random) { std::this_thread::sleep_for(std::chrono::microseconds(random() % 500)); }

    // Each request of a writer has its own place in all memory.
    void transfer(std::mt19937_64& random, size_t writer) {
        std::array<Request, 4> requests;
        constexpr uint64_t kPiece = kBufferBytes / kWriters / 4;
        uint64_t at = writer * 4 * kPiece;
        for (Request& request : requests) {
            uint8_t* local = random() % 3 == 0 ? local_.load() : sources_[writer];
            uint8_t* remote = random() % 3 == 0   ? remote_.load()
                              : random() % 2 == 0 ? others_[writer].data()
                                                  : targets_[writer];
            constexpr Transport kHints[] = {kAny, kAny, kShm, kTcp};
            request.opcode = random() % 2 == 0 ? Request::READ : Request::WRITE;
            request.source = (local == nullptr ? sources_[writer] : local) + at;
            request.target_id = handles_[random() % kHandles].load();
            request.target_offset = reinterpret_cast<uint64_t>(remote == nullptr ? targets_[writer] : remote) + at;
            request.length = kPiece;
            request.transport_hint = kHints[random() % 4];
            at += kPiece;
        }
        const size_t count = 1 + random() % requests.size();
        const uint64_t batch = engine_->allocate_batch(count);
        const Status status = engine_->submit(batch, {requests.data(), count}, nullptr);
        if (status.ok()) {
            if (random() % 4 == 0) (void)engine_->cancel(batch, random() % count);
            const TransferStatusEnum state = wait(*engine_, batch);
            EXPECT_TRUE(state == TransferStatusEnum::COMPLETED || state == TransferStatusEnum::FAILED ||
                        state == TransferStatusEnum::CANCELED)
                << static_cast<int>(state);
            ++(state == TransferStatusEnum::COMPLETED ? completed_ : ended_);
        } else {
            EXPECT_TRUE(status.code() == Code::kAddressNotRegistered || status.code() == Code::kInvalidEntry ||
                        status.code() == Code::kInvalidArgument || status.code() == Code::kDeviceNotFound)
                << status.ToString();
            ++refused_;
        }
        EXPECT_TRUE(engine_->free_batch(batch).ok());
    }

    void open_or_close(std::mt19937_64& random) {
        std::atomic<uint64_t>& place = handles_[random() % kHandles];
        uint64_t handle = 0;
        if (place.load() == 0) {
            EXPECT_TRUE(engine_->open_segment(peer_->segment_name(), &handle).ok());
        }
        handle = place.exchange(handle);
        if (handle != 0) {
            EXPECT_TRUE(engine_->close_segment(handle).ok());
        }
        nap(random);
    }

    void allocate_and_free(std::mt19937_64& random, Engine& engine, std::atomic<uint8_t*>& place) {
        uint8_t* memory = allocate(engine);
        place.store(memory);
        nap(random);
        place.store(nullptr);
        Status status;
        const auto deadline = Time::now() + 20s;
        do status = engine.free_memory(memory);
        while (status.code() == Code::kInvalidArgument && Time::now() < deadline);  // still in use
        EXPECT_TRUE(status.ok()) << status.ToString();
    }

    void register_and_unregister(std::mt19937_64& random) {
        std::vector<uint8_t>& memory = others_[random() % kWriters];
        EXPECT_TRUE(peer_->register_memory(memory.data(), kBufferBytes, {}).ok());
        nap(random);
        Status status;
        const auto deadline = Time::now() + 20s;
        do status = peer_->unregister_memory(memory.data(), kBufferBytes);
        while (status.code() == Code::kInvalidArgument && Time::now() < deadline);
        EXPECT_TRUE(status.ok()) << status.ToString();
    }

    void describe() {
        std::shared_ptr<const SegmentDesc> segment;
        (void)engine_->segment_info(handles_[0].load(), &segment);
        std::this_thread::sleep_for(1ms);
    }

    void check_the_end() {
        for (std::atomic<uint64_t>& handle : handles_) {
            EXPECT_TRUE(engine_->close_segment(handle.load()).ok());
        }
        EXPECT_EQ(engine_->core().unfinished(), 0u);
        EXPECT_TRUE(within(20s, [&] { return engine_->peers().all().size() == 1; })) << "closed segments are let go";
        for (size_t i = 0; i < kWriters; ++i) {
            EXPECT_TRUE(engine_->free_memory(sources_[i]).ok());
            EXPECT_TRUE(peer_->free_memory(targets_[i]).ok());
        }
        std::printf("%zu completed, %zu ended otherwise, %zu refused\n", completed_.load(), ended_.load(),
                    refused_.load());
    }

    const uint64_t seed_;
    const std::unique_ptr<Engine> engine_ = start_local_engine(), peer_ = start_local_engine();
    std::array<uint8_t*, kWriters> sources_{}, targets_{};
    std::array<std::vector<uint8_t>, kWriters> others_;
    std::array<std::atomic<uint64_t>, kHandles> handles_{};  // 0 is our own segment
    std::atomic<uint8_t*> local_{nullptr}, remote_{nullptr};
    std::atomic<bool> stop_{false};
    std::atomic<size_t> completed_{0}, ended_{0}, refused_{0};
};

TEST(Lifetimes, AnyCallAtAnyTime) {
    const char* given = std::getenv("ROVE_SEED");
    const uint64_t seed = given != nullptr ? std::strtoull(given, nullptr, 10) : std::random_device{}();
    std::printf("ROVE_SEED=%llu\n", static_cast<unsigned long long>(seed));
    Storm(seed).run(700ms);
}

}  // namespace
}  // namespace rove::tent
