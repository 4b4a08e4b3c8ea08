// SPDX-License-Identifier: Apache-2.0
// How rove reaches the C library. A program may preload libraries that define socket(), epoll_create1() or close(), as
// rdma-core's librspreload does, and such a library may hold a lock while it calls rove. So no call that rove or the
// DPDK inside of it makes may go by these global names.
//
// The linker leads every reference to a name NAME for which libc.cc or libc_files.cc define __wrap_NAME() to that
// function (--wrap; dpdk_archives.py reads the names there). It makes the system call itself, or calls libc's own
// function. The sources call the names as usual. Two things follow for every thread of the program that is in rove:
// 1. None of these calls is a cancellation point. Only blocking_read() and blocking_ppoll() are.
// 2. Neither rove's own hooks of files (lib/preload) nor those of other libraries see them.
//
// Under sanitizers there is no --wrap: their interceptors have to see the calls. tests/system/test_libc.py has the
// names that librove-verbs.so may still refer to.
#pragma once

#include <poll.h>
#include <pthread.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <time.h>

#include <cstddef>

namespace rove::libc {

// The system calls of these names, for functions that do more in their place (eal.cc, hooks of lib/preload). -1
// and errno if they fail.
int nanosleep(const timespec* duration, timespec* left);
int setsockopt(int file, int level, int name, const void* value, socklen_t bytes);
int ioctl(int file, unsigned long request, void* argument);
int fcntl(int file, int command, void* argument);

// read() and ppoll() that are cancellation points.
ssize_t blocking_read(int file, void* to, size_t bytes);
int blocking_ppoll(pollfd* files, nfds_t count, const timespec* timeout, const sigset_t* mask);

// Returns true if the process may read these bytes, as the kernel finds: hooks ask before they look at what a program
// has given, whose bad pointers are the kernel's to refuse. Costs one short system call for each page. Leaves errno
// alone.
bool can_read(const void* at, size_t bytes);

// While there is one, its thread is not cancelled: for calls that may wait by a condition or for a thread, which are
// cancellation points too.
class NoCancellation {
  public:
    NoCancellation() { pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before_); }
    ~NoCancellation() { pthread_setcancelstate(before_, nullptr); }
    NoCancellation(const NoCancellation&) = delete;
    NoCancellation& operator=(const NoCancellation&) = delete;

  private:
    int before_;
};

// The address of `name` in the C library itself, of its default version. Takes no lock of the dynamic loader's that is
// held while constructors run. Ends the process if there is none.
void* find(const char* name);

}  // namespace rove::libc
