// SPDX-License-Identifier: Apache-2.0
// A case tests one rule of verbs on a device. Its name is `theme/rule`, where the theme is its file.
//
// - CASE(theme, rule) runs in one process, in which a device may already be open. Both ends of a connection are in this
//   process.
// - PAIR(theme, rule) runs in two processes at the same time. `peer` connects them, and peer.first tells them apart.
// - DOOMED(theme, rule) is a PAIR whose second process is killed by SIGKILL. Its processes have called no verbs
//   function before.
// - ALONE(theme, rule) runs in its own process, which has called no verbs function before.
//
// The cases run on any device. skip() ends a case that the device does not offer, and its text is the reason. rove
// itself may skip only the cases that SKIPPED in tests/system/test_conformance.py lists with their reasons; any other
// skip fails its run.
//
// A case fails if it throws an exception (EXPECT, fail()), if it leaves objects that cannot be destroyed, or if its
// process dies or hangs.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

namespace conformance {

struct Failure : std::runtime_error {
    using std::runtime_error::runtime_error;
};
struct Skip : std::runtime_error {
    using std::runtime_error::runtime_error;
};

// One side of a PAIR, connected with the other process by a stream socket.
class Peer {
  public:
    bool first = true;

    explicit Peer(int fd) : fd_(fd) {}
    template <typename T>
    T exchange(const T& mine) {
        static_assert(std::is_trivially_copyable_v<T>);
        T theirs;
        send(&mine, sizeof(mine));
        receive(&theirs, sizeof(theirs));
        return theirs;
    }
    void barrier() { exchange<char>('b'); }
    // Returns true if the other process has sent data or has ended. Does not block.
    bool has_input() const;

  private:
    void send(const void* data, size_t bytes);
    void receive(void* data, size_t bytes);

    int fd_;
};

enum class Kind { kOne, kPair, kDoomed, kAlone };

struct Case {
    const char* theme;
    const char* rule;
    Kind kind;
    void (*body)(Peer& peer);

    std::string name() const { return std::string(theme) + "/" + rule; }
};

std::vector<Case>& cases();

struct Registered {
    Registered(const char* theme, const char* rule, Kind kind, void (*body)(Peer&)) {
        cases().push_back({theme, rule, kind, body});
    }
};

[[noreturn]] void fail(const char* format, ...) __attribute__((format(printf, 1, 2)));
[[noreturn]] void skip(const char* format, ...) __attribute__((format(printf, 1, 2)));

}  // namespace conformance

#define CONFORMANCE_CASE(theme, rule, kind)                                                                  \
    static void theme##_##rule(conformance::Peer& peer);                                                     \
    static const conformance::Registered registered_##theme##_##rule(#theme, #rule, conformance::Kind::kind, \
                                                                     theme##_##rule);                        \
    static void theme##_##rule([[maybe_unused]] conformance::Peer& peer)
#define CASE(theme, rule) CONFORMANCE_CASE(theme, rule, kOne)
#define PAIR(theme, rule) CONFORMANCE_CASE(theme, rule, kPair)
#define DOOMED(theme, rule) CONFORMANCE_CASE(theme, rule, kDoomed)
#define ALONE(theme, rule) CONFORMANCE_CASE(theme, rule, kAlone)

// EXPECT(condition, "format", ...) fails with the line, the condition, and the formatted text.
#define EXPECT(condition, ...)                                                                             \
    do {                                                                                                   \
        if (!(condition)) conformance::fail_at(__FILE__, __LINE__, #condition __VA_OPT__(, ) __VA_ARGS__); \
    } while (0)
// Checks a call that returns 0 or an errno value.
#define EXPECT_ERROR(call, expected) conformance::expect_error(__FILE__, __LINE__, #call, (call), (expected))
#define EXPECT_OK(call) EXPECT_ERROR(call, 0)
// Checks a call that returns NULL and sets errno.
#define EXPECT_REFUSED(call, ...) \
    conformance::expect_refused(__FILE__, __LINE__, #call, (errno = 0, (call)), {__VA_ARGS__})

namespace conformance {
[[noreturn]] void fail_at(const char* file, int line, const char* condition, const char* format, ...)
    __attribute__((format(printf, 4, 5)));
[[noreturn]] void fail_at(const char* file, int line, const char* condition);
void expect_error(const char* file, int line, const char* call, int got, int expected);
// Fails unless `got` is NULL and errno is one of `expected`.
void expect_refused(const char* file, int line, const char* call, const void* got, std::initializer_list<int> expected);
}  // namespace conformance
