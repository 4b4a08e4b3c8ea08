// SPDX-License-Identifier: Apache-2.0
// The functions of the C library that are one system call each. See libc.h.
#include "base/libc.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/select.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/uio.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstdarg>
#include <cstdint>
#include <type_traits>

#include "base/dpdk_files.h"

extern "C" {
// Functions that only the C library defines.
ssize_t __read(int file, void* to, size_t bytes);
[[noreturn]] void __chk_fail(void);
}

namespace rove::libc {

namespace {

constexpr size_t kSignalSetBytes = 8;  // the size in the kernel

template <class T>
long word(T value) {
    if constexpr (std::is_pointer_v<T>)
        return reinterpret_cast<long>(value);
    else
        return static_cast<long>(value);
}

// Makes the system call `number`. Returns -1 and sets errno if it fails.
long make(long number, long a = 0, long b = 0, long c = 0, long d = 0, long e = 0, long f = 0) {
    register long r10 asm("r10") = d;
    register long r8 asm("r8") = e;
    register long r9 asm("r9") = f;
    long result;
    asm volatile("syscall"
                 : "=a"(result)
                 : "0"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                 : "rcx", "r11", "memory");
    constexpr long kLastErrno = 4095;
    if (result < 0 && result >= -kLastErrno) [[unlikely]] {
        errno = static_cast<int>(-result);
        return -1;
    }
    return result;
}

template <class... Arguments>
long call(long number, Arguments... arguments) {
    return make(number, word(arguments)...);
}

// Makes the system call `number`, which returns a new descriptor. The arguments include `close_on_exec`. If the
// caller's `flags` lack it, the file is DPDK's and is recorded.
template <class... Arguments>
int make_file(int flags, int close_on_exec, long number, Arguments... arguments) {
    const int file = static_cast<int>(call(number, arguments...));
    return (flags & close_on_exec) != 0 ? file : record_file(file);
}

// Calls make(files, flags) to get a pair of descriptors.
template <class Make>
int make_files(int* files, int flags, int close_on_exec, Make make) {
    const int result = make(files, flags | close_on_exec);
    if (result == 0 && (flags & close_on_exec) == 0)
        for (int i = 0; i < 2; ++i) record_file(files[i]);
    return result;
}

int open_at(int folder, const char* path, int flags, mode_t mode) {
    return make_file(flags, O_CLOEXEC, SYS_openat, folder, path, flags | O_CLOEXEC, mode);
}

int status_at(int folder, const char* path, void* status, int flags) {
    return static_cast<int>(call(SYS_newfstatat, folder, path, status, flags));
}

}  // namespace

int nanosleep(const timespec* duration, timespec* left) {
    return static_cast<int>(call(SYS_nanosleep, duration, left));
}

int setsockopt(int file, int level, int name, const void* value, socklen_t bytes) {
    return static_cast<int>(call(SYS_setsockopt, file, level, name, value, bytes));
}

int ioctl(int file, unsigned long request, void* argument) {
    return static_cast<int>(call(SYS_ioctl, file, request, argument));
}

int fcntl(int file, int command, void* argument) {
    return static_cast<int>(call(SYS_fcntl, file, command, argument));
}

ssize_t blocking_read(int file, void* to, size_t bytes) {
    return __read(file, to, bytes);
}

int blocking_ppoll(pollfd* files, nfds_t count, const timespec* timeout, const sigset_t* mask) {
    static constinit decltype(&ppoll) libcs = nullptr;  // no lock, which a forked child could find held
    auto* found = __atomic_load_n(&libcs, __ATOMIC_RELAXED);
    if (found == nullptr) {
        found = reinterpret_cast<decltype(&ppoll)>(find("ppoll"));
        __atomic_store_n(&libcs, found, __ATOMIC_RELAXED);
    }
    return found(files, count, timeout, mask);
}

// Asks the kernel to change the signal mask in a way that does not exist. The kernel reads the signal set first and
// fails with EFAULT if it cannot; otherwise it rejects the operation, so nothing changes. A signal set is one word, and
// an aligned word lies on one page. The address 0 is excluded because it means that there is no set.
bool can_read(const void* at, size_t bytes) {
    constexpr uintptr_t kPage = 4096, kWord = 8;
    static_assert(kWord == kSignalSetBytes);
    constexpr int kNoWay = -1;
    const int before = errno;
    const auto begin = reinterpret_cast<uintptr_t>(at), end = begin + bytes;
    bool readable = end >= begin;
    for (uintptr_t word = begin / kWord * kWord; readable && word < end; word = (word / kPage + 1) * kPage)
        readable = word != 0 && (call(SYS_rt_sigprocmask, kNoWay, word, 0, kSignalSetBytes) == 0 || errno != EFAULT);
    errno = before;
    return readable;
}

}  // namespace rove::libc

