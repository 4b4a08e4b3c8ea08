// SPDX-License-Identifier: Apache-2.0
#include "base/files.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace rove::datapath {
namespace {

class FilesTest : public testing::Test {
  protected:
    void SetUp() override { ASSERT_NE(mkdtemp(folder_.data()), nullptr); }
    void TearDown() override { std::filesystem::remove_all(folder_); }

    std::string folder_ = testing::TempDir() + "rove-files-XXXXXX";
};

TEST_F(FilesTest, ReadsWhatTheKernelAndOthersWrite) {
    const std::string text = "first\nsecond" + std::string(10'000, 'x');
    std::ofstream(folder_ + "/file") << text;
    EXPECT_EQ(content_of(folder_ + "/file"), text);
    EXPECT_EQ(first_line_of(folder_ + "/file"), "first");
    EXPECT_FALSE(first_line_of("/proc/self/comm").empty());  // a file that reports a size of 0
    EXPECT_FALSE(content_of(folder_ + "/absent"));
    EXPECT_EQ(errno, ENOENT);
    EXPECT_FALSE(content_of(folder_));
    EXPECT_EQ(errno, EISDIR);
    EXPECT_EQ(first_line_of(folder_ + "/absent"), "");
}

TEST_F(FilesTest, ListsFoldersAndLinks) {
    make_folders(folder_ + "/a/b");
    make_folders(folder_ + "/a/c/d");
    ASSERT_EQ(symlink("b", (folder_ + "/a/link").c_str()), 0);
    auto names = names_in(folder_ + "/a");
    std::sort(names.begin(), names.end());
    EXPECT_EQ(names, (std::vector<std::string>{"b", "c", "link"}));
    EXPECT_TRUE(names_in(folder_ + "/absent").empty());
    EXPECT_EQ(target_of(folder_ + "/a/link"), "b");
    EXPECT_EQ(target_of(folder_ + "/a/b"), "");
    EXPECT_TRUE(is_directory(folder_ + "/a/link"));
    EXPECT_FALSE(is_directory(folder_ + "/absent"));
}

TEST_F(FilesTest, RemovesNothingBehindALink) {
    make_folders(folder_ + "/kept");
    make_folders(folder_ + "/gone/inner");
    std::ofstream(folder_ + "/kept/file") << "x";
    std::ofstream(folder_ + "/gone/inner/file") << "x";
    ASSERT_EQ(symlink((folder_ + "/kept").c_str(), (folder_ + "/gone/link").c_str()), 0);
    remove_all(folder_ + "/gone");
    EXPECT_EQ(names_in(folder_), std::vector<std::string>{"kept"});
    EXPECT_EQ(names_in(folder_ + "/kept"), std::vector<std::string>{"file"});
    remove_all(folder_ + "/kept/file");
    EXPECT_TRUE(names_in(folder_ + "/kept").empty());
    remove_all(folder_ + "/absent");
}

}  // namespace
}  // namespace rove::datapath
