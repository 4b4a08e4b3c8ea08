// SPDX-License-Identifier: Apache-2.0
// rove's access to the C library. A program may preload libraries that define socket(), epoll_create1() or close(), as
// rdma-core's librspreload does, and such a library may hold a lock while it calls rove. Therefore neither rove nor the
// DPDK inside it may call these functions by their global names.
//
// For every name NAME for which libc.cc or libc_files.cc defines __wrap_NAME(), the linker resolves all references to
// that function (--wrap; dpdk_archives.py reads the names there). The function makes the system call itself or calls
// libc's own function. The sources call the names as usual. This has two consequences for every thread of the program
// that runs code of rove:
// 1. None of these calls is a cancellation point. Only blocking_read() and blocking_ppoll() are.
// 2. File hooks, whether rove's own (lib/preload) or another library's, do not see the calls.
//
// Builds with sanitizers have no --wrap, because the sanitizers' interceptors have to see the calls.
// tests/system/test_libc.py lists the names that librove-verbs.so may still refer to.
#pragma once

#include <poll.h>
#include <pthread.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <time.h>

#include <cstddef>

namespace rove::libc {

// Make the system calls of these names, for functions that replace them and do more (eal.cc, the hooks of lib/preload).
// They return -1 and set errno if the call fails.
int nanosleep(const timespec* duration, timespec* left);
int setsockopt(int file, int level, int name, const void* value, socklen_t bytes);
int ioctl(int file, unsigned long request, void* argument);
int fcntl(int file, int command, void* argument);

// Versions of read() and ppoll() that are cancellation points.
ssize_t blocking_read(int file, void* to, size_t bytes);
int blocking_ppoll(pollfd* files, nfds_t count, const timespec* timeout, const sigset_t* mask);

// Returns true if the process may read these bytes according to the kernel. Hooks call it before they read a program's
// arguments, because reporting a bad pointer is the kernel's task. Costs one short system call per page and leaves
// errno unchanged.
bool can_read(const void* at, size_t bytes);

// Keeps its thread from being cancelled during its lifetime. It is for calls that may wait for a condition variable or
// a thread, because those are cancellation points too.
class NoCancellation {
  public:
    NoCancellation() { pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before_); }
    ~NoCancellation() { pthread_setcancelstate(before_, nullptr); }
    NoCancellation(const NoCancellation&) = delete;
    NoCancellation& operator=(const NoCancellation&) = delete;

  private:
    int before_;
};

// Returns the address of the default version of `name` in the C library itself. Takes no lock of the dynamic loader
// that is held while constructors run. Ends the process if there is no such symbol.
void* find(const char* name);

}  // namespace rove::libc
