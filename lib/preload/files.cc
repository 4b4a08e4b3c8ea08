// SPDX-License-Identifier: Apache-2.0
// Hooks of the calls by which programs access files. Paths of rove's devices below /sys/class/infiniband and
// /dev/infiniband are redirected to a private folder (sysfs.h). Every other path goes to the C library after a check of
// its characters.
//
// A path that the program cannot read is passed on, so the call fails as it does without rove.
#undef _FILE_OFFSET_BITS  // open() and open64() are two symbols
#undef _FORTIFY_SOURCE
#include <cxxabi.h>
#include <dirent.h>
#include <fcntl.h>
#include <glob.h>
#include <limits.h>
#include <pthread.h>
#include <sys/stat.h>

#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <string>
#include <string_view>

#include "base/libc.h"
#include "base/next_symbol.h"
#include "rdmacm/server.h"
#include "verbs/process_provider.h"
#include "verbs/sysfs.h"

namespace rove::verbs {

namespace {

Sysfs& sysfs() {
    static auto& sysfs = *new Sysfs;  // not destroyed before the program's last destructor
    return sysfs;
}

__attribute__((constructor)) void watch_forks() {
    pthread_atfork([] { sysfs().before_fork(); }, [] { sysfs().after_fork(); }, [] { sysfs().after_fork(); });
}

// Runs after the last code that may access the files (provider.cc).
__attribute__((constructor(kFirstConstructor))) void remove_at_exit() {
    abi::__cxa_atexit([](void*) { sysfs().remove(); }, nullptr, nullptr);
}

// Returns the characters of `path`, or nothing if the kernel could not read it to its end.
std::string_view characters_of(const char* path) {
    constexpr size_t kPage = 4096;
    for (size_t length = 0; length < PATH_MAX && libc::can_read(path + length, 1);) {
        const size_t on_page = kPage - reinterpret_cast<uintptr_t>(path + length) % kPage;
        const size_t more = strnlen(path + length, on_page);
        length += more;
        if (more < on_page) return {path, length};
    }
    return {};
}

// The path to use instead of the given one.
class Path {
  public:
    explicit Path(const char* path) : Path(AT_FDCWD, path) {}
    Path(int folder, const char* path) : folder_(folder), given_(characters_of(path)), path_(path) {
        if (!Sysfs::concerns(given_)) return;
        instead_ = sysfs().instead(provider, folder, given_);
        if (!instead_.empty()) path_ = instead_.c_str();
    }
    Path(const Path&) = delete;
    operator const char*() const { return path_; }

    // Returns true if the path is the device that opens rdma_cm's channels. In a program without rove devices it stays
    // the kernel's.
    bool opens_channel() const {
        return Sysfs::concerns(given_) && Sysfs::is_rdma_cm(folder_, given_) && !provider().devices().empty();
    }

  private:
    const int folder_;
    const std::string_view given_;
    const char* path_;
    std::string instead_;
};

}  // namespace

}  // namespace rove::verbs

using rove::verbs::Path;

// Looks up the next definition when the library is loaded. dlsym() takes a lock that a thread holds while dlopen() runs
// constructors, and these may wait for a thread that accesses a file.
#define ROVE_LOOK_UP(name)                                      \
    __attribute__((constructor)) static void look_up_##name() { \
        rove::NextSymbol<&hook_##name>::find(#name);            \
    }

// Defines the symbol `name` under another function name, because the attributes in its declaration differ between
// releases of the headers.
#define ROVE_FILE_HOOK(result, name, parameters, arguments)                                     \
    extern "C" __attribute__((visibility("default"))) result hook_##name parameters asm(#name); \
    ROVE_LOOK_UP(name)                                                                          \
    extern "C" result hook_##name parameters {                                                  \
        return rove::NextSymbol<&hook_##name>::find(#name) arguments;                           \
    }

// The mode follows the flags if the call creates a file; otherwise the C library ignores it.
#define ROVE_OPEN_HOOK(name, folder, parameters, arguments)                                  \
    extern "C" __attribute__((visibility("default"))) int hook_##name parameters asm(#name); \
    ROVE_LOOK_UP(name)                                                                       \
    extern "C" int hook_##name parameters {                                                  \
        va_list rest;                                                                        \
        va_start(rest, flags);                                                               \
        const mode_t mode = va_arg(rest, mode_t);                                            \
        va_end(rest);                                                                        \
        const Path used(folder, path);                                                       \
        if (used.opens_channel()) return rove::verbs::ucma::open_channel(flags);             \
        return rove::NextSymbol<&hook_##name>::find(#name) arguments;                        \
    }

// With _FORTIFY_SOURCE, calls without a mode become calls of these variants.
#define ROVE_CHECKED_OPEN_HOOK(name, folder, parameters, arguments)                          \
    extern "C" __attribute__((visibility("default"))) int hook_##name parameters asm(#name); \
    ROVE_LOOK_UP(name)                                                                       \
    extern "C" int hook_##name parameters {                                                  \
        const Path used(folder, path);                                                       \
        if (used.opens_channel()) return rove::verbs::ucma::open_channel(flags);             \
        return rove::NextSymbol<&hook_##name>::find(#name) arguments;                        \
    }

