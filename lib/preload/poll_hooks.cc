// SPDX-License-Identifier: Apache-2.0
// Hooks of the C library's functions that sleep on descriptors. If one of these is a completion channel, or an epoll
// set with a channel, the thread receives frames while it sleeps (runtime/watch.h). All other calls go to the next
// definition after a check of the descriptors. So do calls whose arguments the kernel refuses: bad pointers and invalid
// times. They exist only in the preloaded library.
#undef _FORTIFY_SOURCE
#include <poll.h>
#include <sys/epoll.h>
#include <sys/select.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <new>
#include <utility>

#include "base/libc.h"
#include "base/next_symbol.h"
#include "runtime/runtime.h"
#include "verbs/channel_files.h"
#include "verbs/process_provider.h"

extern "C" {
int __poll_chk(pollfd* files, nfds_t count, int timeout_ms, size_t bytes);
int __ppoll_chk(pollfd* files, nfds_t count, const timespec* timeout, const sigset_t* mask, size_t bytes);
// glibc 2.35 declares it; rove also runs with older releases.
int epoll_pwait2(int set, epoll_event* events, int most, const timespec* timeout, const sigset_t* mask);
}

namespace {

using namespace rove::verbs;
using rove::datapath::Runtime;
using rove::datapath::Watch;

__attribute__((constructor)) void look_up() {
    ROVE_NEXT(poll);
    ROVE_NEXT(ppoll);
    ROVE_NEXT(__poll_chk);
    ROVE_NEXT(__ppoll_chk);
    ROVE_NEXT(select);
    ROVE_NEXT(pselect);
    ROVE_NEXT(epoll_ctl);
    ROVE_NEXT(epoll_wait);
    ROVE_NEXT(epoll_pwait);
    ROVE_NEXT(epoll_pwait2);
}

constexpr uint64_t kMilli = 1'000'000, kSecond = 1'000'000'000;

uint64_t after_ns(const Runtime& runtime, uint64_t seconds, uint64_t ns) {
    const uint64_t now_ns = runtime.now_ns(), most = UINT64_MAX - now_ns;
    return seconds < most / kSecond - 1 && ns < kSecond ? now_ns + seconds * kSecond + ns : UINT64_MAX;
}
uint64_t after_ms(const Runtime& runtime, int ms) {
    return ms < 0 ? UINT64_MAX : runtime.now_ns() + static_cast<uint64_t>(ms) * kMilli;
}
uint64_t after(const Runtime& runtime, const timespec* time) {
    if (time == nullptr) return UINT64_MAX;
    return after_ns(runtime, static_cast<uint64_t>(time->tv_sec), static_cast<uint64_t>(time->tv_nsec));
}
uint64_t after(const Runtime& runtime, const timeval* time) {
    if (time == nullptr) return UINT64_MAX;
    constexpr uint64_t kMicros = 1'000'000;
    const auto micros = static_cast<uint64_t>(time->tv_usec);
    return after_ns(runtime, static_cast<uint64_t>(time->tv_sec) + micros / kMicros, micros % kMicros * 1000);
}

bool is_valid(const timespec* time) {
    if (time == nullptr) return true;
    return rove::libc::can_read(time, sizeof(*time)) && time->tv_sec >= 0 && time->tv_nsec >= 0 &&
           static_cast<uint64_t>(time->tv_nsec) < kSecond;
}
bool is_valid(const timeval* time) {
    if (time == nullptr) return true;
    return rove::libc::can_read(time, sizeof(*time)) && time->tv_sec >= 0 && time->tv_usec >= 0;
}
bool is_valid(const sigset_t* mask) {
    constexpr size_t kKernelsBytes = 8;
    return mask == nullptr || rove::libc::can_read(mask, kKernelsBytes);
}

// Returns the runtime, or null if the program has no channels or its threads cannot watch (Provider::watchable()).
Runtime* watchable() {
    return channel_files::exist() ? provider().watchable() : nullptr;
}

// Sleeps on `files`, which must have space for one element more than `count`. Returns when `look()` returns a result
// other than 0, or at `until_ns`. `look()` makes the program's request to the kernel without waiting. Returns its last
// result, or -1 and errno.
template <class Look>
int watch_until(Runtime& runtime, pollfd* files, nfds_t count, uint64_t until_ns, const sigset_t* mask, Look look) {
    constexpr uint32_t kRoundsPerLook = 16;  // one look takes about 0.2 us, as long as several empty rounds
    Watch watch(runtime);
    for (;;) {
        int result = 0;
        uint32_t rounds = 0;
        const uint32_t events = channel_files::events();
        watch.spin([&] {
            if (channel_files::events() == events && ++rounds % kRoundsPerLook != 0) return false;
            return (result = look()) != 0;
        });
        if (result == 0) result = look();
        if (result != 0 || watch.now_ns() >= until_ns) return result;
        if (watch.sleep(files, count, until_ns, mask) < 0) return -1;
    }
}

void mark_seen(const pollfd* files, nfds_t count) {
    for (nfds_t i = 0; i < count; ++i) {
        if (channel_files::is_channel(files[i].fd)) channel_files::seen(files[i].fd);
        if (channel_files::is_epoll_set(files[i].fd)) channel_files::epoll_set_seen();
    }
}

bool has_channel(const pollfd* files, nfds_t count) {
    return std::any_of(files, files + count, [](const pollfd& file) {
        return channel_files::is_channel(file.fd) || channel_files::is_epoll_set(file.fd);
    });
}

// Returns the runtime if the descriptors include a channel, else null, and the call goes to the C library.
Runtime* concerned(const pollfd* files, nfds_t count) {
    Runtime* const runtime = watchable();
    if (runtime == nullptr || count > channel_files::kMaxFiles) return nullptr;
    return rove::libc::can_read(files, count * sizeof(pollfd)) && has_channel(files, count) ? runtime : nullptr;
}

int poll_channels(Runtime& runtime, pollfd* files, nfds_t count, uint64_t until_ns, const sigset_t* mask) {
    constexpr nfds_t kFew = 64;
    mark_seen(files, count);
    std::array<pollfd, kFew + 1> few{};
    const std::unique_ptr<pollfd[]> many(count > kFew ? new (std::nothrow) pollfd[count + 1] : nullptr);
    pollfd* const all = count > kFew ? many.get() : few.data();
    if (all == nullptr) {
        errno = ENOMEM;
        return -1;
    }
    std::copy_n(files, count, all);
    return watch_until(runtime, all, count, until_ns, mask, [&] { return ROVE_NEXT(poll)(files, count, 0); });
}

struct Sets {
    fd_set *read, *write, *except;
};

// Returns the number of bytes of a set that the kernel reads.
size_t bytes_of_set(int count) {
    return (static_cast<size_t>(count) + 63) / 64 * 8;
}

// Does the same for the sets of select().
Runtime* concerned(int count, const Sets& sets) {
    Runtime* const runtime = watchable();
    if (runtime == nullptr || sets.read == nullptr || count < 0 || count > FD_SETSIZE) return nullptr;
    for (const fd_set* set : {sets.read, sets.write, sets.except})
        if (set != nullptr && !rove::libc::can_read(set, bytes_of_set(count))) return nullptr;
    for (int file = 0; file < count; ++file)
        if (FD_ISSET(file, sets.read) && (channel_files::is_channel(file) || channel_files::is_epoll_set(file)))
            return runtime;
    return nullptr;
}

int select_channels(Runtime& runtime, int count, const Sets& sets, uint64_t until_ns, const sigset_t* mask) {
    std::array<pollfd, FD_SETSIZE + 1> files{};
    nfds_t used = 0;
    for (int file = 0; file < count; ++file) {
        const auto asked = [&](const fd_set* set) { return set != nullptr && FD_ISSET(file, set); };
        const int events =
            (asked(sets.read) ? POLLIN : 0) | (asked(sets.write) ? POLLOUT : 0) | (asked(sets.except) ? POLLPRI : 0);
        if (events != 0) files[used++] = {.fd = file, .events = static_cast<short>(events), .revents = 0};
    }
    mark_seen(files.data(), used);
    const size_t bytes = bytes_of_set(count);
    const auto copy = [bytes](fd_set* to, const fd_set* from) {
        if (to != nullptr && from != nullptr) std::memcpy(to, from, bytes);
    };
    fd_set read, write, except;
    copy(&read, sets.read);
    copy(&write, sets.write);
    copy(&except, sets.except);
    bool is_first = true;
    return watch_until(runtime, files.data(), used, until_ns, mask, [&] {
        // The first call of the kernel has shown that the program's sets are writable.
        if (!std::exchange(is_first, false)) {
            copy(sets.read, &read);
            copy(sets.write, &write);
            copy(sets.except, &except);
        }
        timeval none{};
        return ROVE_NEXT(select)(count, sets.read, sets.write, sets.except, &none);
    });
}

int wait_channels(Runtime& runtime, int set, epoll_event* events, int most, uint64_t until_ns, const sigset_t* mask) {
    channel_files::epoll_set_seen();
    pollfd files[2] = {{.fd = set, .events = POLLIN, .revents = 0}, {}};
    return watch_until(runtime, files, 1, until_ns, mask, [&] { return ROVE_NEXT(epoll_wait)(set, events, most, 0); });
}

// Does the same for an epoll set.
Runtime* concerned(int set) {
    return channel_files::is_epoll_set(set) ? watchable() : nullptr;
}

}  // namespace