using namespace rove::libc;

#pragma GCC visibility push(hidden)
extern "C" {

// Defines the replacement of `name`: the system call `number` with the same arguments.
#define ROVE_SYSTEM_CALL(result, name, number, parameters, ...)   \
    result name parameters {                                      \
        return (result)(call(number __VA_OPT__(, ) __VA_ARGS__)); \
    }
// Defines the variants that _FORTIFY_SOURCE uses for calls that fill a buffer. The size of the buffer comes last.
#define ROVE_CHECKED_CALL(result, name, number, parameters, bytes, room, ...) \
    result name parameters {                                                  \
        if ((bytes) > (room)) __chk_fail();                                   \
        return (result)(call(number __VA_OPT__(, ) __VA_ARGS__));             \
    }

// --- descriptors
ROVE_SYSTEM_CALL(ssize_t, __wrap_read, SYS_read, (int file, void* to, size_t bytes), file, to, bytes)
ROVE_SYSTEM_CALL(ssize_t, __wrap_write, SYS_write, (int file, const void* from, size_t bytes), file, from, bytes)
ROVE_SYSTEM_CALL(ssize_t, __wrap_readv, SYS_readv, (int file, const iovec* parts, int count), file, parts, count)
ROVE_SYSTEM_CALL(ssize_t, __wrap_writev, SYS_writev, (int file, const iovec* parts, int count), file, parts, count)
ROVE_SYSTEM_CALL(ssize_t, __wrap_pread64, SYS_pread64, (int file, void* to, size_t bytes, off_t at), file, to, bytes,
                 at)
ROVE_SYSTEM_CALL(ssize_t, __wrap_pwrite64, SYS_pwrite64, (int file, const void* from, size_t bytes, off_t at), file,
                 from, bytes, at)
ROVE_SYSTEM_CALL(ssize_t, __wrap_preadv64v2, SYS_preadv2,
                 (int file, const iovec* parts, int count, off_t at, int flags), file, parts, count, at, 0, flags)
ROVE_SYSTEM_CALL(off_t, __wrap_lseek64, SYS_lseek, (int file, off_t at, int from), file, at, from)
int __wrap_close(int file) {
    forget_file(file);
    return (int)call(SYS_close, file);
}
int __wrap_dup(int file) {
    return make_file(0, O_CLOEXEC, SYS_fcntl, file, F_DUPFD_CLOEXEC, 0);
}
ROVE_SYSTEM_CALL(int, __wrap_dup3, SYS_dup3, (int file, int copy, int flags), file, copy, flags)
int __wrap_pipe2(int* files, int flags) {
    return make_files(files, flags, O_CLOEXEC, [](int* pair, int all) { return (int)call(SYS_pipe2, pair, all); });
}
int __wrap_pipe(int* files) {
    return __wrap_pipe2(files, 0);
}
ROVE_SYSTEM_CALL(int, __wrap_flock, SYS_flock, (int file, int operation), file, operation)
ROVE_SYSTEM_CALL(int, __wrap_fsync, SYS_fsync, (int file), file)
ROVE_SYSTEM_CALL(int, __wrap_ftruncate64, SYS_ftruncate, (int file, off_t bytes), file, bytes)
ROVE_SYSTEM_CALL(int, __wrap_fallocate64, SYS_fallocate, (int file, int mode, off_t at, off_t bytes), file, mode, at,
                 bytes)
ROVE_SYSTEM_CALL(int, __wrap_fchmod, SYS_fchmod, (int file, mode_t mode), file, mode)
ROVE_SYSTEM_CALL(int, __wrap_fstatfs64, SYS_fstatfs, (int file, struct statfs64* status), file, status)
int __wrap_memfd_create(const char* name, unsigned flags) {
    return make_file((int)flags, MFD_CLOEXEC, SYS_memfd_create, name, flags | MFD_CLOEXEC);
}

// The argument is a number or a pointer. It is passed on as a pointer, which has the same representation.
#define ROVE_FCNTL(name)                                   \
    int name(int file, int command, ...) {                 \
        va_list rest;                                      \
        va_start(rest, command);                           \
        void* const argument = va_arg(rest, void*);        \
        va_end(rest);                                      \
        return rove::libc::fcntl(file, command, argument); \
    }
ROVE_FCNTL(__wrap_fcntl)
ROVE_FCNTL(__wrap_fcntl64)

// --- paths

// There is a mode after the flags only if the call may create a file.
#define ROVE_MODE                                                                  \
    va_list rest;                                                                  \
    va_start(rest, flags);                                                         \
    const bool makes = (flags & O_CREAT) != 0 || (flags & O_TMPFILE) == O_TMPFILE; \
    const mode_t mode = makes ? va_arg(rest, mode_t) : 0;                          \
    va_end(rest)
int __wrap_open(const char* path, int flags, ...) {
    ROVE_MODE;
    return open_at(AT_FDCWD, path, flags, mode);
}
int __wrap_open64(const char* path, int flags, ...) {
    ROVE_MODE;
    return open_at(AT_FDCWD, path, flags, mode);
}
int __wrap_openat(int folder, const char* path, int flags, ...) {
    ROVE_MODE;
    return open_at(folder, path, flags, mode);
}
int __wrap_openat64(int folder, const char* path, int flags, ...) {
    ROVE_MODE;
    return open_at(folder, path, flags, mode);
}
int __wrap___open_2(const char* path, int flags) {
    return open_at(AT_FDCWD, path, flags, 0);
}
int __wrap___open64_2(const char* path, int flags) {
    return open_at(AT_FDCWD, path, flags, 0);
}
int __wrap___openat_2(int folder, const char* path, int flags) {
    return open_at(folder, path, flags, 0);
}
int __wrap___openat64_2(int folder, const char* path, int flags) {
    return open_at(folder, path, flags, 0);
}

int __wrap_stat(const char* path, void* status) {
    return status_at(AT_FDCWD, path, status, 0);
}
int __wrap_stat64(const char* path, void* status) {
    return status_at(AT_FDCWD, path, status, 0);
}
int __wrap_lstat(const char* path, void* status) {
    return status_at(AT_FDCWD, path, status, AT_SYMLINK_NOFOLLOW);
}
int __wrap_lstat64(const char* path, void* status) {
    return status_at(AT_FDCWD, path, status, AT_SYMLINK_NOFOLLOW);
}
int __wrap_fstat(int file, void* status) {
    return status_at(file, "", status, AT_EMPTY_PATH);
}
int __wrap_fstat64(int file, void* status) {
    return status_at(file, "", status, AT_EMPTY_PATH);
}
int __wrap_fstatat(int folder, const char* path, void* status, int flags) {
    return status_at(folder, path, status, flags);
}
int __wrap_fstatat64(int folder, const char* path, void* status, int flags) {
    return status_at(folder, path, status, flags);
}
ROVE_SYSTEM_CALL(int, __wrap_access, SYS_faccessat, (const char* path, int mode), AT_FDCWD, path, mode)
ROVE_SYSTEM_CALL(ssize_t, __wrap_readlink, SYS_readlinkat, (const char* path, char* to, size_t bytes), AT_FDCWD, path,
                 to, bytes)
ROVE_SYSTEM_CALL(ssize_t, __wrap_readlinkat, SYS_readlinkat, (int folder, const char* path, char* to, size_t bytes),
                 folder, path, to, bytes)
ROVE_SYSTEM_CALL(int, __wrap_mkdir, SYS_mkdirat, (const char* path, mode_t mode), AT_FDCWD, path, mode)
ROVE_SYSTEM_CALL(int, __wrap_mknod, SYS_mknodat, (const char* path, mode_t mode, dev_t device), AT_FDCWD, path, mode,
                 device)
ROVE_SYSTEM_CALL(int, __wrap_unlink, SYS_unlinkat, (const char* path), AT_FDCWD, path, 0)
ROVE_SYSTEM_CALL(int, __wrap_unlinkat, SYS_unlinkat, (int folder, const char* path, int flags), folder, path, flags)
ROVE_SYSTEM_CALL(int, __wrap_rmdir, SYS_unlinkat, (const char* path), AT_FDCWD, path, AT_REMOVEDIR)
ROVE_SYSTEM_CALL(int, __wrap_symlink, SYS_symlinkat, (const char* target, const char* path), target, AT_FDCWD, path)
ROVE_SYSTEM_CALL(int, __wrap_symlinkat, SYS_symlinkat, (const char* target, int folder, const char* path), target,
                 folder, path)
ROVE_SYSTEM_CALL(int, __wrap_rename, SYS_renameat, (const char* from, const char* to), AT_FDCWD, from, AT_FDCWD, to)
ROVE_SYSTEM_CALL(int, __wrap_renameat, SYS_renameat, (int folder, const char* from, int other, const char* to), folder,
                 from, other, to)
ROVE_SYSTEM_CALL(int, __wrap_linkat, SYS_linkat, (int folder, const char* from, int other, const char* to, int flags),
                 folder, from, other, to, flags)
ROVE_SYSTEM_CALL(int, __wrap_chmod, SYS_fchmodat, (const char* path, mode_t mode), AT_FDCWD, path, mode)

// --- sockets
int __wrap_socket(int family, int type, int protocol) {
    return make_file(type, SOCK_CLOEXEC, SYS_socket, family, type | SOCK_CLOEXEC, protocol);
}
int __wrap_socketpair(int family, int type, int protocol, int* files) {
    return make_files(files, type, SOCK_CLOEXEC,
                      [=](int* pair, int all) { return (int)call(SYS_socketpair, family, all, protocol, pair); });
}
ROVE_SYSTEM_CALL(int, __wrap_bind, SYS_bind, (int file, const sockaddr* address, socklen_t bytes), file, address, bytes)
ROVE_SYSTEM_CALL(int, __wrap_listen, SYS_listen, (int file, int backlog), file, backlog)
int __wrap_accept4(int file, sockaddr* from, socklen_t* bytes, int flags) {
    return make_file(flags, SOCK_CLOEXEC, SYS_accept4, file, from, bytes, flags | SOCK_CLOEXEC);
}
int __wrap_accept(int file, sockaddr* from, socklen_t* bytes) {
    return __wrap_accept4(file, from, bytes, 0);
}
ROVE_SYSTEM_CALL(int, __wrap_connect, SYS_connect, (int file, const sockaddr* address, socklen_t bytes), file, address,
                 bytes)
ROVE_SYSTEM_CALL(int, __wrap_shutdown, SYS_shutdown, (int file, int how), file, how)
ROVE_SYSTEM_CALL(int, __wrap_getsockname, SYS_getsockname, (int file, sockaddr* address, socklen_t* bytes), file,
                 address, bytes)
ROVE_SYSTEM_CALL(int, __wrap_getpeername, SYS_getpeername, (int file, sockaddr* address, socklen_t* bytes), file,
                 address, bytes)
ROVE_SYSTEM_CALL(int, __wrap_getsockopt, SYS_getsockopt, (int file, int level, int name, void* value, socklen_t* bytes),
                 file, level, name, value, bytes)
ROVE_SYSTEM_CALL(ssize_t, __wrap_send, SYS_sendto, (int file, const void* from, size_t bytes, int flags), file, from,
                 bytes, flags, 0, 0)
ROVE_SYSTEM_CALL(ssize_t, __wrap_sendto, SYS_sendto,
                 (int file, const void* from, size_t bytes, int flags, const sockaddr* to, socklen_t size), file, from,
                 bytes, flags, to, size)
ROVE_SYSTEM_CALL(ssize_t, __wrap_sendmsg, SYS_sendmsg, (int file, const msghdr* message, int flags), file, message,
                 flags)
ROVE_SYSTEM_CALL(int, __wrap_sendmmsg, SYS_sendmmsg, (int file, mmsghdr* messages, unsigned count, int flags), file,
                 messages, count, flags)
ROVE_SYSTEM_CALL(ssize_t, __wrap_recv, SYS_recvfrom, (int file, void* to, size_t bytes, int flags), file, to, bytes,
                 flags, 0, 0)
ROVE_SYSTEM_CALL(ssize_t, __wrap_recvfrom, SYS_recvfrom,
                 (int file, void* to, size_t bytes, int flags, sockaddr* from, socklen_t* size), file, to, bytes, flags,
                 from, size)
// Receives a message, which may carry descriptors.
ssize_t __wrap_recvmsg(int file, msghdr* message, int flags) {
    const ssize_t bytes = call(SYS_recvmsg, file, message, flags | MSG_CMSG_CLOEXEC);
    if (bytes < 0 || (flags & MSG_CMSG_CLOEXEC) != 0) return bytes;
    for (cmsghdr* part = CMSG_FIRSTHDR(message); part != nullptr; part = CMSG_NXTHDR(message, part)) {
        if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) continue;
        for (size_t at = CMSG_LEN(0); at + sizeof(int) <= part->cmsg_len; at += sizeof(int)) {
            int received;
            __builtin_memcpy(&received, reinterpret_cast<const char*>(part) + at, sizeof(received));
            record_file(received);
        }
    }
    return bytes;
}
ROVE_SYSTEM_CALL(int, __wrap_recvmmsg, SYS_recvmmsg,
                 (int file, mmsghdr* messages, unsigned count, int flags, timespec* timeout), file, messages, count,
                 flags, timeout)

