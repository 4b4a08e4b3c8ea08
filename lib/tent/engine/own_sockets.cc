// SPDX-License-Identifier: Apache-2.0
// Implements own_sockets.h. Closing a socket needs no note: a later socket with the same number has a different inode.
#include "tent/engine/own_sockets.h"

#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace rove::tent {

namespace {

// Indexed by descriptor; 0: none was noted. Higher descriptors stay open.
std::array<std::atomic<uint64_t>, 65536> inodes{};

// Returns 0 if the descriptor is not an open socket.
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
