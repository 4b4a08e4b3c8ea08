// SPDX-License-Identifier: Apache-2.0
// The calls of libc and librdmacm by which rdma_cm's kernel interface is reached. Only in the library that is
// preloaded.
//
// write() and close() see every descriptor of the program, so for all but channels they are one load and the real call.
// They stay what they are: cancellation points, usable in a signal's handler, errno untouched.
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>

#include "verbs/preload/next.h"
#include "verbs/preload/provider.h"
#include "verbs/preload/ucma.h"

extern "C" {
struct rdma_event_channel {  // of <rdma/rdma_cma.h>
    int fd;
};
rdma_event_channel* rdma_create_event_channel();
}

namespace {

using namespace rove::verbs;

// A signal's handler must not look them up.
__attribute__((constructor)) void look_up() {
    ROVE_NEXT(write);
    ROVE_NEXT(close);
}

// Whether what a forked child finds by a channel's number still is one: the child may have closed it, and whatever it
// opened then has the number. Channels and their like have no type of file.
bool is_still_channel(int fd) {
    struct stat file;
    return fstat(fd, &file) == 0 && (file.st_mode & S_IFMT) == 0;
}

}  // namespace

extern "C" {

ssize_t write(int fd, const void* data, size_t bytes) {
    if (!ucma::is_channel(fd)) [[likely]] {
        const ssize_t written = ROVE_NEXT(write)(fd, data, bytes);
        if (written < 0 && errno == EBADF) [[unlikely]]
            ucma::end_with_process(data, bytes);
        return written;
    }
    if (provider().is_forked_child() && !is_still_channel(fd)) return ROVE_NEXT(write)(fd, data, bytes);
    return ucma::command(fd, data, bytes);
}

int close(int fd) {
    if (!ucma::is_channel(fd) || provider().is_forked_child()) [[likely]]
        return ROVE_NEXT(close)(fd);
    ucma::close_channel(fd);
    return 0;
}

// librdmacm's own opens /dev/infiniband/rdma_cm. It stays what programs get that have no rove devices.
rdma_event_channel* rdma_create_event_channel() {
    if (provider().devices().empty()) {
        const auto real = ROVE_NEXT(rdma_create_event_channel);
        if (real != nullptr) return real();
        errno = ENODEV;
        return nullptr;
    }
    auto* channel = static_cast<rdma_event_channel*>(std::malloc(sizeof(rdma_event_channel)));
    if (channel == nullptr) return nullptr;
    channel->fd = ucma::open_channel();
    if (channel->fd >= 0) return channel;
    const int error = errno;
    std::free(channel);
    errno = error;
    return nullptr;
}

}  // extern "C"