// --- waiting
ROVE_SYSTEM_CALL(int, __wrap_poll, SYS_poll, (pollfd * files, nfds_t count, int ms), files, count, ms)
// Copies the timeout, because the kernel writes the remaining time into it.
int __wrap_ppoll(pollfd* files, nfds_t count, const timespec* timeout, const sigset_t* mask) {
    timespec left{};
    if (timeout != nullptr) left = *timeout;
    return (int)call(SYS_ppoll, files, count, timeout != nullptr ? &left : nullptr, mask, kSignalSetBytes);
}
ROVE_SYSTEM_CALL(int, __wrap_select, SYS_select, (int count, fd_set* in, fd_set* out, fd_set* other, timeval* timeout),
                 count, in, out, other, timeout)
int __wrap_epoll_create1(int flags) {
    return make_file(flags, EPOLL_CLOEXEC, SYS_epoll_create1, flags | EPOLL_CLOEXEC);
}
int __wrap_epoll_create(int) {
    return __wrap_epoll_create1(0);
}
ROVE_SYSTEM_CALL(int, __wrap_epoll_ctl, SYS_epoll_ctl, (int file, int operation, int of, epoll_event* event), file,
                 operation, of, event)
ROVE_SYSTEM_CALL(int, __wrap_epoll_wait, SYS_epoll_wait, (int file, epoll_event* events, int room, int ms), file,
                 events, room, ms)
