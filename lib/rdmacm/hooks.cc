// SPDX-License-Identifier: Apache-2.0
// Hooks of the C library's functions through which programs use an open rdma_cm channel (files.cc opens it). They exist
// only in the preloaded library.
//
// They see every descriptor of the program, so for other descriptors than channels they cost one load and the real
// call. They keep the properties of the originals: they are cancellation points, work in signal handlers, and leave
// errno alone.
#undef _FILE_OFFSET_BITS  // fcntl() and fcntl64() are two symbols
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdarg>

#include "base/libc.h"
#include "base/next_symbol.h"
#include "rdmacm/server.h"
#include "verbs/process_provider.h"

namespace {

using namespace rove::verbs;

// The functions are looked up at start, because a signal handler must not do it, and neither must a child of vfork()
// whose parent has other threads.
__attribute__((constructor)) void look_up() {
    ROVE_NEXT(write);
    ROVE_NEXT(close);
    ROVE_NEXT(close_range);
    ROVE_NEXT(dup);
    ROVE_NEXT(dup2);
    ROVE_NEXT(dup3);
    ROVE_NEXT(fcntl);
    ROVE_NEXT(fcntl64);
}

// A child between vfork() and exec() shares its parent's memory, but closes its own descriptors. It does not count as
// owner.
bool is_ours(int fd) {
    return ucma::is_channel(fd) && !provider().is_forked_child() && ucma::is_owner();
}

int duplicated(int fd, int copy) {
    if (copy >= 0 && copy != fd && is_ours(fd)) ucma::duplicated(fd, copy);
    return copy;
}

// dup2() and dup3() close the descriptor that had the number.
void give_up(int fd, int copy) {
    if (copy != fd && is_ours(copy) && rove::libc::fcntl(fd, F_GETFD, nullptr) >= 0) ucma::close_channel(copy);
}

// Returns true if a channel's number still is a channel in a forked child. The child may have closed it, and opened
// another file with that number. Channels, like other anonymous descriptors, have no file type.
bool is_still_channel(int fd) {
    struct stat file;  // fstat() is hooked in files.cc
    return fstatat(fd, "", &file, AT_EMPTY_PATH) == 0 && (file.st_mode & S_IFMT) == 0;
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
    if (!is_ours(fd)) [[likely]]
        return ROVE_NEXT(close)(fd);
    ucma::close_channel(fd);
    return 0;
}

int close_range(unsigned first, unsigned last, int flags) {
    const bool closes = (flags & CLOSE_RANGE_CLOEXEC) == 0;
    for (unsigned fd = first; closes && fd <= last && fd < ucma::kMaxFds; ++fd)
        if (is_ours(static_cast<int>(fd))) ucma::close_channel(static_cast<int>(fd));
    return ROVE_NEXT(close_range)(first, last, flags);
}

int dup(int fd) {
    return duplicated(fd, ROVE_NEXT(dup)(fd));
}

int dup2(int fd, int copy) {
    give_up(fd, copy);
    return duplicated(fd, ROVE_NEXT(dup2)(fd, copy));
}

int dup3(int fd, int copy, int flags) {
    give_up(fd, copy);
    return duplicated(fd, ROVE_NEXT(dup3)(fd, copy, flags));
}

// The argument is passed on like a pointer, whatever its type.
#define ROVE_FCNTL(name)                                                                           \
    int name(int fd, int command, ...) {                                                           \
        va_list rest;                                                                              \
        va_start(rest, command);                                                                   \
        void* const argument = va_arg(rest, void*);                                                \
        va_end(rest);                                                                              \
        const int result = ROVE_NEXT(name)(fd, command, argument);                                 \
        return command == F_DUPFD || command == F_DUPFD_CLOEXEC ? duplicated(fd, result) : result; \
    }
ROVE_FCNTL(fcntl)
ROVE_FCNTL(fcntl64)

}  // extern "C"
