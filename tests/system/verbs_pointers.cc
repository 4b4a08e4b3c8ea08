// SPDX-License-Identifier: Apache-2.0
// Calls each function of the C library that rove hooks with every kind of bad pointer and prints the results, which the
// test compares with those without rove. `FILE` is the object to wait for: "channel", a completion channel of the first
// device, or "eventfd", which replaces it where there is no device.
#include <dirent.h>
#include <fcntl.h>
#include <glob.h>
#include <infiniband/verbs.h>
#include <poll.h>
#include <setjmp.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/select.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "peer.h"

extern "C" {
int __poll_chk(pollfd* files, nfds_t count, int timeout_ms, size_t bytes);
int __open_2(const char* path, int flags);
int __openat_2(int folder, const char* path, int flags);
int __xstat(int version, const char* path, struct stat* status);
int __lxstat(int version, const char* path, struct stat* status);
int __fxstat(int version, int file, struct stat* status);
int __fxstatat(int version, int folder, const char* path, struct stat* status, int flags);
}

namespace {

constexpr size_t kPage = 4096;
constexpr int kTimeoutMs = 5;
sigjmp_buf before_call;

// Adjacent pages: one writable, one inaccessible, and one read-only.
struct Memory {
    char* writable =
        static_cast<char*>(mmap(nullptr, 3 * kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    char* none = writable + kPage;
    char* readable = writable + 2 * kPage;

    Memory() {
        mprotect(none, kPage, PROT_NONE);
        mprotect(readable, kPage, PROT_READ);
    }
    // Returns the last `bytes` writable bytes, behind which no byte can be read.
    char* at_end(size_t bytes) const { return none - bytes; }
    // Returns an address below all that the kernel assigns.
    static void* unmapped() { return reinterpret_cast<void*>(0x10'0000); }
};
const Memory memory;

void report(const char* function, const std::string& argument, const std::function<long()>& call) {
    std::string outcome;
    errno = 0;
    if (sigsetjmp(before_call, 1) == 0) {
        const long result = call();
        // Descriptors and addresses differ from run to run.
        outcome = result > 2 ? "more" : std::to_string(result);
        if (result < 0 || result > 2) outcome += std::string(" ") + (errno != 0 ? strerrorname_np(errno) : "0");
    } else {
        outcome = "crashes";
    }
    std::printf("%s %s: %s\n", function, argument.c_str(), outcome.c_str());
}

struct Pointer {
    std::string name;
    void* at;
};

std::vector<Pointer> bad_pointers() {
    return {{"null", nullptr},
            {"small", reinterpret_cast<void*>(8)},
            {"unmapped", memory.unmapped()},
            {"protected", memory.none},
            {"kernel's", reinterpret_cast<void*>(0xffff'8880'0000'0000)},
            {"no address", reinterpret_cast<void*>(0x8000'0000'0000'0000)}};
}

using PathCall = std::function<long(const char*)>;

long of(const void* pointer) {
    return pointer != nullptr ? 3 : -1;
}

void paths(const char* function, const PathCall& call) {
    for (const Pointer& pointer : bad_pointers())
        report(function, "path " + pointer.name, [&] { return call(static_cast<const char*>(pointer.at)); });
    for (const std::string text : {"/sys/cl", "/sys/class/infiniband", "/sys/class/infiniband/rove0/node_gu",
                                   "/dev/infiniband/rdma_cm", "infiniband", "..", "/nowhere"}) {
        char* const open_end = memory.at_end(text.size());
        std::memcpy(open_end, text.c_str(), text.size());
        report(function, "path that does not end, " + text, [&] { return call(open_end); });
    }
    for (const std::string text : {"/nowhere", "/sys/class/infiniband_no", "no-infiniband", "../no-such-file"}) {
        char* const whole = memory.at_end(text.size() + 1);
        std::memcpy(whole, text.c_str(), text.size() + 1);
        report(function, "path up to the end, " + text, [&] { return call(whole); });
    }
    const std::string too_long = "/sys/class/infiniband/" + std::string(2 * kPage, 'x');
    report(function, "path that is too long", [&] { return call(too_long.c_str()); });
    report(function, "empty path", [&] { return call(""); });
}

void files() {
    static struct stat status;
    static struct statx more;
    static char buffer[2 * kPage];
    constexpr int kNoFolder = -1;
    paths("open", [](const char* path) { return open(path, O_RDONLY); });
    paths("open to create",
          [](const char* path) { return open(path, O_RDONLY | O_CREAT | O_EXCL | O_DIRECTORY, 0600); });
    paths("openat", [](const char* path) { return openat(AT_FDCWD, path, O_RDONLY); });
    paths("openat of no folder", [](const char* path) { return openat(kNoFolder, path, O_RDONLY); });
    paths("__open_2", [](const char* path) { return __open_2(path, O_RDONLY); });
    paths("__openat_2", [](const char* path) { return __openat_2(AT_FDCWD, path, O_RDONLY); });
    paths("fopen", [](const char* path) { return of(fopen(path, "r")); });
    paths("freopen", [](const char* path) { return of(freopen(path, "r", fopen("/dev/null", "r"))); });
    paths("opendir", [](const char* path) { return of(opendir(path)); });
    paths("scandir", [](const char* path) {
        dirent** names;
        return scandir(path, &names, nullptr, nullptr);
    });
    paths("chdir", [](const char* path) { return chdir(path); });
    paths("access", [](const char* path) { return access(path, R_OK); });
    paths("access of no mode", [](const char* path) { return access(path, 99); });
    paths("faccessat", [](const char* path) { return faccessat(AT_FDCWD, path, R_OK, AT_EACCESS); });
    paths("euidaccess", [](const char* path) { return euidaccess(path, R_OK); });
    paths("stat", [](const char* path) { return stat(path, &status); });
    paths("lstat", [](const char* path) { return lstat(path, &status); });
    paths("fstatat", [](const char* path) { return fstatat(AT_FDCWD, path, &status, 0); });
    paths("fstatat of no flags", [](const char* path) { return fstatat(AT_FDCWD, path, &status, 0x40000000); });
    paths("fstatat of no folder", [](const char* path) { return fstatat(kNoFolder, path, &status, 0); });
    paths("statx", [](const char* path) { return statx(AT_FDCWD, path, 0, STATX_TYPE, &more); });
    paths("__xstat", [](const char* path) { return __xstat(1, path, &status); });
    paths("__lxstat", [](const char* path) { return __lxstat(1, path, &status); });
    paths("__fxstatat", [](const char* path) { return __fxstatat(1, AT_FDCWD, path, &status, 0); });
    paths("readlink", [](const char* path) { return readlink(path, buffer, sizeof(buffer)); });
    paths("readlink into no bytes", [](const char* path) { return readlink(path, buffer, 0); });
    paths("readlinkat", [](const char* path) { return readlinkat(AT_FDCWD, path, buffer, sizeof(buffer)); });
    paths("realpath", [](const char* path) { return of(realpath(path, buffer)); });
    paths("canonicalize_file_name", [](const char* path) { return of(canonicalize_file_name(path)); });
    paths("getxattr", [](const char* path) { return getxattr(path, "user.none", buffer, sizeof(buffer)); });
    paths("lgetxattr", [](const char* path) { return lgetxattr(path, "user.none", buffer, sizeof(buffer)); });
    paths("glob", [](const char* path) {
        glob_t found{};
        return glob(path, 0, nullptr, &found);
    });
    for (Pointer pointer : bad_pointers()) {
        const auto into = static_cast<struct stat*>(pointer.at);
        report("stat", "status " + pointer.name, [&] { return stat("/", into); });
        report("stat", "status of nothing " + pointer.name, [&] { return stat("/nowhere", into); });
        report("lstat", "status " + pointer.name, [&] { return lstat("/", into); });
        report("fstat", "status " + pointer.name, [&] { return fstat(0, into); });
        report("__fxstat", "status " + pointer.name, [&] { return __fxstat(1, 0, into); });
        report("fstatat", "status " + pointer.name, [&] { return fstatat(AT_FDCWD, "/", into, 0); });
        report("statx", "status " + pointer.name,
               [&] { return statx(AT_FDCWD, "/", 0, STATX_TYPE, static_cast<struct statx*>(pointer.at)); });
        report("readlink", "buffer " + pointer.name,
               [&] { return readlink("/proc/self/exe", static_cast<char*>(pointer.at), 100); });
        report("write", "data " + pointer.name, [&] { return write(eventfd(0, 0), pointer.at, 8); });
        report("write", "data for nobody " + pointer.name, [&] { return write(-1, pointer.at, 8); });
        report("fcntl", "lock " + pointer.name, [&] { return fcntl(0, F_GETLK, pointer.at); });
    }
}

// Waits for `file` in each call.
void waits(int file) {
    const pollfd asked{.fd = file, .events = POLLIN, .revents = 0};
    fd_set set;
    FD_ZERO(&set);
    FD_SET(file, &set);
    const size_t set_bytes = (static_cast<size_t>(file) + 64) / 64 * 8;
    const timespec soon{0, kTimeoutMs * 1'000'000};
    sigset_t mask;
    sigemptyset(&mask);
    const int epoll = epoll_create1(0);
    epoll_event event{.events = EPOLLIN, .data = {}};
    if (epoll_ctl(epoll, EPOLL_CTL_ADD, file, &event) != 0) peer::fail("epoll_ctl");

    const auto array = [&](const std::string& name, pollfd* files, nfds_t count) {
        report("poll", name, [&] { return poll(files, count, kTimeoutMs); });
        report("ppoll", name, [&] { return ppoll(files, count, &soon, &mask); });
        report("__poll_chk", name, [&] { return __poll_chk(files, count, kTimeoutMs, count * sizeof(pollfd)); });
    };
    const auto sets = [&](const std::string& name, int count, fd_set* read, fd_set* write) {
        report("select", name, [&] {
            timeval time{0, kTimeoutMs * 1000};
            return select(count, read, write, nullptr, &time);
        });
        report("pselect", name, [&] { return pselect(count, read, nullptr, write, &soon, &mask); });
    };
    std::vector<Pointer> pointers = bad_pointers();
    pointers.push_back({"that can only be read", memory.readable});
    for (const Pointer& pointer : pointers) {
        array("array " + pointer.name, static_cast<pollfd*>(pointer.at), 1);
        // Nothing is read or written.
        array("empty array " + pointer.name, static_cast<pollfd*>(pointer.at), 0);
        sets("set " + pointer.name, file + 1, static_cast<fd_set*>(pointer.at), nullptr);
        sets("second set " + pointer.name, file + 1, &set, static_cast<fd_set*>(pointer.at));
        FD_SET(file, &set);
        pollfd files = asked;
        const auto time = static_cast<timespec*>(pointer.at);
        const auto given = static_cast<sigset_t*>(pointer.at);
        if (pointer.at != nullptr) {  // it would wait for ever
            report("ppoll", "time " + pointer.name, [&] { return ppoll(&files, 1, time, nullptr); });
            report("pselect", "time " + pointer.name,
                   [&] { return pselect(file + 1, &set, nullptr, nullptr, time, nullptr); });
            FD_SET(file, &set);
            report("select", "time " + pointer.name,
                   [&] { return select(file + 1, &set, nullptr, nullptr, reinterpret_cast<timeval*>(time)); });
            FD_SET(file, &set);
            report("epoll_pwait2", "time " + pointer.name,
                   [&] { return epoll_pwait2(epoll, &event, 1, time, nullptr); });
        }
        report("ppoll", "mask " + pointer.name, [&] { return ppoll(&files, 1, &soon, given); });
        report("pselect", "mask " + pointer.name,
               [&] { return pselect(file + 1, &set, nullptr, nullptr, &soon, given); });
        FD_SET(file, &set);
        report("epoll_pwait", "mask " + pointer.name, [&] { return epoll_pwait(epoll, &event, 1, kTimeoutMs, given); });
        report("epoll_pwait2", "mask " + pointer.name, [&] { return epoll_pwait2(epoll, &event, 1, &soon, given); });
        report("epoll_wait", "events " + pointer.name,
               [&] { return epoll_wait(epoll, static_cast<epoll_event*>(pointer.at), 1, kTimeoutMs); });
        report("epoll_ctl", "event " + pointer.name,
               [&] { return epoll_ctl(epoll_create1(0), EPOLL_CTL_ADD, file, static_cast<epoll_event*>(pointer.at)); });
    }
    // Arrays and sets that end, or do not end, where memory does.
    for (nfds_t count : {1, 2, 100}) {
        const auto files = reinterpret_cast<pollfd*>(memory.at_end(sizeof(pollfd)));
        *files = asked;
        array("array of " + std::to_string(count), files, count);
    }
    const auto small = reinterpret_cast<fd_set*>(memory.at_end(set_bytes));
    std::memcpy(small, &set, set_bytes);
    sets("small set", file + 1, small, nullptr);
    std::memcpy(small, &set, set_bytes);
    sets("set that is too small", FD_SETSIZE, small, small);
    array("more than there may be", reinterpret_cast<pollfd*>(memory.writable), 1u << 30);
    for (const timespec& time : {timespec{0, 2'000'000'000}, {0, -1}, {-1, 0}}) {
        const std::string name = "time " + std::to_string(time.tv_sec) + "." + std::to_string(time.tv_nsec);
        pollfd files = asked;
        report("ppoll", name, [&] { return ppoll(&files, 1, &time, nullptr); });
        report("pselect", name, [&] { return pselect(file + 1, &set, nullptr, nullptr, &time, nullptr); });
        report("epoll_pwait2", name, [&] { return epoll_pwait2(epoll, &event, 1, &time, nullptr); });
        report("select", name, [&] {
            timeval same{time.tv_sec, time.tv_nsec};
            return time.tv_nsec > 0 ? 0 : select(file + 1, &set, nullptr, nullptr, &same);
        });
    }
    // The longest possible time, after which no call may return at once.
    FD_SET(0, &set);
    const timespec longest{INT64_MAX, 999'999'999};
    int ends[2];
    if (pipe(ends) != 0 || write(ends[1], "", 1) != 1) peer::fail("pipe");
    pollfd both[2] = {asked, {.fd = ends[0], .events = POLLIN, .revents = 0}};
    report("ppoll", "longest time", [&] { return ppoll(both, 2, &longest, nullptr); });
    report("poll", "no limit", [&] { return poll(both, 2, -1); });
}

}  // namespace

int main(int count, char** words) {
    if (count != 2) return 2;
    alarm(60);
    struct sigaction action {};
    action.sa_handler = [](int) { siglongjmp(before_call, 1); };
    action.sa_flags = SA_NODEFER;
    sigaction(SIGSEGV, &action, nullptr);
    int file = eventfd(0, 0);
    if (std::string(words[1]) == "channel") {
        static const peer::Device device("", 1);
        file = ibv_create_comp_channel(device.context)->fd;
    }
    // The kernel reads a part of a set that depends on how many files the process has had room for.
    constexpr int kOneSet = 64, kMany = 200;
    if (file < 0 || file >= kOneSet || dup2(file, kMany) != kMany) peer::fail("no file to wait for");
    files();
    waits(file);
    return 0;
}
