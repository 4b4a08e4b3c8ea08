// SPDX-License-Identifier: Apache-2.0
#include "base/dpdk_files.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstddef>

// A function of libxdp, which is linked only where DPDK has a driver that needs it.
extern "C" [[gnu::weak]] int __real_xsk_socket__fd(const void* socket);

namespace rove::libc {

namespace {

// The inode of each descriptor that DPDK has open, and 0 for all others. There is no lock because a process may fork,
// or close a file in a signal handler, at any moment. A descriptor that is too large for the array stays open in a
// forked child until exec().
constexpr size_t kMaxFiles = 1 << 16;
std::array<std::atomic<ino_t>, kMaxFiles> inodes{};

void close_all_in_child() {
    for (size_t file = 0; file < kMaxFiles; ++file) {
        const ino_t inode = inodes[file].load(std::memory_order_relaxed);
        if (inode == 0) continue;
        struct stat status;
        // The program may have closed the file itself and opened another one with this number.
        if (fstat(static_cast<int>(file), &status) == 0 && status.st_ino == inode) close(static_cast<int>(file));
        inodes[file].store(0, std::memory_order_relaxed);
    }
}

__attribute__((constructor)) void watch_forks() {
    pthread_atfork(nullptr, nullptr, close_all_in_child);
}

}  // namespace

int record_file(int file) {
    struct stat status;
    if (file >= 0 && static_cast<size_t>(file) < kMaxFiles && fstat(file, &status) == 0)
        inodes[static_cast<size_t>(file)].store(status.st_ino, std::memory_order_relaxed);
    return file;
}

void forget_file(int file) {
    if (file >= 0 && static_cast<size_t>(file) < kMaxFiles)
        inodes[static_cast<size_t>(file)].store(0, std::memory_order_relaxed);
}

}  // namespace rove::libc

// libxdp, a shared library, creates the AF_XDP sockets of net_af_xdp. DPDK asks it for the descriptor of each new
// socket.
extern "C" __attribute__((visibility("hidden"))) int __wrap_xsk_socket__fd(const void* socket) {
    const int file = __real_xsk_socket__fd(socket);
    if (file >= 0) fcntl(file, F_SETFD, FD_CLOEXEC);
    return rove::libc::record_file(file);
}
