// SPDX-License-Identifier: Apache-2.0
// Tests slots that real processes share. The processes join at the same time, are killed, and leave state behind.
#include "tent/qos/slots.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <ctime>
#include <functional>
#include <thread>

#include "short_names.h"
#include "tent/qos/slots_memory.h"

namespace rove::tent {
namespace {

uint64_t now() {
    timespec time{};
    clock_gettime(CLOCK_MONOTONIC, &time);
    return static_cast<uint64_t>(time.tv_sec) * 1'000 * kMs + static_cast<uint64_t>(time.tv_nsec);
}

// Returns true if `condition` becomes true, with time for a busy machine.
bool soon(const std::function<bool()>& condition) {
    for (const uint64_t end = now() + 20'000 * kMs; now() < end; usleep(200))
        if (condition()) return true;
    return condition();
}

// Another process, forked before this process has threads. It joins on command, and answers each command with a line.
class Child {
  public:
    explicit Child(const SlotConfig& config) {
        int to[2], from[2];
        if (pipe2(to, O_CLOEXEC) != 0 || pipe2(from, O_CLOEXEC) != 0) abort();
        pid_ = fork();
        if (pid_ == 0) {
            close(to[1]);
            close(from[0]);
            serve(config, to[0], from[1]);
        }
        close(to[0]);
        close(from[1]);
        to_ = to[1];
        from_ = from[0];
    }
    ~Child() {
        kill();
        close(to_);
        close(from_);
    }
    Child(const Child&) = delete;
    Child& operator=(const Child&) = delete;

    // Sends a command: o opens and c closes; r asks whether it rotates the slots; h and H add and remove HIGH bytes, l
    // and L LOW bytes.
    void send(char command) const { EXPECT_EQ(write(to_, &command, 1), 1); }
    std::string answer() const {
        std::string line;
        for (char next = 0; read(from_, &next, 1) == 1 && next != '\n';) line += next;
        return line;
    }
    std::string ask(char command) const {
        send(command);
        return answer();
    }
    void stop() const { EXPECT_EQ(::kill(pid_, SIGSTOP), 0); }
    void kill() {
        if (pid_ <= 0) return;
        ::kill(pid_, SIGKILL);
        waitpid(pid_, nullptr, 0);
        pid_ = 0;
    }

  private:
    [[noreturn]] static void serve(const SlotConfig& config, int in, int out) {
        std::unique_ptr<Slots> slots;
        for (char command = 0; read(in, &command, 1) == 1;) {
            std::string reply = "ok\n";
            switch (command) {
                case 'o':
                    if (const Status status = Slots::open(config, &slots); !status.ok())
                        reply = status.message() + "\n";
                    break;
                case 'c':
                    slots.reset();
                    break;
                case 'r':
                    reply = slots->rotating() ? "yes\n" : "no\n";
                    break;
                case 'h':
                    slots->add_pending(kHigh, 4096, now());
                    break;
                case 'H':
                    slots->remove_pending(kHigh, 4096, now());
                    break;
                case 'l':
                    slots->add_pending(kLow, 4096, now());
                    break;
            }
            if (write(out, reply.data(), reply.size()) < 0) break;
        }
        _exit(0);
    }
    pid_t pid_ = 0;
    int to_ = -1, from_ = -1;
};

class SlotsTest : public testing::Test {
  protected:
    SlotsTest() { shm_unlink(path_.c_str()); }
    ~SlotsTest() override { shm_unlink(path_.c_str()); }
    SlotConfig config(uint64_t interval_ms = 2, bool strict = false) const {
        return {.shm_path = path_, .interval_ns = interval_ms * kMs, .strict = strict};
    }
    std::unique_ptr<Slots> join(const SlotConfig& config) const {
        std::unique_ptr<Slots> slots;
        const Status status = Slots::open(config, &slots);
        EXPECT_TRUE(status.ok()) << status.ToString();
        return slots;
    }
    std::string refused(const SlotConfig& config) const {
        std::unique_ptr<Slots> slots;
        const Status status = Slots::open(config, &slots);
        EXPECT_EQ(status.code(), Code::kInvalidArgument);
        EXPECT_EQ(slots, nullptr);
        return status.message();
    }
    // Returns the result of a `probe` that ran entirely within the given slot.
    template <class Probe>
    static auto within(const Slots& slots, uint32_t slot, Probe probe) {
        while (true) {
            EXPECT_TRUE(soon([&] { return slots.current_slot() == slot; }));
            const uint64_t before = slots.rotations();
            const auto result = probe();
            if (slots.rotations() == before && slots.current_slot() == slot) return result;
        }
    }
    static std::string open_to(const Slots& slots, uint32_t slot) {
        return within(slots, slot, [&] {
            std::string names;
            for (const Priority priority : {kHigh, kMedium, kLow})
                if (slots.can_send(priority, now())) names += name(priority)[0];
            return names;
        });
    }
    // Puts bytes in the place of the shared memory.
    void leave_behind(const std::vector<uint8_t>& bytes) const {
        const int fd = shm_open(path_.c_str(), O_RDWR | O_CREAT | O_TRUNC, 0600);
        ASSERT_GE(fd, 0);
        ASSERT_EQ(write(fd, bytes.data(), bytes.size()), static_cast<ssize_t>(bytes.size()));
        close(fd);
    }

    const std::string path_ = "/rove_slots_test_" + std::to_string(getpid());
};

TEST_F(SlotsTest, T12_WithoutAPathThereAreNone) {
    EXPECT_EQ(join({}), nullptr);
}

TEST_F(SlotsTest, T12_StrictSlotsAreAsDocumented) {
    const auto slots = join(config(2, true));
    EXPECT_EQ(open_to(*slots, 0), "h");
    EXPECT_EQ(open_to(*slots, 1), "hm");
    EXPECT_EQ(open_to(*slots, 2), "hml");
    EXPECT_TRUE(soon([&] { return slots->rotating(); }));  // its thread may not have run yet
}

// Slots are computed from the clock when they are read, so they are never late.
TEST_F(SlotsTest, T12_EdgesAreThoseOfTheClock) {
    const auto slots = join(config());
    size_t readings = 0;
    for (const uint64_t end = now() + 20 * kMs; now() < end || readings < 100;) {
        const uint64_t before = now() / (2 * kMs);
        const uint32_t slot = slots->current_slot();
        if (now() / (2 * kMs) != before) continue;
        ASSERT_EQ(slot, before % 3);
        ++readings;
    }
}

TEST_F(SlotsTest, T12_OneRotatesAndWhenItIsKilledAnotherTakesOver) {
    Child first(config()), third(config());
    ASSERT_EQ(first.ask('o'), "ok");
    ASSERT_TRUE(soon([&] { return first.ask('r') == "yes"; }));
    auto slots = join(config());
    EXPECT_TRUE(soon([&] { return slots->rotations() > 20; }));
    EXPECT_FALSE(slots->rotating());
    first.kill();
    EXPECT_TRUE(soon([&] { return slots->rotating(); }));
    EXPECT_EQ(slots->takeovers(), 1u);
    const uint64_t taken = slots->rotations();
    EXPECT_TRUE(soon([&] { return slots->rotations() >= taken + 10; })) << "slots go on";
    // A role that was taken over can also be handed over.
    ASSERT_EQ(third.ask('o'), "ok");
    slots.reset();
    EXPECT_TRUE(soon([&] { return third.ask('r') == "yes"; }));
}

TEST_F(SlotsTest, T12_SlotsGoOnWhileTheRotatorIsStopped) {
    Child rotator(config(20, true));
    ASSERT_EQ(rotator.ask('o'), "ok");
    ASSERT_TRUE(soon([&] { return rotator.ask('r') == "yes"; }));
    const auto slots = join(config(20, true));
    rotator.stop();
    usleep(20'000);
    for (const uint32_t slot : {0u, 1u, 2u, 0u})
        EXPECT_TRUE(soon([&] {
            const uint64_t time = now();
            return time / (20 * kMs) % 3 == slot && slots->current_slot() == slot &&
                   slots->can_send(kMedium, time) == (slot >= 1) && slots->can_send(kLow, time) == (slot == 2);
        })) << slot;
    EXPECT_FALSE(slots->rotating());
}

TEST_F(SlotsTest, T13_BytesOfAStoppedProcessKeepNobodyOut) {
    Child other(config(20));
    ASSERT_EQ(other.ask('o'), "ok");
    const auto slots = join(config(20));
    other.ask('h');
    // This is retried, because a process that does not run for long looks like a stopped one.
    EXPECT_TRUE(soon([&] { return open_to(*slots, 0) == "h"; }));
    other.stop();
    EXPECT_TRUE(soon([&] { return slots->can_send(kLow, now() / (60 * kMs) * (60 * kMs) + 60 * kMs); })) << "in slot 0";
}

TEST_F(SlotsTest, T12_OneThatLeavesHandsTheOfficeOver) {
    Child first(config());
    ASSERT_EQ(first.ask('o'), "ok");
    ASSERT_TRUE(soon([&] { return first.ask('r') == "yes"; }));
    const auto slots = join(config());
    ASSERT_EQ(first.ask('c'), "ok");
    EXPECT_TRUE(soon([&] { return slots->rotating(); }));
    EXPECT_EQ(slots->takeovers(), 0u);
}

TEST_F(SlotsTest, T12_MemoryOfDeadProcessesIsTakenOverWithAnyInterval) {
    Child dead(config(5));
    ASSERT_EQ(dead.ask('o'), "ok");
    dead.ask('h');
    ASSERT_TRUE(soon([&] { return dead.ask('r') == "yes"; }));
    dead.kill();
    const auto slots = join(config(2));
    EXPECT_TRUE(soon([&] { return slots->rotating(); }));
    EXPECT_EQ(open_to(*slots, 0), "hml") << "what the dead one had under way does not count";
}

TEST_F(SlotsTest, T12_AnotherIntervalIsRefusedWhileAProcessLives) {
    Child other(config(5));
    ASSERT_EQ(other.ask('o'), "ok");
    const std::string message = refused(config(2));
    EXPECT_EQ(message.rfind("slot_rotation_interval_ms: process ", 0), 0u) << message;
    EXPECT_NE(message.find(" uses " + path_ + " with 5, this process has 2"), std::string::npos) << message;
    ASSERT_EQ(other.ask('c'), "ok");
    EXPECT_NE(join(config(2)), nullptr);
}

TEST_F(SlotsTest, T12_AnotherVersionOrSomethingElseIsRefusedAndSaysWhatToRemove) {
    std::vector<uint8_t> bytes(4096);
    const uint64_t magic = SharedSlots::kMagic;
    const int32_t version = SharedSlots::kVersion + 1;
    std::memcpy(bytes.data(), &magic, sizeof(magic));
    std::memcpy(bytes.data() + sizeof(magic), &version, sizeof(version));
    leave_behind(bytes);
    EXPECT_EQ(refused(config()), "shared_quota_shm_path: " + path_ + " has version " + std::to_string(version) +
                                     ", this program has " + std::to_string(SharedSlots::kVersion) +
                                     "; remove /dev/shm" + path_ +
                                     " if no other program needs it, or choose another path");
    bytes.assign(100, 0xAB);
    leave_behind(bytes);
    EXPECT_NE(refused(config()).find("does not contain slots; remove /dev/shm" + path_), std::string::npos);
    // Our own magic number, but fewer bytes than a reader needs.
    bytes.assign(16, 0);
    std::memcpy(bytes.data(), &magic, sizeof(magic));
    bytes[8] = SharedSlots::kVersion;
    leave_behind(bytes);
    EXPECT_NE(refused(config()).find("is truncated"), std::string::npos);
}

TEST_F(SlotsTest, T12_WhatACreatorLeftHalfMadeIsMadeAnew) {
    leave_behind(std::vector<uint8_t>(sizeof(SharedSlots), 0));
    EXPECT_EQ(open_to(*join(config(2, true)), 1), "hm");
}

TEST_F(SlotsTest, T12_NoAccessIsToldByItsReason) {
    SlotConfig nowhere = config();
    nowhere.shm_path = "/no/such/name";
    EXPECT_EQ(refused(nowhere).rfind("shared_quota_shm_path: /no/such/name: ", 0), 0u);
}

TEST_F(SlotsTest, T12_ManyThatStartAtOnceAllJoinAndOneRotates) {
    for (int round = 0; round < 5; ++round) {
        shm_unlink(path_.c_str());
        std::vector<std::unique_ptr<Child>> children;
        for (int i = 0; i < 6; ++i) children.push_back(std::make_unique<Child>(config()));
        for (const auto& child : children) child->send('o');
        for (const auto& child : children) EXPECT_EQ(child->answer(), "ok");
        EXPECT_TRUE(soon([&] {
            return std::count_if(children.begin(), children.end(),
                                 [](const auto& child) { return child->ask('r') == "yes"; }) == 1;
        }));
        // The processes die one after the other, most of them while they rotate the slots.
        children.erase(children.begin(), children.begin() + 5);
        EXPECT_TRUE(soon([&] { return children[0]->ask('r') == "yes"; }));
    }
}

TEST_F(SlotsTest, T12_AFullTableSaysSo) {
    std::vector<std::unique_ptr<Slots>> all;
    for (uint32_t i = 0; i < SharedSlots::kProcesses; ++i) all.push_back(join(config()));
    std::unique_ptr<Slots> one_more;
    EXPECT_EQ(Slots::open(config(), &one_more).code(), Code::kTooManyRequests);
    all.pop_back();
    EXPECT_TRUE(Slots::open(config(), &one_more).ok());
}

TEST_F(SlotsTest, T13_SlotsAreOpenToAllWhileNobodyHasAnythingHigher) {
    Child other(config(20));
    ASSERT_EQ(other.ask('o'), "ok");
    const auto slots = join(config(20));
    for (const uint32_t slot : {0u, 1u, 2u}) EXPECT_EQ(open_to(*slots, slot), "hml");
    other.ask('h');
    EXPECT_TRUE(soon([&] { return open_to(*slots, 0) == "h"; }));
    EXPECT_TRUE(soon([&] { return open_to(*slots, 1) == "hm"; }));
    EXPECT_EQ(open_to(*slots, 2), "hml");
    other.ask('H');
    EXPECT_TRUE(soon([&] { return open_to(*slots, 0) == "hml"; }));
    // LOW does not exclude other priorities.
    other.ask('l');
    EXPECT_EQ(open_to(*slots, 0), "hml");
}

TEST_F(SlotsTest, T13_APauseOfLessThanASlotDoesNotOpenIt) {
    const auto slots = join(config(20));
    const uint64_t interval = 20 * kMs;
    const uint64_t slot_0 = now() / (3 * interval) * (3 * interval), time = slot_0 - kMs - interval / 2;
    slots->add_pending(kMedium, 10, time);
    slots->remove_pending(kMedium, 10, time + kMs);
    EXPECT_FALSE(slots->can_send(kLow, time + kMs + interval - 1));
    EXPECT_TRUE(slots->can_send(kLow, time + kMs + interval));
    EXPECT_TRUE(slots->can_send(kMedium, time + kMs + interval / 2));
}

TEST_F(SlotsTest, T13_BytesOfAKilledProcessKeepNobodyOut) {
    Child other(config());
    const auto slots = [&] {
        EXPECT_EQ(other.ask('o'), "ok");
        return join(config());
    }();
    other.ask('h');
    EXPECT_TRUE(soon([&] { return open_to(*slots, 0) == "h"; }));
    other.kill();
    EXPECT_TRUE(soon([&] { return open_to(*slots, 0) == "hml"; }));
}

// A process that polls for LOW delays HIGH of a process on the same core.
TEST_F(SlotsTest, T13_ACoreIsLeftToAProcessThatMayWantItForMore) {
    const auto ours = join(config()), theirs = join(config());
    cpu_set_t before, one;
    ASSERT_EQ(sched_getaffinity(0, sizeof(before), &before), 0);
    const auto move_to = [&](int core) {
        CPU_ZERO(&one);
        CPU_SET(static_cast<size_t>(core), &one);
        ASSERT_EQ(sched_setaffinity(0, sizeof(one), &one), 0);
    };
    const auto sleeps = [&](uint64_t at) {
        rusage usage{};
        getrusage(RUSAGE_THREAD, &usage);
        const long count = usage.ru_nvcsw;
        ours->yield_core(at);
        getrusage(RUSAGE_THREAD, &usage);
        return usage.ru_nvcsw != count;
    };
    int here = -1, elsewhere = -1;
    for (int core = 0; core < CPU_SETSIZE; ++core)
        if (CPU_ISSET(static_cast<size_t>(core), &before)) (here < 0 ? here : elsewhere) = core;
    move_to(here);
    ours->add_pending(kLow, 4096, now());
    EXPECT_FALSE(sleeps(now())) << "nobody wants more";
    EXPECT_TRUE(soon([&] {  // retried, because we may lose the core in between
        const uint64_t wanted = now();
        theirs->add_pending(kMedium, 4096, wanted);
        theirs->remove_pending(kMedium, 4096, wanted);
        return sleeps(now()) && !sleeps(now()) && sleeps(wanted + 50 * kMs);
    })) << "lately somebody wanted more: now and then, not all the time";
    EXPECT_FALSE(sleeps(now() + 1'000 * kMs)) << "that was long ago";
    theirs->add_pending(kHigh, 4096, now());
    EXPECT_TRUE(within(*ours, 0, [&] { return sleeps(now()) && sleeps(now()); })) << "in their slot, all the time";
    theirs->remove_pending(kHigh, 4096, now());
    if (elsewhere >= 0) {
        move_to(elsewhere);
        EXPECT_FALSE(sleeps(now() + kMs)) << "on another core";
        move_to(here);
    }
    ours->add_pending(kHigh, 4096, now());
    EXPECT_FALSE(sleeps(now() + kMs)) << "we want as much";
    EXPECT_EQ(sched_setaffinity(0, sizeof(before), &before), 0);
}

}  // namespace
}  // namespace rove::tent
