// SPDX-License-Identifier: Apache-2.0
// The calls by which programs look at files: what they look for below /sys/class/infiniband and /dev/infiniband is, of
// our devices, in a folder of ours (sysfs.h). Every other path goes on to the C library after a comparison of its first
// bytes.
#undef _FILE_OFFSET_BITS  // open() and open64() are two symbols
#undef _FORTIFY_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>

#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <string>

#include "verbs/preload/next.h"
#include "verbs/preload/provider.h"
#include "verbs/preload/ucma.h"
#include "verbs/sysfs.h"

namespace rove::verbs {

namespace {

Sysfs& sysfs() {
    static auto& sysfs = *new Sysfs;  // not destroyed before the last program's destructor
    return sysfs;
}

__attribute__((constructor)) void watch_forks() {
    pthread_atfork([] { sysfs().before_fork(); }, [] { sysfs().after_fork(); }, [] { sysfs().after_fork(); });
}

__attribute__((destructor)) void remove_at_exit() {
    sysfs().remove();
}

// The path to use.
class Path {
  public:
    explicit Path(const char* path) : path_(path) {
        if (!Sysfs::concerns(path)) return;
        instead_ = sysfs().instead(provider(), path);
        if (!instead_.empty()) path_ = instead_.c_str();
    }
    Path(const Path&) = delete;
    operator const char*() const { return path_; }

  private:
    const char* path_;
    std::string instead_;
};

// Where the path is the device that rdma_cm's channels are opened by. It stays the kernel's for programs that have no
// rove devices.
bool opens_channel(const char* path) {
    return Sysfs::concerns(path) && std::strcmp(path, kRdmaCmDevice) == 0 && !provider().devices().empty();
}

}  // namespace

}  // namespace rove::verbs

using rove::verbs::Path;

// The next definition behind ours, found when the library is loaded: dlsym() waits for a lock that a thread holds while
// dlopen() runs constructors, and these may wait for a thread that looks at a file.
#define ROVE_LOOK_UP(name)                                      \
    __attribute__((constructor)) static void look_up_##name() { \
        rove::verbs::Next<&hook_##name>::find(#name);           \
    }

// The symbol `name`. The headers' declarations of it differ from release to release in what they promise, so the
// function has another name here.
#define ROVE_FILE_HOOK(result, name, parameters, arguments)                                     \
    extern "C" __attribute__((visibility("default"))) result hook_##name parameters asm(#name); \
    ROVE_LOOK_UP(name)                                                                          \
    extern "C" result hook_##name parameters {                                                  \
        return rove::verbs::Next<&hook_##name>::find(#name) arguments;                          \
    }

// A file that is made has a mode behind the flags; where none was given, none is looked at.
#define ROVE_OPEN_HOOK(name, parameters, arguments)                                          \
    extern "C" __attribute__((visibility("default"))) int hook_##name parameters asm(#name); \
    ROVE_LOOK_UP(name)                                                                       \
    extern "C" int hook_##name parameters {                                                  \
        va_list rest;                                                                        \
        va_start(rest, flags);                                                               \
        const mode_t mode = va_arg(rest, mode_t);                                            \
        va_end(rest);                                                                        \
        if (rove::verbs::opens_channel(path)) return rove::verbs::ucma::open_channel(flags); \
        return rove::verbs::Next<&hook_##name>::find(#name) arguments;                       \
    }

// What _FORTIFY_SOURCE makes of those without a mode.
#define ROVE_CHECKED_OPEN_HOOK(name, parameters, arguments)                                  \
    extern "C" __attribute__((visibility("default"))) int hook_##name parameters asm(#name); \
    ROVE_LOOK_UP(name)                                                                       \
    extern "C" int hook_##name parameters {                                                  \
        if (rove::verbs::opens_channel(path)) return rove::verbs::ucma::open_channel(flags); \
        return rove::verbs::Next<&hook_##name>::find(#name) arguments;                       \
    }

ROVE_OPEN_HOOK(open, (const char* path, int flags, ...), (Path(path), flags, mode))
ROVE_OPEN_HOOK(open64, (const char* path, int flags, ...), (Path(path), flags, mode))
ROVE_OPEN_HOOK(openat, (int folder, const char* path, int flags, ...), (folder, Path(path), flags, mode))
ROVE_OPEN_HOOK(openat64, (int folder, const char* path, int flags, ...), (folder, Path(path), flags, mode))
ROVE_CHECKED_OPEN_HOOK(__open_2, (const char* path, int flags), (Path(path), flags))
ROVE_CHECKED_OPEN_HOOK(__open64_2, (const char* path, int flags), (Path(path), flags))
ROVE_CHECKED_OPEN_HOOK(__openat_2, (int folder, const char* path, int flags), (folder, Path(path), flags))
ROVE_CHECKED_OPEN_HOOK(__openat64_2, (int folder, const char* path, int flags), (folder, Path(path), flags))
ROVE_FILE_HOOK(FILE*, fopen, (const char* path, const char* mode), (Path(path), mode))
ROVE_FILE_HOOK(FILE*, fopen64, (const char* path, const char* mode), (Path(path), mode))

