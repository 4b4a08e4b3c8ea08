// SPDX-License-Identifier: Apache-2.0
// Tests memory that other processes map: their rights, the refusals, and its end when the owner frees it.
#include "tent/memory/shared_memory.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <fstream>
#include <string>
#include <thread>

#include "tent/engine/segment.h"
#include "tent/transports/shm/shm_server.h"

namespace rove::tent {
namespace {

constexpr uint64_t kObjectBytes = 10'000;  // not whole pages
constexpr uint64_t kInstance = 77;

std::shared_ptr<SharedMemory> make(bool writable = true) {
    std::unique_ptr<SharedMemory> memory;
    EXPECT_TRUE(SharedMemory::create(kObjectBytes, writable, false, &memory).ok());
    return memory;
}

TEST(SharedMemory, APeerSeesItAndThatItWasWithdrawn) {
    const auto memory = make();
    const auto there = PeerMemory::map(memory->fd(), memory->id(), true);
    ASSERT_NE(there, nullptr);
    EXPECT_GE(there->length(), kObjectBytes);
    std::memset(there->address(), 'x', kObjectBytes);
    EXPECT_EQ(static_cast<char*>(memory->address())[kObjectBytes - 1], 'x');
    EXPECT_TRUE(there->is_registered());
    memory->withdraw();
    EXPECT_FALSE(there->is_registered());
}

TEST(SharedMemory, CannotBeShortenedUnderAPeer) {
    const auto memory = make();
    EXPECT_NE(ftruncate(memory->fd(), 0), 0);
    EXPECT_EQ(errno, EPERM);
}

TEST(SharedMemory, IsOfHugePagesIfThereAreSome) {
    const char* const file = "/proc/sys/vm/nr_hugepages";
    size_t before = 0, now = 0;
    std::ifstream(file) >> before;
    std::ofstream(file) << before + 2;
    std::ifstream(file) >> now;
    if (now < before + 2) GTEST_SKIP() << "huge pages cannot be reserved";
    std::unique_ptr<SharedMemory> memory;
    const uint64_t bytes = (2 << 20) + 1;
    const Status status = SharedMemory::create(bytes, true, true, &memory);
    if (status.ok()) {
        const auto there = PeerMemory::map(memory->fd(), memory->id(), true);
        ASSERT_NE(there, nullptr);
        static_cast<char*>(memory->address())[bytes - 1] = 'x';
        EXPECT_EQ(there->address()[bytes - 1], 'x');
        EXPECT_TRUE(there->is_registered());
        char place[32];
        std::snprintf(place, sizeof(place), "%lx-", reinterpret_cast<unsigned long>(memory->address()));
        std::ifstream smaps("/proc/self/smaps");
        std::string line;
        while (std::getline(smaps, line) && !line.starts_with(place)) {
        }
        while (std::getline(smaps, line) && !line.starts_with("KernelPageSize:")) {
        }
        EXPECT_NE(line.find("2048 kB"), std::string::npos) << line;
    }
    memory.reset();
    std::unique_ptr<SharedMemory> too_much;
    EXPECT_EQ(SharedMemory::create(uint64_t{64} << 30, true, true, &too_much).code(), Code::kInternalError);
    std::ofstream(file) << before;
    EXPECT_TRUE(status.ok()) << status.message();
}

TEST(SharedMemory, WhatOthersMayReadTheyCannotMapForWriting) {
    const auto memory = make(false);
    std::memset(memory->address(), 'r', kObjectBytes);
    EXPECT_EQ(PeerMemory::map(memory->fd(), memory->id(), true), nullptr);
    const auto there = PeerMemory::map(memory->fd(), memory->id(), false);
    ASSERT_NE(there, nullptr);
    EXPECT_EQ(there->address()[kObjectBytes - 1], 'r');
    EXPECT_FALSE(there->writable());
}

TEST(SharedMemory, OtherMemoryThanWasMeantIsNotMapped) {
    const auto memory = make(), other = make();
    EXPECT_NE(memory->id(), other->id());
    EXPECT_EQ(PeerMemory::map(memory->fd(), other->id(), true), nullptr);
    // Memory of another owner, who could shorten it.
    const int fd = memfd_create("other", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    ASSERT_EQ(ftruncate(fd, 2 * 4096), 0);
    EXPECT_EQ(PeerMemory::map(fd, ObjectId{}, true), nullptr);
    close(fd);
}

TEST(ShmServer, HandsOutWhatIsOffered) {
    ShmServer server;
    ASSERT_EQ(server.start(kInstance), "");
    const auto memory = make();
    std::shared_ptr<PeerMemory> there;
    const auto fetch = [&](uint64_t instance) {
        return fetch_memory(server.name(), instance, memory->id(), true, &there);
    };
    EXPECT_EQ(fetch(kInstance), Fetched::kNotOffered);
    server.offer(memory);
    EXPECT_EQ(fetch(kInstance + 1), Fetched::kUnreachable) << "another process has taken its place";
    ASSERT_EQ(fetch(kInstance), Fetched::kMapped);
    std::memset(there->address(), 'y', kObjectBytes);
    EXPECT_EQ(static_cast<char*>(memory->address())[0], 'y');
    server.withdraw(memory->id());
    EXPECT_FALSE(there->is_registered());
    EXPECT_EQ(fetch(kInstance), Fetched::kNotOffered);
}

TEST(ShmServer, ItsAnswerMeansTheSameMachine) {
    std::string name;
    {
        ShmServer server;
        ASSERT_EQ(server.start(kInstance), "");
        name = server.name();
        EXPECT_TRUE(is_on_this_machine(name, kInstance));
        EXPECT_FALSE(is_on_this_machine(name, kInstance + 1));
    }
    EXPECT_FALSE(is_on_this_machine(name, kInstance));
    EXPECT_FALSE(is_on_this_machine("", kInstance));
    EXPECT_FALSE(is_on_this_machine("../../run/other.sock", kInstance));
    EXPECT_FALSE(is_on_this_machine(std::string(32, 'g'), kInstance));
}

}  // namespace
}  // namespace rove::tent
