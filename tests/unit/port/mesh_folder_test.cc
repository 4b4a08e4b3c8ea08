// SPDX-License-Identifier: Apache-2.0
// Tests members of a mesh that join, leave and are killed, and folders that cannot be trusted.
#include "port/mesh/mesh_folder.h"

#include <dirent.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace rove::datapath {
namespace {

using Addresses = std::vector<std::string>;
namespace fs = std::filesystem;

mode_t mode_of(const std::string& path) {
    struct stat status {};
    EXPECT_EQ(lstat(path.c_str(), &status), 0) << path;
    return status.st_mode & 07777;
}

size_t open_files() {
    return static_cast<size_t>(std::distance(fs::directory_iterator("/proc/self/fd"), fs::directory_iterator()));
}

class MeshFolderTest : public testing::Test {
  protected:
    MeshFolderTest() {
        std::string pattern = "/dev/shm/rove-mesh-test-XXXXXX";
        path_ = mkdtemp(pattern.data());
    }
    ~MeshFolderTest() override { fs::remove_all(path_); }

    MeshFolder open(const std::string& path) {
        std::string error;
        auto folder = MeshFolder::open(path, &error);
        EXPECT_TRUE(folder) << error;
        return std::move(*folder);
    }
    MeshFolder open() { return open(path_); }
    // Returns the reason for which the folder is refused.
    static std::string refusal(const std::string& path) {
        std::string error;
        EXPECT_FALSE(MeshFolder::open(path, &error)) << path;
        EXPECT_EQ(error.find('\n'), std::string::npos);
        return error;
    }
    // Returns the reason for which the claim is refused, or "".
    static std::string claim(MeshFolder& folder, const Addresses& addresses) {
        std::string error;
        const bool claimed = folder.claim(addresses, &error);
        EXPECT_EQ(claimed, error.empty());
        return error;
    }
    size_t files() const {
        return static_cast<size_t>(std::distance(fs::directory_iterator(path_), fs::directory_iterator()));
    }

    std::string path_;
};

#define EXPECT_HAS(text, part) EXPECT_NE((text).find(part), std::string::npos) << (text)

// A child process. It runs `body`, sends us a byte when it is ready, and stays until it is killed.
class Child {
  public:
    explicit Child(const std::function<bool()>& body) {
        std::array<int, 2> ready;
        if (pipe2(ready.data(), O_CLOEXEC) != 0) std::abort();
        pid_ = fork();
        if (pid_ == 0) {
            const char good = body();
            if (write(ready[1], &good, 1) != 1) _exit(1);
            for (;;) pause();
        }
        char good = 0;
        is_good_ = read(ready[0], &good, 1) == 1 && good != 0;
        close(ready[0]);
        close(ready[1]);
    }
    ~Child() { kill(); }
    void kill() {
        if (pid_ <= 0) return;
        ::kill(pid_, SIGKILL);
        waitpid(pid_, nullptr, 0);
        pid_ = -1;
    }
    pid_t pid() const { return pid_; }
    bool is_good() const { return is_good_; }