ROVE_SYSTEM_CALL(int, __wrap_epoll_pwait, SYS_epoll_pwait,
                 (int file, epoll_event* events, int room, int ms, const sigset_t* mask), file, events, room, ms, mask,
                 kSignalSetBytes)
int __wrap_eventfd(unsigned count, int flags) {
    return make_file(flags, EFD_CLOEXEC, SYS_eventfd2, count, flags | EFD_CLOEXEC);
}
int __wrap_eventfd_read(int file, eventfd_t* count) {
    return call(SYS_read, file, count, sizeof(*count)) == sizeof(*count) ? 0 : -1;
}
int __wrap_eventfd_write(int file, eventfd_t count) {
    return call(SYS_write, file, &count, sizeof(count)) == sizeof(count) ? 0 : -1;
}
int __wrap_timerfd_create(int clock, int flags) {
    return make_file(flags, TFD_CLOEXEC, SYS_timerfd_create, clock, flags | TFD_CLOEXEC);
}
ROVE_SYSTEM_CALL(int, __wrap_timerfd_settime, SYS_timerfd_settime,
                 (int file, int flags, const itimerspec* value, itimerspec* before), file, flags, value, before)
ROVE_SYSTEM_CALL(int, __wrap_pause, SYS_pause, (void), )
ROVE_SYSTEM_CALL(int, __wrap_sched_yield, SYS_sched_yield, (void), )
int __wrap_clock_nanosleep(clockid_t clock, int flags, const timespec* duration, timespec* left) {
    const int before = errno;
    const int error = call(SYS_clock_nanosleep, clock, flags, duration, left) == 0 ? 0 : errno;
    errno = before;
    return error;
}
int __wrap_usleep(useconds_t us) {
    const timespec duration{static_cast<time_t>(us / 1'000'000), static_cast<long>(us % 1'000'000 * 1000)};
    return rove::libc::nanosleep(&duration, nullptr);
}
unsigned __wrap_sleep(unsigned seconds) {
    timespec left{static_cast<time_t>(seconds), 0};
    return rove::libc::nanosleep(&left, &left) == 0 ? 0 : static_cast<unsigned>(left.tv_sec);
}

