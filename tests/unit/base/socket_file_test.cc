// SPDX-License-Identifier: Apache-2.0
// Tests which existing files the socket of a port may replace.
#include "base/socket_file.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace rove::datapath {
namespace {

namespace fs = std::filesystem;

class SocketFileTest : public testing::Test {
  protected:
    SocketFileTest() {
        std::string name = fs::temp_directory_path() / "rove-socket-file-XXXXXX";
        folder_ = mkdtemp(name.data());
        path_ = folder_ / "name";
    }
    ~SocketFileTest() override { fs::remove_all(folder_); }

    // Creates a socket file at `path`. The process listens on it until the returned descriptor is closed.
    int listen_at(const fs::path& path) {
        sockaddr_un address{};
        address.sun_family = AF_UNIX;
        path.string().copy(address.sun_path, sizeof(address.sun_path) - 1);
        const int file = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
        EXPECT_EQ(bind(file, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
        EXPECT_EQ(listen(file, 1), 0);
        return file;
    }
    bool clear() { return SocketFile::clear(path_, SOCK_SEQPACKET); }
    bool is_there() { return fs::exists(fs::symlink_status(path_)); }

    fs::path folder_, path_;
};

TEST_F(SocketFileTest, ANameThatIsFreeIsFree) {
    EXPECT_TRUE(clear());
}

TEST_F(SocketFileTest, ASocketThatAKilledProcessLeftIsRemoved) {
    close(listen_at(path_));
    EXPECT_TRUE(clear());
    EXPECT_FALSE(is_there());
}

TEST_F(SocketFileTest, ASocketThatIsListenedAtStays) {
    const int file = listen_at(path_);
    EXPECT_TRUE(clear());
    EXPECT_TRUE(is_there());
    close(file);
}

TEST_F(SocketFileTest, AnythingElseStays) {
    std::ofstream(path_) << "precious";
    EXPECT_FALSE(clear());
    EXPECT_EQ(fs::file_size(path_), 8u);
    fs::remove(path_);
    fs::create_directory(path_);
    EXPECT_FALSE(clear());
    EXPECT_TRUE(is_there());
}

TEST_F(SocketFileTest, ALinkIsNotFollowed) {
    const fs::path target = folder_ / "target";
    close(listen_at(target));
    fs::create_symlink(target, path_);
    EXPECT_FALSE(clear());
    EXPECT_TRUE(is_there());
    EXPECT_TRUE(fs::exists(target));
}

TEST_F(SocketFileTest, AnotherUsersSocketStays) {
    if (geteuid() != 0) GTEST_SKIP() << "needs two users";
    close(listen_at(path_));
    ASSERT_EQ(chown(path_.c_str(), 65534, 65534), 0);
    EXPECT_FALSE(clear());
    EXPECT_TRUE(is_there());
}

TEST_F(SocketFileTest, OnlyTheFileThatWasSeenIsRemoved) {
    close(listen_at(path_));
    const auto seen = SocketFile::at(path_);
    ASSERT_TRUE(seen);
    fs::rename(path_, folder_ / "old");
    close(listen_at(path_));
    seen->remove();
    EXPECT_TRUE(is_there());
    fs::rename(folder_ / "old", path_);
    seen->remove();
    EXPECT_FALSE(is_there());
}

}  // namespace
}  // namespace rove::datapath