ROVE_OPEN_HOOK(open, AT_FDCWD, (const char* path, int flags, ...), (used, flags, mode))
ROVE_OPEN_HOOK(open64, AT_FDCWD, (const char* path, int flags, ...), (used, flags, mode))
ROVE_OPEN_HOOK(openat, folder, (int folder, const char* path, int flags, ...), (folder, used, flags, mode))
ROVE_OPEN_HOOK(openat64, folder, (int folder, const char* path, int flags, ...), (folder, used, flags, mode))
ROVE_CHECKED_OPEN_HOOK(__open_2, AT_FDCWD, (const char* path, int flags), (used, flags))
ROVE_CHECKED_OPEN_HOOK(__open64_2, AT_FDCWD, (const char* path, int flags), (used, flags))
ROVE_CHECKED_OPEN_HOOK(__openat_2, folder, (int folder, const char* path, int flags), (folder, used, flags))
ROVE_CHECKED_OPEN_HOOK(__openat64_2, folder, (int folder, const char* path, int flags), (folder, used, flags))
ROVE_FILE_HOOK(FILE*, fopen, (const char* path, const char* mode), (Path(path), mode))
ROVE_FILE_HOOK(FILE*, fopen64, (const char* path, const char* mode), (Path(path), mode))

ROVE_FILE_HOOK(FILE*, freopen, (const char* path, const char* mode, FILE* stream), (Path(path), mode, stream))
ROVE_FILE_HOOK(FILE*, freopen64, (const char* path, const char* mode, FILE* stream), (Path(path), mode, stream))

ROVE_FILE_HOOK(int, chdir, (const char* path), (Path(path)))
ROVE_FILE_HOOK(DIR*, opendir, (const char* path), (Path(path)))
ROVE_FILE_HOOK(int, scandir,
               (const char* path, dirent*** names, int (*filter)(const dirent*),
                int (*compare)(const dirent**, const dirent**)),
               (Path(path), names, filter, compare))
ROVE_FILE_HOOK(int, scandir64,
               (const char* path, dirent64*** names, int (*filter)(const dirent64*),
                int (*compare)(const dirent64**, const dirent64**)),
               (Path(path), names, filter, compare))
ROVE_FILE_HOOK(int, scandirat,
               (int folder, const char* path, dirent*** names, int (*filter)(const dirent*),
                int (*compare)(const dirent**, const dirent**)),
               (folder, Path(folder, path), names, filter, compare))
ROVE_FILE_HOOK(int, scandirat64,
               (int folder, const char* path, dirent64*** names, int (*filter)(const dirent64*),
                int (*compare)(const dirent64**, const dirent64**)),
               (folder, Path(folder, path), names, filter, compare))

ROVE_FILE_HOOK(int, access, (const char* path, int mode), (Path(path), mode))
ROVE_FILE_HOOK(int, faccessat, (int folder, const char* path, int mode, int flags),
               (folder, Path(folder, path), mode, flags))
ROVE_FILE_HOOK(int, eaccess, (const char* path, int mode), (Path(path), mode))
ROVE_FILE_HOOK(int, euidaccess, (const char* path, int mode), (Path(path), mode))
ROVE_FILE_HOOK(int, stat, (const char* path, struct stat* status), (Path(path), status))
ROVE_FILE_HOOK(int, stat64, (const char* path, struct stat64* status), (Path(path), status))
ROVE_FILE_HOOK(int, lstat, (const char* path, struct stat* status), (Path(path), status))
ROVE_FILE_HOOK(int, lstat64, (const char* path, struct stat64* status), (Path(path), status))
ROVE_FILE_HOOK(int, fstatat, (int folder, const char* path, struct stat* status, int flags),
               (folder, Path(folder, path), status, flags))
ROVE_FILE_HOOK(int, fstatat64, (int folder, const char* path, struct stat64* status, int flags),
               (folder, Path(folder, path), status, flags))
ROVE_FILE_HOOK(int, statx, (int folder, const char* path, int flags, unsigned mask, struct statx* status),
               (folder, Path(folder, path), flags, mask, status))
// Programs that were built before glibc 2.33 call these instead of stat() and lstat().
ROVE_FILE_HOOK(int, __xstat, (int version, const char* path, struct stat* status), (version, Path(path), status))
ROVE_FILE_HOOK(int, __xstat64, (int version, const char* path, struct stat64* status), (version, Path(path), status))
ROVE_FILE_HOOK(int, __lxstat, (int version, const char* path, struct stat* status), (version, Path(path), status))
ROVE_FILE_HOOK(int, __lxstat64, (int version, const char* path, struct stat64* status), (version, Path(path), status))
ROVE_FILE_HOOK(int, __fxstatat, (int version, int folder, const char* path, struct stat* status, int flags),
               (version, folder, Path(folder, path), status, flags))