// --- memory
ROVE_SYSTEM_CALL(void*, __wrap_mmap, SYS_mmap, (void* at, size_t bytes, int access, int flags, int file, off_t from),
                 at, bytes, access, flags, file, from)
ROVE_SYSTEM_CALL(void*, __wrap_mmap64, SYS_mmap, (void* at, size_t bytes, int access, int flags, int file, off_t from),
                 at, bytes, access, flags, file, from)
ROVE_SYSTEM_CALL(int, __wrap_munmap, SYS_munmap, (void* at, size_t bytes), at, bytes)
ROVE_SYSTEM_CALL(int, __wrap_madvise, SYS_madvise, (void* at, size_t bytes, int advice), at, bytes, advice)
ROVE_SYSTEM_CALL(ssize_t, __wrap_process_vm_readv, SYS_process_vm_readv,
                 (pid_t process, const iovec* to, unsigned long parts, const iovec* from, unsigned long others,
                  unsigned long flags),
                 process, to, parts, from, others, flags)
ROVE_SYSTEM_CALL(ssize_t, __wrap_process_vm_writev, SYS_process_vm_writev,
                 (pid_t process, const iovec* from, unsigned long parts, const iovec* to, unsigned long others,
                  unsigned long flags),
                 process, from, parts, to, others, flags)

