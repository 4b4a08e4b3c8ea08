// SPDX-License-Identifier: Apache-2.0
// Tests that the engine's threads leave the program's signals to the program's threads, but receive the signals of
// their own faults.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <string>

#include "rove/tent.hpp"

namespace rove::tent {
namespace {

std::set<std::string> threads() {
    std::set<std::string> ids;
    for (const auto& entry : std::filesystem::directory_iterator("/proc/self/task"))
        ids.insert(entry.path().filename());
    return ids;
}

// Returns the signal mask of a thread, with bit (1 << (signal - 1)) for a signal, or all ones if the thread has ended.
uint64_t blocked(const std::string& id) {
    std::ifstream status("/proc/self/task/" + id + "/status");
    for (std::string line; std::getline(status, line);)
        if (line.starts_with("SigBlk:")) return std::stoull(line.substr(7), nullptr, 16);
    return ~uint64_t{0};
}

bool has(uint64_t mask, int signal) {
    return (mask >> (signal - 1) & 1) != 0;
}

TEST(TentSignals, AreLeftToTheProgramsThreads) {
    const std::set<std::string> before = threads();
    Settings settings;
    settings.set("rpc_server_hostname", "127.0.0.1");
    settings.set("transports/rdma/enable", "false");
    settings.set("transports/rdma/shared_quota_shm_path", "rove-signals-test-" + std::to_string(getpid()));
    TransferEngine engine(settings);
    ASSERT_TRUE(engine.available()) << engine.startStatus();
    void* memory = nullptr;
    ASSERT_TRUE(engine.allocateLocalMemory(&memory, 8192).ok());
    const BatchID batch = engine.allocateBatch(1);
    const Request request{.opcode = Request::WRITE,
                          .source = memory,
                          .target_offset = reinterpret_cast<uint64_t>(memory) + 4096,
                          .length = 4096,
                          .transport_hint = TCP};
    // Starts a thread that answers by tcp, and a thread for jobs.
    ASSERT_TRUE(engine.submitTransfer(batch, {request}, Notification{"a", "b"}).ok());
    TransferStatus status;
    do ASSERT_TRUE(engine.getTransferStatus(batch, status).ok());
    while (status.s == PENDING);
    ASSERT_EQ(status.s, COMPLETED);
    size_t ours = 0;
    for (const std::string& id : threads()) {
        if (before.contains(id)) continue;
        ++ours;
        std::string name;
        std::getline(std::ifstream("/proc/self/task/" + id + "/comm"), name);
        uint64_t mask = blocked(id);
        // The C library starts a thread with all signals blocked, and unblocks them when it runs.
        for (int i = 0; i < 2000 && has(mask, SIGSEGV); ++i) {
            usleep(1000);
            mask = blocked(id);
        }
        for (const int signal : {SIGTERM, SIGINT, SIGCHLD, SIGUSR1}) EXPECT_TRUE(has(mask, signal)) << name << signal;
        for (const int signal : {SIGSEGV, SIGBUS}) EXPECT_FALSE(has(mask, signal)) << name << signal;
    }
    EXPECT_GE(ours, 5u);
}

}  // namespace
}  // namespace rove::tent