  private:
    pid_t pid_;
    bool is_good_;
};

TEST_F(MeshFolderTest, MembersHaveTheLowestAddressesAndFindEachOther) {
    const size_t before = open_files();
    {
        MeshFolder first = open(), second = open();
        EXPECT_EQ(claim(first, {}), "");
        EXPECT_EQ(claim(second, {}), "");
        EXPECT_EQ(first.addresses(), (Addresses{"10.77.0.1", "fd77::1"}));
        EXPECT_EQ(second.addresses(), (Addresses{"10.77.0.2", "fd77::2"}));
        EXPECT_EQ(first.name(), "10.77.0.1");
        for (const std::string& address : second.addresses()) EXPECT_EQ(first.member(address), "10.77.0.2");
        EXPECT_EQ(first.member("fd77::1"), "10.77.0.1");
        EXPECT_EQ(first.member("10.77.0.3"), std::nullopt);
        EXPECT_EQ(first.members(), Addresses{"10.77.0.2"});
        EXPECT_EQ(second.members(), Addresses{"10.77.0.1"});

        const FileDescriptor mine(first.connect("10.77.0.2"));
        ASSERT_TRUE(mine.is_open());
        EXPECT_EQ(fcntl(mine.get(), F_GETFL) & O_NONBLOCK, O_NONBLOCK);
        const FileDescriptor theirs(accept4(second.listener(), nullptr, nullptr, SOCK_CLOEXEC));
        ASSERT_TRUE(theirs.is_open());
        EXPECT_EQ(send(mine.get(), "abc", 3, 0), 3);
        EXPECT_EQ(send(mine.get(), "de", 2, 0), 2);
        std::array<char, 8> got;
        EXPECT_EQ(recv(theirs.get(), got.data(), got.size(), 0), 3) << "messages";
        EXPECT_EQ(accept4(second.listener(), nullptr, nullptr, SOCK_CLOEXEC), -1);
        EXPECT_EQ(errno, EAGAIN);

        first.leave();
        EXPECT_EQ(second.members(), Addresses{});
        EXPECT_EQ(second.member("fd77::1"), std::nullopt);
        EXPECT_EQ(second.connect("10.77.0.1"), -1);
        EXPECT_EQ(errno, ENOENT);
        EXPECT_EQ(files(), 4u) << "the socket, the link and two locks";
        MeshFolder third = open();
        EXPECT_EQ(claim(third, {}), "");
        EXPECT_EQ(third.name(), "10.77.0.1");
    }
    EXPECT_EQ(files(), 0u);
    EXPECT_EQ(open_files(), before);
}

TEST_F(MeshFolderTest, GivenAddressesAreClaimedAllOrNone) {
    MeshFolder first = open(), second = open(), third = open();
    EXPECT_EQ(claim(first, {"192.0.2.7", "2001:db8::7", "10.77.0.1"}), "");
    EXPECT_EQ(first.name(), "192.0.2.7");
    const std::string error = claim(second, {"192.0.2.8", "2001:db8::7"});
    EXPECT_HAS(error, "address 2001:db8::7 is in use by process " + std::to_string(getpid()) + " (");
    EXPECT_EQ(second.members(), Addresses{"192.0.2.7"});
    EXPECT_EQ(files(), 6u);
    EXPECT_EQ(claim(second, {"192.0.2.8", "2001:db8::8"}), "") << "nothing was held";
    EXPECT_EQ(claim(third, {}), "");
    EXPECT_EQ(third.addresses(), (Addresses{"10.77.0.2", "fd77::2"})) << "10.77.0.1 is another's, so fd77::1 is free";
    EXPECT_EQ(third.member("10.77.0.1"), "192.0.2.7");
}

TEST_F(MeshFolderTest, TheBridgeIsAMemberWithoutAddressesAndThereIsOne) {
    MeshFolder member = open(), bridge = open(), second = open();
    std::string error;
    EXPECT_EQ(claim(member, {"192.0.2.7", "2001:db8::7"}), "");
    EXPECT_FALSE(member.has_bridge());
    EXPECT_EQ(member.bridge_mtu(), std::nullopt);
    ASSERT_TRUE(bridge.claim_bridge(1024, &error)) << error;
    EXPECT_TRUE(member.has_bridge());
    EXPECT_EQ(member.bridge_mtu(), 1024u);
    EXPECT_EQ(member.members(), Addresses{"bridge"});
    EXPECT_EQ(member.member("bridge"), std::nullopt) << "no address";
    EXPECT_TRUE(FileDescriptor(member.connect("bridge")).is_open());
    EXPECT_EQ(bridge.members(), Addresses{"192.0.2.7"});
    Addresses addresses = bridge.addresses_of("192.0.2.7");
    std::sort(addresses.begin(), addresses.end());
    EXPECT_EQ(addresses, (Addresses{"192.0.2.7", "2001:db8::7"}));
    EXPECT_EQ(bridge.addresses_of("192.0.2.8"), Addresses{});

    EXPECT_FALSE(second.claim_bridge(4096, &error));
    EXPECT_HAS(error, "has a bridge already, process " + std::to_string(getpid()) + " (");
    EXPECT_EQ(error.find('\n'), std::string::npos);
    EXPECT_EQ(member.bridge_mtu(), 1024u);
    bridge.leave();
    EXPECT_FALSE(member.has_bridge());
    EXPECT_EQ(member.bridge_mtu(), std::nullopt);
    EXPECT_TRUE(second.claim_bridge(4096, &error)) << error;
    EXPECT_EQ(member.bridge_mtu(), 4096u);
    for (const char* const wrong : {"", "1 x", "1 x\n", "1 x\n5000\n", "1 x\n300\n", "1 x\nnone\n"}) {
        std::ofstream(path_ + "/bridge.lock") << wrong;
        EXPECT_EQ(member.bridge_mtu(), std::nullopt) << wrong;
    }
}

TEST_F(MeshFolderTest, WhatABridgeHasLeftThatWasKilledIsRemoved) {
    MeshFolder member = open();
    {
        Child child([&] {
            std::string error;
            static MeshFolder bridge = open();
            return bridge.claim_bridge(2048, &error);
        });
        ASSERT_TRUE(child.is_good());
        child.kill();
    }
    EXPECT_EQ(files(), 2u) << "its socket and its lock";
    EXPECT_FALSE(FileDescriptor(member.connect("bridge")).is_open());
    EXPECT_EQ(claim(member, {}), "");
    EXPECT_FALSE(member.has_bridge());
    EXPECT_EQ(files(), 4u);
}

TEST_F(MeshFolderTest, WhatIsNoAddressIsRefused) {
    MeshFolder folder = open();
    for (const char* const wrong :
         {"", "rove", "10.77.0.01", "::FFFF", "10.0.0.1/24", "../10.0.0.1", "fe80::1%eth0", "2001:db8:0::1"})
        EXPECT_HAS(claim(folder, {wrong}), "is not an address");
    EXPECT_HAS(claim(folder, {"10.0.0.1", "10.0.0.1"}), "twice");
    EXPECT_EQ(files(), 0u);
    EXPECT_EQ(folder.member("../x"), std::nullopt);
    EXPECT_EQ(folder.connect("../x"), -1);
    EXPECT_EQ(claim(folder, {"::ffff:10.0.0.1"}), "");
}

TEST_F(MeshFolderTest, FiftyProcessesAtOnceHaveDistinctAddresses) {
    constexpr size_t kProcesses = 50;
    std::array<int, 2> start, names;
    ASSERT_EQ(pipe2(start.data(), O_CLOEXEC), 0);
    ASSERT_EQ(pipe2(names.data(), O_CLOEXEC), 0);
    std::vector<pid_t> children;
    for (size_t i = 0; i < kProcesses; ++i) {
        children.push_back(fork());
        if (children.back() != 0) continue;
        char go;
        close(start[1]);
        if (read(start[0], &go, 1) < 0) _exit(1);  // blocks until the parent closes the pipe
        std::string error;
        auto folder = MeshFolder::open(path_, &error);
        std::array<char, 64> line{};
        if (folder && folder->claim({}, &error)) folder->name().copy(line.data(), line.size());
        if (write(names[1], line.data(), line.size()) != ssize_t{line.size()}) _exit(1);
        for (;;) pause();
    }
    close(start[0]);
    close(start[1]);
    std::set<std::string> distinct;
    for (size_t i = 0; i < kProcesses; ++i) {
        std::array<char, 64> line{};
        ASSERT_EQ(read(names[0], line.data(), line.size()), ssize_t{line.size()});
        distinct.insert(line.data());
    }
    EXPECT_EQ(distinct.size(), kProcesses);
    EXPECT_TRUE(distinct.contains("10.77.0.1"));
    EXPECT_TRUE(distinct.contains("10.77.0.50")) << "none is left out";
    EXPECT_EQ(open().members().size(), kProcesses);
    for (const pid_t child : children) kill(child, SIGKILL), waitpid(child, nullptr, 0);
    close(names[0]);
    close(names[1]);
    MeshFolder next = open();
    EXPECT_EQ(claim(next, {}), "");
    EXPECT_EQ(next.name(), "10.77.0.1");
    EXPECT_EQ(next.members(), Addresses{}) << "what the killed have left is gone";
    EXPECT_EQ(files(), 4u);
}

TEST_F(MeshFolderTest, AKilledMembersAddressIsFreeAndItsSocketReplaced) {
    std::optional<MeshFolder> theirs;
    Child child([&] {
        theirs.emplace(open());
        return claim(*theirs, {"10.0.0.1", "fd00::1"}).empty();
    });
    ASSERT_TRUE(child.is_good());
    MeshFolder folder = open();
    const std::string error = claim(folder, {"fd00::1"});
    EXPECT_HAS(error, "process " + std::to_string(child.pid()) + " (");
    EXPECT_EQ(folder.member("fd00::1"), "10.0.0.1");
    child.kill();
    EXPECT_EQ(folder.members(), Addresses{"10.0.0.1"}) << "its socket is still there";
    EXPECT_EQ(folder.connect("10.0.0.1"), -1);
    EXPECT_EQ(errno, ECONNREFUSED);
    EXPECT_EQ(claim(folder, {"10.0.0.1"}), "");
    EXPECT_EQ(folder.member("fd00::1"), std::nullopt) << "the killed one's link does not lead to us";
    MeshFolder other = open();
    const FileDescriptor connected(other.connect("10.0.0.1"));
    EXPECT_TRUE(connected.is_open());
}

TEST_F(MeshFolderTest, AForkedChildNeitherKeepsNorRemovesWhatIsTheParents) {
    std::optional<MeshFolder> folder(open());
    EXPECT_EQ(claim(*folder, {"10.0.0.1"}), "");
    {
        Child child([&] {
            folder->after_fork_in_child();
            folder.reset();
            return true;
        });
        ASSERT_TRUE(child.is_good());
        MeshFolder other = open();
        EXPECT_HAS(claim(other, {"10.0.0.1"}), "is in use") << "still the parent's";
        EXPECT_EQ(other.members(), Addresses{"10.0.0.1"});
    }
    // This child does not know about the folder, and has inherited all descriptors. The parent can still leave.
    Child child([] { return true; });
    folder->leave();
    MeshFolder other = open();
    EXPECT_EQ(claim(other, {"10.0.0.1"}), "");
}

TEST_F(MeshFolderTest, LinksAndOtherFilesInTheWayAreNotFollowed) {
    const std::string victim = path_ + "/victim";
    std::ofstream(victim) << "precious";
    ASSERT_EQ(chmod(victim.c_str(), 0600), 0);
    fs::create_symlink("victim", path_ + "/10.77.0.1.lock");          // in place of a lock
    fs::create_hard_link(victim, path_ + "/10.77.0.2.lock");          // also in place of a lock
    ASSERT_EQ(mkfifo((path_ + "/10.77.0.3.lock").c_str(), 0600), 0);  // would block
    fs::create_directory(path_ + "/10.77.0.4.lock");
    fs::create_directory(path_ + "/10.77.0.5");           // in place of a socket
    fs::create_directory(path_ + "/fd77::6");             // in place of a symbolic link
    fs::create_symlink("victim", path_ + "/.10.77.0.7");  // in place of an unfinished socket
    fs::create_symlink("victim", path_ + "/10.77.0.7");
    fs::create_symlink("victim", path_ + "/fd77::7");
    MeshFolder folder = open();
    EXPECT_EQ(folder.member("fd77::7"), std::nullopt) << "leads to what is no member";
    EXPECT_EQ(folder.connect("10.77.0.7"), -1);
    EXPECT_EQ(claim(folder, {}), "");
    EXPECT_EQ(folder.name(), "10.77.0.7");
    EXPECT_EQ(folder.member("fd77::7"), "10.77.0.7");
    MeshFolder other = open();
    EXPECT_HAS(claim(other, {"10.77.0.1"}), "in use by another process");
    EXPECT_HAS(claim(other, {"10.77.0.5"}), "is not free");
    std::string text;
    std::getline(std::ifstream(victim), text);
    EXPECT_EQ(text, "precious");
    EXPECT_EQ(mode_of(victim), 0600u);
}

TEST_F(MeshFolderTest, FoldersWithLongNamesWork) {
    std::string path = path_;
    while (path.size() < 300) path += "/a-folder-with-a-rather-long-name";
    fs::create_directories(path);
    MeshFolder folder = open(path), other = open(path + "/");
    EXPECT_EQ(claim(folder, {}), "");
    const FileDescriptor socket(other.connect(folder.name()));
    EXPECT_TRUE(socket.is_open());
}

TEST_F(MeshFolderTest, AFolderThatIsNotThereIsMade) {
    MeshFolder folder = open(path_ + "/new");
    EXPECT_EQ(mode_of(path_ + "/new"), 0700u);
    EXPECT_EQ(claim(folder, {}), "");
    EXPECT_EQ(mode_of(path_ + "/new/10.77.0.1"), 0666u) << "other users may connect, if the folder lets them in";
    EXPECT_HAS(refusal(path_ + "/none/new"), "cannot be made");
    std::ofstream(path_ + "/file") << "";
    EXPECT_HAS(refusal(path_ + "/file"), "is not a directory");
    fs::create_directory_symlink(path_ + "/new", path_ + "/link");
    EXPECT_HAS(refusal(path_ + "/link"), "symbolic link");
    EXPECT_HAS(refusal(path_ + "/link/"), "symbolic link");
}

TEST_F(MeshFolderTest, WithoutAFolderItIsTheUsers) {
    ASSERT_EQ(setenv("XDG_RUNTIME_DIR", path_.c_str(), 1), 0);
    {
        const mode_t mask = umask(0);
        MeshFolder folder = open("");
        umask(mask);
        EXPECT_EQ(claim(folder, {}), "");
        EXPECT_EQ(mode_of(path_ + "/rove"), 0700u);
        EXPECT_EQ(mode_of(path_ + "/rove/10.77.0.1"), 0600u);
        EXPECT_EQ(mode_of(path_ + "/rove/10.77.0.1.lock"), 0600u);
    }
    for (const mode_t mode : {0720, 0702, 01777}) {
        ASSERT_EQ(chmod((path_ + "/rove").c_str(), mode), 0);
        EXPECT_HAS(refusal(""), "can be written to by others: chmod");
    }
    fs::remove_all(path_ + "/rove");
    fs::create_directory_symlink("/tmp", path_ + "/rove");
    EXPECT_HAS(refusal(""), "symbolic link");
    ASSERT_EQ(unsetenv("XDG_RUNTIME_DIR"), 0);
}

// Runs `body` in a child process with the user id `uid`. Needs root.
bool as_user(uid_t uid, const std::function<bool()>& body) {
    const pid_t child = fork();
    if (child == 0) _exit(setgid(uid) == 0 && setuid(uid) == 0 && body() && !testing::Test::HasFailure() ? 0 : 1);
    int status = 0;
    waitpid(child, &status, 0);
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

class MeshFolderOfUsersTest : public MeshFolderTest {
  protected:
    void SetUp() override {
        if (geteuid() != 0) GTEST_SKIP() << "only root can play other users";
    }
    static constexpr uid_t kAlice = 12345, kBob = 12346;
};

TEST_F(MeshFolderOfUsersTest, OthersFoldersAreRefusedUnlessNobodyCanRemoveWhatIsOurs) {
    const auto opens = [&](uid_t owner, mode_t mode) {
        EXPECT_EQ(chown(path_.c_str(), owner, 0), 0);
        EXPECT_EQ(chmod(path_.c_str(), mode), 0);
        return as_user(kAlice, [&] {
            std::string error;
            auto folder = MeshFolder::open(path_, &error);
            return folder && folder->claim({}, &error);
        });
    };
    EXPECT_TRUE(opens(kAlice, 0700));
    EXPECT_TRUE(opens(kAlice, 01777));
    EXPECT_TRUE(opens(0, 0777)) << "as of containers' volumes";
    EXPECT_TRUE(opens(0, 01777));
    EXPECT_TRUE(opens(kBob, 01777));
    EXPECT_FALSE(opens(kAlice, 0777));
    EXPECT_FALSE(opens(kAlice, 0720));
    EXPECT_FALSE(opens(kBob, 0777));
    EXPECT_FALSE(opens(kBob, 0755));
    EXPECT_FALSE(opens(0, 0755)) << "cannot be written to";
    EXPECT_EQ(files(), 0u);
    EXPECT_EQ(chown(path_.c_str(), kBob, 0), 0);
    EXPECT_EQ(chmod(path_.c_str(), 0755), 0);
    EXPECT_HAS(refusal(path_), "belongs to user 12346");
}

TEST_F(MeshFolderOfUsersTest, MembersOfSeveralUsersShareAFolderThatIsSticky) {
    EXPECT_EQ(chmod(path_.c_str(), 01777), 0);
    std::optional<MeshFolder> alices;
    Child alice([&] {
        alices.emplace(open());
        return setgid(kAlice) == 0 && setuid(kAlice) == 0 && claim(*alices, {}).empty();
    });
    ASSERT_TRUE(alice.is_good());
    const std::string pid = std::to_string(alice.pid());
    EXPECT_TRUE(as_user(kBob, [&] {
        MeshFolder folder = open();
        EXPECT_HAS(claim(folder, {"10.77.0.1"}), "process " + pid);
        EXPECT_EQ(claim(folder, {}), "");
        EXPECT_EQ(folder.name(), "10.77.0.2");
        EXPECT_TRUE(FileDescriptor(folder.connect("10.77.0.1")).is_open());
        return true;
    }));
    alice.kill();
    // Bob cannot remove the files that Alice left, and gets the next address.
    EXPECT_TRUE(as_user(kBob, [&] {
        MeshFolder folder = open();
        EXPECT_HAS(claim(folder, {"10.77.0.1"}), "is not free: remove '");
        EXPECT_EQ(claim(folder, {}), "");
        EXPECT_EQ(folder.name(), "10.77.0.2");
        return true;
    }));
    EXPECT_TRUE(as_user(kAlice, [&] {
        MeshFolder folder = open();
        EXPECT_EQ(claim(folder, {}), "");
        EXPECT_EQ(folder.name(), "10.77.0.1");
        return true;
    }));
    EXPECT_EQ(files(), 0u);
}

TEST_F(MeshFolderOfUsersTest, TheDefaultFolderOfAnotherIsRefused) {
    ASSERT_EQ(setenv("XDG_RUNTIME_DIR", path_.c_str(), 1), 0);
    ASSERT_EQ(mkdir((path_ + "/rove").c_str(), 0777), 0);
    ASSERT_EQ(chown((path_ + "/rove").c_str(), kBob, 0), 0);
    EXPECT_HAS(refusal(""), "belongs to user 12346: name another folder (mesh:DIR)");
    ASSERT_EQ(unsetenv("XDG_RUNTIME_DIR"), 0);
}

TEST_F(MeshFolderTest, AFullRangeIsSaid) {
    // An address whose lock cannot be opened counts as taken. A symbolic link has this effect without a process.
    const FileDescriptor directory(::open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    for (unsigned n = 1; n <= 65533; ++n) {
        const std::string address = "10.77." + std::to_string(n >> 8) + "." + std::to_string(n & 0xff) + ".lock";
        ASSERT_EQ(symlinkat("nowhere", directory.get(), address.c_str()), 0);
    }
    MeshFolder folder = open();
    EXPECT_HAS(claim(folder, {}), "all 65533 addresses are in use: name another folder (mesh:DIR)");
}

TEST_F(MeshFolderTest, WithoutFreeDescriptorsThatIsSaid) {
    MeshFolder folder = open();
    std::vector<FileDescriptor> all;
    rlimit before{};
    ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
    const rlimit few{64, before.rlim_max};
    ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
    while (all.empty() || all.back().is_open()) all.emplace_back(dup(0));
    const std::string error = claim(folder, {});
    ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
    EXPECT_HAS(error, "Too many open files");
    EXPECT_EQ(files(), 0u);
}

}  // namespace
}  // namespace rove::datapath