// --- checked by _FORTIFY_SOURCE
ROVE_CHECKED_CALL(ssize_t, __wrap___read_chk, SYS_read, (int file, void* to, size_t bytes, size_t room), bytes, room,
                  file, to, bytes)
ROVE_CHECKED_CALL(ssize_t, __wrap___pread64_chk, SYS_pread64, (int file, void* to, size_t bytes, off_t at, size_t room),
                  bytes, room, file, to, bytes, at)
ROVE_CHECKED_CALL(ssize_t, __wrap___recv_chk, SYS_recvfrom, (int file, void* to, size_t bytes, size_t room, int flags),
                  bytes, room, file, to, bytes, flags, 0, 0)
ROVE_CHECKED_CALL(ssize_t, __wrap___recvfrom_chk, SYS_recvfrom,
                  (int file, void* to, size_t bytes, size_t room, int flags, sockaddr* from, socklen_t* size), bytes,
                  room, file, to, bytes, flags, from, size)
ROVE_CHECKED_CALL(ssize_t, __wrap___readlink_chk, SYS_readlinkat,
                  (const char* path, char* to, size_t bytes, size_t room), bytes, room, AT_FDCWD, path, to, bytes)
ROVE_CHECKED_CALL(ssize_t, __wrap___readlinkat_chk, SYS_readlinkat,
                  (int folder, const char* path, char* to, size_t bytes, size_t room), bytes, room, folder, path, to,
                  bytes)
ROVE_CHECKED_CALL(int, __wrap___poll_chk, SYS_poll, (pollfd * files, nfds_t count, int ms, size_t room), count,
                  room / sizeof(pollfd), files, count, ms)
int __wrap___ppoll_chk(pollfd* files, nfds_t count, const timespec* timeout, const sigset_t* mask, size_t room) {
    if (count > room / sizeof(pollfd)) __chk_fail();
    return __wrap_ppoll(files, count, timeout, mask);
}

// --- any system call
long __wrap_syscall(long number, ...) {
    va_list rest;
    va_start(rest, number);
    long words[6];
    for (long& one : words) one = va_arg(rest, long);
    va_end(rest);
    return make(number, words[0], words[1], words[2], words[3], words[4], words[5]);
}

}  // extern "C"
#pragma GCC visibility pop
