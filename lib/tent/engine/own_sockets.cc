// SPDX-License-Identifier: Apache-2.0
// See own_sockets.h. Nobody has to say that a socket was closed: another one of the same number has another inode.
#include "tent/engine/own_sockets.h"

#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace rove::tent {

namespace {

std::array<std::atomic<uint64_t>, 65536> inodes{};  // by descriptor; 0: none was noted. Higher ones stay open.

// 0: it is not open.
uint64_t inode(int fd) {
    struct stat status {};
    return fstat(fd, &status) == 0 && S_ISSOCK(status.st_mode) ? status.st_ino : 0;
}

}  // namespace

int note_socket(int fd) {
    if (fd >= 0 && static_cast<size_t>(fd) < inodes.size()) inodes[static_cast<size_t>(fd)].store(inode(fd));
    return fd;
}

void close_noted_sockets() {
    for (size_t fd = 0; fd < inodes.size(); ++fd) {
        const uint64_t noted = inodes[fd].exchange(0);
        if (noted != 0 && noted == inode(static_cast<int>(fd))) close(static_cast<int>(fd));
    }
}

}  // namespace rove::tent