extern "C" {

// The C library declares that these two only write to `files`, and gcc warns of a function that reads it. So they have
// other names here.
__attribute__((visibility("default"))) int hook_poll(pollfd* files, nfds_t count, int timeout_ms) asm("poll");
__attribute__((visibility("default"))) int hook_ppoll(pollfd* files, nfds_t count, const timespec* timeout,
                                                      const sigset_t* mask) asm("ppoll");

// Inlined in the checked variant too. A call of it would use the symbol's name, and reach a library that is preloaded
// before this one.
[[gnu::always_inline]] static inline int poll_files(pollfd* files, nfds_t count, int timeout_ms) {
    if (Runtime* const runtime = concerned(files, count)) [[unlikely]]
        return poll_channels(*runtime, files, count, after_ms(*runtime, timeout_ms), nullptr);
    return ROVE_NEXT(poll)(files, count, timeout_ms);
}

int hook_poll(pollfd* files, nfds_t count, int timeout_ms) {
    return poll_files(files, count, timeout_ms);
}

int __poll_chk(pollfd* files, nfds_t count, int timeout_ms, size_t bytes) {
    if (count > bytes / sizeof(pollfd)) return ROVE_NEXT(__poll_chk)(files, count, timeout_ms, bytes);
    return poll_files(files, count, timeout_ms);
}

[[gnu::always_inline]] static inline int ppoll_files(pollfd* files, nfds_t count, const timespec* timeout,
                                                     const sigset_t* mask) {
    if (Runtime* const runtime = concerned(files, count); runtime != nullptr && is_valid(timeout) && is_valid(mask))
        [[unlikely]]
        return poll_channels(*runtime, files, count, after(*runtime, timeout), mask);
    return ROVE_NEXT(ppoll)(files, count, timeout, mask);
}

int hook_ppoll(pollfd* files, nfds_t count, const timespec* timeout, const sigset_t* mask) {
    return ppoll_files(files, count, timeout, mask);
}

int __ppoll_chk(pollfd* files, nfds_t count, const timespec* timeout, const sigset_t* mask, size_t bytes) {
    if (count > bytes / sizeof(pollfd)) return ROVE_NEXT(__ppoll_chk)(files, count, timeout, mask, bytes);
    return ppoll_files(files, count, timeout, mask);
}

// Linux writes the remaining time to `timeout`.
int select(int count, fd_set* read, fd_set* write, fd_set* except, timeval* timeout) {
    const Sets sets{read, write, except};
    Runtime* const runtime = concerned(count, sets);
    if (runtime == nullptr || !is_valid(timeout)) [[likely]]
        return ROVE_NEXT(select)(count, read, write, except, timeout);
    const uint64_t until_ns = after(*runtime, timeout);
    const int result = select_channels(*runtime, count, sets, until_ns, nullptr);
    if (timeout != nullptr) {
        const uint64_t now_ns = runtime->now_ns(), left_ns = until_ns > now_ns ? until_ns - now_ns : 0;
        *timeout = {static_cast<time_t>(left_ns / kSecond), static_cast<suseconds_t>(left_ns % kSecond / 1000)};
    }
    return result;
}

int pselect(int count, fd_set* read, fd_set* write, fd_set* except, const timespec* timeout, const sigset_t* mask) {
    const Sets sets{read, write, except};
    Runtime* const runtime = concerned(count, sets);
    if (runtime == nullptr || !is_valid(timeout) || !is_valid(mask)) [[likely]]
        return ROVE_NEXT(pselect)(count, read, write, except, timeout, mask);
    return select_channels(*runtime, count, sets, after(*runtime, timeout), mask);
}

int epoll_ctl(int set, int operation, int file, epoll_event* event) {
    if (operation == EPOLL_CTL_ADD && channel_files::is_channel(file)) channel_files::add_to_epoll_set(set, file);
    return ROVE_NEXT(epoll_ctl)(set, operation, file, event);
}

int epoll_wait(int set, epoll_event* events, int most, int timeout_ms) {
    if (Runtime* const runtime = concerned(set)) [[unlikely]]
        return wait_channels(*runtime, set, events, most, after_ms(*runtime, timeout_ms), nullptr);
    return ROVE_NEXT(epoll_wait)(set, events, most, timeout_ms);
}

int epoll_pwait(int set, epoll_event* events, int most, int timeout_ms, const sigset_t* mask) {
    if (Runtime* const runtime = concerned(set); runtime != nullptr && is_valid(mask)) [[unlikely]]
        return wait_channels(*runtime, set, events, most, after_ms(*runtime, timeout_ms), mask);
    return ROVE_NEXT(epoll_pwait)(set, events, most, timeout_ms, mask);
}

int epoll_pwait2(int set, epoll_event* events, int most, const timespec* timeout, const sigset_t* mask) {
    if (Runtime* const runtime = concerned(set); runtime != nullptr && is_valid(timeout) && is_valid(mask)) [[unlikely]]
        return wait_channels(*runtime, set, events, most, after(*runtime, timeout), mask);
    return ROVE_NEXT(epoll_pwait2)(set, events, most, timeout, mask);
}

}  // extern "C"