ROVE_FILE_HOOK(int, __fxstatat64, (int version, int folder, const char* path, struct stat64* status, int flags),
               (version, folder, Path(folder, path), status, flags))

ROVE_FILE_HOOK(ssize_t, readlink, (const char* path, char* buffer, size_t size), (Path(path), buffer, size))
ROVE_FILE_HOOK(ssize_t, __readlink_chk, (const char* path, char* buffer, size_t size, size_t room),
               (Path(path), buffer, size, room))
ROVE_FILE_HOOK(ssize_t, readlinkat, (int folder, const char* path, char* buffer, size_t size),
               (folder, Path(folder, path), buffer, size))
ROVE_FILE_HOOK(char*, realpath, (const char* path, char* resolved), (Path(path), resolved))
ROVE_FILE_HOOK(char*, __realpath_chk, (const char* path, char* resolved, size_t room), (Path(path), resolved, room))
ROVE_FILE_HOOK(char*, canonicalize_file_name, (const char* path), (Path(path)))

// ls(1) asks for attributes.
ROVE_FILE_HOOK(ssize_t, getxattr, (const char* path, const char* name, void* value, size_t size),
               (Path(path), name, value, size))
ROVE_FILE_HOOK(ssize_t, lgetxattr, (const char* path, const char* name, void* value, size_t size),
               (Path(path), name, value, size))

// glob() uses internal functions of the C library unless it is given others. glob64() is the same function.
#define ROVE_GLOB_HOOK(name)                                                                                    \
    extern "C" __attribute__((visibility("default"))) int hook_##name(                                          \
        const char* pattern, int flags, int (*error)(const char*, int), glob_t* found) asm(#name);              \
    ROVE_LOOK_UP(name)                                                                                          \
    extern "C" int hook_##name(const char* pattern, int flags, int (*error)(const char*, int), glob_t* found) { \
        const auto next = rove::NextSymbol<&hook_##name>::find(#name);                                          \
        if ((flags & GLOB_ALTDIRFUNC) != 0 || !rove::verbs::may_match(pattern))                                 \
            return next(pattern, flags, error, found);                                                          \
        rove::verbs::look_by_hooks(*found);                                                                     \
        const int result = next(pattern, flags | GLOB_ALTDIRFUNC, error, found);                                \
        found->gl_flags &= ~GLOB_ALTDIRFUNC;                                                                    \
        return result;                                                                                          \
    }

namespace rove::verbs {

namespace {

bool may_match(const char* pattern) {
    return characters_of(pattern).find("infiniband") != std::string_view::npos;
}

void look_by_hooks(glob_t& found) {
    found.gl_opendir = [](const char* path) -> void* { return NextSymbol<&hook_opendir>::find("opendir")(Path(path)); };
    found.gl_readdir = [](void* folder) { return reinterpret_cast<dirent*>(readdir64(static_cast<DIR*>(folder))); };
    found.gl_closedir = [](void* folder) { closedir(static_cast<DIR*>(folder)); };
    found.gl_stat = [](const char* path, struct stat* status) {
        return NextSymbol<&hook_stat>::find("stat")(Path(path), status);
    };
    found.gl_lstat = [](const char* path, struct stat* status) {
        return NextSymbol<&hook_lstat>::find("lstat")(Path(path), status);
    };
}

}  // namespace

}  // namespace rove::verbs

ROVE_GLOB_HOOK(glob)
ROVE_GLOB_HOOK(glob64)

// --- calls with a descriptor

namespace rove::verbs {

namespace {

// Makes a channel's eventfd appear as a character device. librdmacm checks that, and also checks which device it is if
// the kernel has reported one.
template <class Stat>
int show_device(int fd, Stat* status, int result) {
    constexpr mode_t kPermissions = 07777;
    if (result != 0 || !ucma::is_channel(fd) || (status->st_mode & ~kPermissions) != 0) return result;
    struct stat device;
    const auto next = NextSymbol<&hook_stat>::find("stat");
    if (next(kRdmaCmDevice, &device) != 0 && next("/dev/null", &device) != 0) return result;
    status->st_mode = device.st_mode;
    status->st_rdev = device.st_rdev;
    return result;
}

}  // namespace

}  // namespace rove::verbs

#define ROVE_FSTAT_HOOK(name, parameters, arguments)                                                        \
    extern "C" __attribute__((visibility("default"))) int hook_##name parameters asm(#name);                \
    ROVE_LOOK_UP(name)                                                                                      \
    extern "C" int hook_##name parameters {                                                                 \
        return rove::verbs::show_device(fd, status, rove::NextSymbol<&hook_##name>::find(#name) arguments); \
    }

ROVE_FSTAT_HOOK(fstat, (int fd, struct stat* status), (fd, status))
ROVE_FSTAT_HOOK(fstat64, (int fd, struct stat64* status), (fd, status))
ROVE_FSTAT_HOOK(__fxstat, (int version, int fd, struct stat* status), (version, fd, status))
ROVE_FSTAT_HOOK(__fxstat64, (int version, int fd, struct stat64* status), (version, fd, status))
