// SPDX-License-Identifier: Apache-2.0
// Implements case.h.
#include "case.h"

#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstring>

namespace conformance {

namespace {

std::string formatted(const char* format, va_list arguments) {
    char text[1000];
    std::vsnprintf(text, sizeof(text), format, arguments);
    return text;
}

std::string place(const char* file, int line) {
    const char* slash = std::strrchr(file, '/');
    return std::string(slash != nullptr ? slash + 1 : file) + ":" + std::to_string(line) + ": ";
}

}  // namespace

std::vector<Case>& cases() {
    static std::vector<Case> cases;
    return cases;
}

bool Peer::has_input() const {
    pollfd readable{fd_, POLLIN, 0};
    return poll(&readable, 1, 0) == 1;
}

void Peer::send(const void* data, size_t bytes) {
    if (::send(fd_, data, bytes, MSG_NOSIGNAL) != static_cast<ssize_t>(bytes))
        throw Failure("the other process has gone");
}

void Peer::receive(void* data, size_t bytes) {
    while (bytes > 0) {
        const ssize_t got = recv(fd_, data, bytes, 0);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) throw Failure("the other process has gone");
        data = static_cast<char*>(data) + got;
        bytes -= static_cast<size_t>(got);
    }
}

void fail(const char* format, ...) {
    va_list arguments;
    va_start(arguments, format);
    std::string text = formatted(format, arguments);
    va_end(arguments);
    throw Failure(text);
}

void skip(const char* format, ...) {
    va_list arguments;
    va_start(arguments, format);
    std::string text = formatted(format, arguments);
    va_end(arguments);
    throw Skip(text);
}

void fail_at(const char* file, int line, const char* condition, const char* format, ...) {
    va_list arguments;
    va_start(arguments, format);
    std::string text = formatted(format, arguments);
    va_end(arguments);
    throw Failure(place(file, line) + "expected " + condition + "; " + text);
}

void fail_at(const char* file, int line, const char* condition) {
    throw Failure(place(file, line) + "expected " + condition);
}

void expect_error(const char* file, int line, const char* call, int got, int expected) {
    if (got == expected) return;
    const std::string wanted = expected == 0 ? "success" : std::strerror(expected);
    throw Failure(place(file, line) + call + ": expected " + wanted + ", got " +
                  (got == 0  ? "success"
                   : got < 0 ? std::to_string(got) + " (errno: " + std::strerror(errno) + ")"
                             : std::strerror(got)));
}

void expect_refused(const char* file, int line, const char* call, const void* got,
                    std::initializer_list<int> expected) {
    const int reason = errno;
    if (got == nullptr) {
        for (int error : expected) {
            if (error == reason) return;
        }
    }
    std::string wanted;
    for (int error : expected) wanted += std::string(wanted.empty() ? "" : " or ") + std::strerror(error);
    throw Failure(place(file, line) + call + ": expected NULL and " + wanted + ", got " +
                  (got != nullptr ? "an object" : std::strerror(reason)));
}

}  // namespace conformance