ROVE_FILE_HOOK(DIR*, opendir, (const char* path), (Path(path)))
ROVE_FILE_HOOK(int, scandir,
               (const char* path, dirent*** names, int (*filter)(const dirent*),
                int (*compare)(const dirent**, const dirent**)),
               (Path(path), names, filter, compare))
ROVE_FILE_HOOK(int, scandir64,
               (const char* path, dirent64*** names, int (*filter)(const dirent64*),
                int (*compare)(const dirent64**, const dirent64**)),
               (Path(path), names, filter, compare))

ROVE_FILE_HOOK(int, access, (const char* path, int mode), (Path(path), mode))
ROVE_FILE_HOOK(int, faccessat, (int folder, const char* path, int mode, int flags), (folder, Path(path), mode, flags))
ROVE_FILE_HOOK(int, stat, (const char* path, struct stat* status), (Path(path), status))
ROVE_FILE_HOOK(int, stat64, (const char* path, struct stat64* status), (Path(path), status))
ROVE_FILE_HOOK(int, lstat, (const char* path, struct stat* status), (Path(path), status))
ROVE_FILE_HOOK(int, lstat64, (const char* path, struct stat64* status), (Path(path), status))
ROVE_FILE_HOOK(int, fstatat, (int folder, const char* path, struct stat* status, int flags),
               (folder, Path(path), status, flags))
ROVE_FILE_HOOK(int, fstatat64, (int folder, const char* path, struct stat64* status, int flags),
               (folder, Path(path), status, flags))
ROVE_FILE_HOOK(int, statx, (int folder, const char* path, int flags, unsigned mask, struct statx* status),
               (folder, Path(path), flags, mask, status))
// What programs that were built before glibc 2.33 call instead of stat() and lstat().
ROVE_FILE_HOOK(int, __xstat, (int version, const char* path, struct stat* status), (version, Path(path), status))
ROVE_FILE_HOOK(int, __xstat64, (int version, const char* path, struct stat64* status), (version, Path(path), status))
ROVE_FILE_HOOK(int, __lxstat, (int version, const char* path, struct stat* status), (version, Path(path), status))
ROVE_FILE_HOOK(int, __lxstat64, (int version, const char* path, struct stat64* status), (version, Path(path), status))

ROVE_FILE_HOOK(ssize_t, readlink, (const char* path, char* buffer, size_t size), (Path(path), buffer, size))
ROVE_FILE_HOOK(ssize_t, __readlink_chk, (const char* path, char* buffer, size_t size, size_t room),
               (Path(path), buffer, size, room))
ROVE_FILE_HOOK(ssize_t, readlinkat, (int folder, const char* path, char* buffer, size_t size),
               (folder, Path(path), buffer, size))
ROVE_FILE_HOOK(char*, realpath, (const char* path, char* resolved), (Path(path), resolved))
ROVE_FILE_HOOK(char*, __realpath_chk, (const char* path, char* resolved, size_t room), (Path(path), resolved, room))
ROVE_FILE_HOOK(char*, canonicalize_file_name, (const char* path), (Path(path)))

// ls(1) looks for them.
ROVE_FILE_HOOK(ssize_t, getxattr, (const char* path, const char* name, void* value, size_t size),
               (Path(path), name, value, size))
ROVE_FILE_HOOK(ssize_t, lgetxattr, (const char* path, const char* name, void* value, size_t size),
               (Path(path), name, value, size))

// --- what has a descriptor

namespace rove::verbs {

namespace {

// A channel's is an eventfd. librdmacm makes sure that what it has opened is a character device, and which one if the
// kernel has told it.
template <class Stat>
int show_device(int fd, Stat* status, int result) {
    constexpr mode_t kPermissions = 07777;
    if (result != 0 || !ucma::is_channel(fd) || (status->st_mode & ~kPermissions) != 0) return result;
    struct stat device;
    const auto next = Next<&hook_stat>::find("stat");
    if (next(kRdmaCmDevice, &device) != 0 && next("/dev/null", &device) != 0) return result;
    status->st_mode = device.st_mode;
    status->st_rdev = device.st_rdev;
    return result;
}

}  // namespace

}  // namespace rove::verbs

#define ROVE_FSTAT_HOOK(name, parameters, arguments)                                                         \
    extern "C" __attribute__((visibility("default"))) int hook_##name parameters asm(#name);                 \
    ROVE_LOOK_UP(name)                                                                                       \
    extern "C" int hook_##name parameters {                                                                  \
        return rove::verbs::show_device(fd, status, rove::verbs::Next<&hook_##name>::find(#name) arguments); \
    }

ROVE_FSTAT_HOOK(fstat, (int fd, struct stat* status), (fd, status))
ROVE_FSTAT_HOOK(fstat64, (int fd, struct stat64* status), (fd, status))
ROVE_FSTAT_HOOK(__fxstat, (int version, int fd, struct stat* status), (version, fd, status))
ROVE_FSTAT_HOOK(__fxstat64, (int version, int fd, struct stat64* status), (version, fd, status))
