// SPDX-License-Identifier: Apache-2.0
// Tests a memif connection with DPDK's driver as the peer, in both roles. dpdk-testpmd returns the frames that it
// receives.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "port/memif/memif_connection.h"

namespace rove::datapath {
namespace {

using Role = MemifConnection::Role;
using State = MemifConnection::State;

bool within_seconds(int seconds, const std::function<bool()>& condition) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(seconds);
    while (!condition()) {
        if (std::chrono::steady_clock::now() > end) return false;
        usleep(1000);
    }
    return true;
}

// The process with DPDK's driver, in the role `role`.
class Testpmd {
  public:
    explicit Testpmd(const std::string& role) {
        std::string pattern = "/tmp/rove-memif-dpdk-XXXXXX";
        folder_ = mkdtemp(pattern.data());
        std::vector<std::string> arguments = {
            "dpdk-testpmd",
            "--lcores=(0,1)@(0-1)",
            "--no-huge",
            "-m64",
            "--no-shconf",
            "--no-pci",
            "--no-telemetry",
            "--vdev=net_memif0,role=" + role + ",socket=" + socket_path() + ",socket-abstract=no,rsize=7,bsize=2048",
            "--",
            "--nb-cores=1",
            "--disable-link-check",
            "--no-flush-rx",
            "--total-num-mbufs=2048",
            "--auto-start"};
        std::vector<char*> argv;
        for (std::string& argument : arguments) argv.push_back(argument.data());
        argv.push_back(nullptr);
        // testpmd ends when its standard input is closed.
        if (pipe2(input_.data(), O_CLOEXEC) != 0) std::abort();
        pid_ = fork();
        if (pid_ != 0) return;
        dup2(input_[0], STDIN_FILENO);
        const int output = open((folder_ + "/output").c_str(), O_WRONLY | O_CREAT, 0600);
        dup2(output, STDOUT_FILENO);
        dup2(output, STDERR_FILENO);
        execvp(argv[0], argv.data());
        _exit(127);
    }
    ~Testpmd() {
        close(input_[0]);
        close(input_[1]);
        if (!within_seconds(10, [&] { return waitpid(pid_, nullptr, WNOHANG) == pid_; })) {
            kill(pid_, SIGKILL);
            waitpid(pid_, nullptr, 0);
        }
        std::filesystem::remove_all(folder_);
    }
    Testpmd(const Testpmd&) = delete;
    Testpmd& operator=(const Testpmd&) = delete;

    std::string socket_path() const { return folder_ + "/socket"; }
    std::string output() const {
        std::ostringstream text;
        text << std::ifstream(folder_ + "/output").rdbuf();
        return text.str();
    }

  private:
    std::string folder_;
    std::array<int, 2> input_;
    pid_t pid_;
};

sockaddr_un name_of(const std::string& path) {
    sockaddr_un name{};
    name.sun_family = AF_UNIX;
    path.copy(name.sun_path, sizeof(name.sun_path) - 1);
    return name;
}

FileDescriptor make_socket() {
    return FileDescriptor(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
}

constexpr std::array<uint8_t, 64> kFrame = {0x02, 1, 2, 3, 4, 5, 0x02, 6, 7, 8, 9, 10, 0x88, 0xb5, 'r', 'o', 'v', 'e'};

uint8_t* buffer_of(const MemifConnection& connection, const MemifDescriptor& descriptor) {
    const auto& region = connection.regions().at(descriptor.region);
    EXPECT_LE(descriptor.offset + uint64_t{descriptor.length}, region.bytes);
    return region.address + descriptor.offset;
}

State outcome(MemifConnection& connection) {
    within_seconds(10, [&] { return connection.advance() != State::kConnecting; });
    return connection.advance();
}

void expect_frame(const MemifConnection& connection, const MemifDescriptor& descriptor) {
    EXPECT_EQ(descriptor.length, kFrame.size());
    EXPECT_EQ(std::memcmp(buffer_of(connection, descriptor), kFrame.data(), kFrame.size()), 0);
}

TEST(MemifDpdk, ItsServerConnectsAndReturnsAFrame) {
    const Testpmd peer("server");
    const sockaddr_un name = name_of(peer.socket_path());
    std::unique_ptr<MemifConnection> tried;
    // Its socket exists before the port is started, and refuses connections until then.
    ASSERT_TRUE(
        within_seconds(20,
                       [&] {
                           FileDescriptor socket = make_socket();
                           if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&name), sizeof(name)) != 0)
                               return false;
                           tried = std::make_unique<MemifConnection>(
                               socket.release(),
                               MemifConnection::Settings{.role = Role::kClient, .log2_slots = 6, .buffer_bytes = 2048});
                           return outcome(*tried) == State::kConnected;
                       }))
        << peer.output() << (tried ? tried->why() : "");
    const MemifConnection& connection = *tried;
    EXPECT_EQ(connection.peer_name().find("DPDK"), 0u) << connection.peer_name();
    MemifRing &out = *connection.to_server().ring, &in = *connection.to_client().ring;
    EXPECT_EQ(in.head, 64) << "it has our buffers";
    std::memcpy(connection.to_server().buffers, kFrame.data(), kFrame.size());
    out.descriptors[0].length = kFrame.size();
    __atomic_store_n(&out.head, 1, __ATOMIC_RELEASE);
    EXPECT_TRUE(within_seconds(10, [&] { return __atomic_load_n(&in.tail, __ATOMIC_ACQUIRE) == 1; })) << peer.output();
    expect_frame(connection, in.descriptors[0]);
}

TEST(MemifDpdk, ItsClientConnectsAndReturnsAFrame) {
    const Testpmd peer("client");
    const FileDescriptor listener = make_socket();
    const sockaddr_un name = name_of(peer.socket_path());
    ASSERT_EQ(bind(listener.get(), reinterpret_cast<const sockaddr*>(&name), sizeof(name)), 0);
    ASSERT_EQ(listen(listener.get(), 1), 0);
    pollfd readable{listener.get(), POLLIN, 0};
    ASSERT_EQ(poll(&readable, 1, 20000), 1) << peer.output();
    MemifConnection connection(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC), {.role = Role::kServer});
    ASSERT_EQ(outcome(connection), State::kConnected) << connection.why() << peer.output();
    EXPECT_EQ(connection.peer_name().find("DPDK"), 0u) << connection.peer_name();
    EXPECT_EQ(connection.to_server().log2_slots, 7);
    MemifRing &out = *connection.to_client().ring, &in = *connection.to_server().ring;
    EXPECT_TRUE(within_seconds(10, [&] { return __atomic_load_n(&out.head, __ATOMIC_ACQUIRE) != 0; }))
        << "it offers buffers";
    std::memcpy(buffer_of(connection, out.descriptors[0]), kFrame.data(), kFrame.size());
    out.descriptors[0].length = kFrame.size();
    __atomic_store_n(&out.tail, 1, __ATOMIC_RELEASE);
    EXPECT_TRUE(within_seconds(10, [&] { return __atomic_load_n(&in.head, __ATOMIC_ACQUIRE) == 1; })) << peer.output();
    expect_frame(connection, in.descriptors[0]);
}

}  // namespace
}  // namespace rove::datapath
