// SPDX-License-Identifier: Apache-2.0
// See log.h.
#include "tent/observability/log.h"

#include <strings.h>
#include <time.h>

#include <array>
#include <cinttypes>
#include <cstdarg>
#include <cstdio>
#include <string>

namespace rove::tent {

namespace {

constexpr std::array<const char*, 4> kNames{"error", "warning", "info", "debug"};
std::atomic<LogLevel> most{LogLevel::kWarning};

bool is_said(LogLevel level) {
    return level <= most.load(std::memory_order_relaxed);
}

// Makes a single write, so that the lines of several threads do not mix.
void write_line(LogLevel level, const char* format, va_list arguments, uint64_t left_out) {
    std::array<char, 1024> text;
    const int length = std::vsnprintf(text.data(), text.size(), format, arguments);
    if (length < 0) return;
    std::array<char, 64> more{};
    if (left_out != 0) std::snprintf(more.data(), more.size(), " (and %" PRIu64 " more of this kind)", left_out);
    std::fprintf(stderr, "rove-tent: %s: %s%s\n", kNames[static_cast<size_t>(level)], text.data(), more.data());
}

}  // namespace

std::optional<LogLevel> parse_log_level(std::string_view name) {
    const std::string text(name == "TRACE" ? "debug" : name);  // the name in MC_LOG_LEVEL
    for (size_t i = 0; i < kNames.size(); ++i)
        if (strcasecmp(text.c_str(), kNames[i]) == 0) return static_cast<LogLevel>(i);
    return std::nullopt;
}

void set_log_level(LogLevel level) {
    most.store(level, std::memory_order_relaxed);
}

bool LogLimit::take(uint64_t now_ns, uint64_t* left_out) {
    uint64_t begun = begun_ns_.load();
    if ((begun == 0 || now_ns - begun >= kSpanNs) && begun_ns_.compare_exchange_strong(begun, now_ns)) said_.store(0);
    if (said_.fetch_add(1) >= kLines) {
        left_out_.fetch_add(1);
        return false;
    }
    *left_out = left_out_.exchange(0);
    return true;
}

void log(LogLevel level, const char* format, ...) {
    if (!is_said(level)) return;
    va_list arguments;
    va_start(arguments, format);
    write_line(level, format, arguments, 0);
    va_end(arguments);
}

void log(LogLimit& limit, LogLevel level, const char* format, ...) {
    if (!is_said(level)) return;
    timespec now{};
    clock_gettime(CLOCK_MONOTONIC, &now);
    uint64_t left_out = 0;
    if (!limit.take(static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec), &left_out))
        return;
    va_list arguments;
    va_start(arguments, format);
    write_line(level, format, arguments, left_out);
    va_end(arguments);
}

}  // namespace rove::tent
