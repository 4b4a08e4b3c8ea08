// SPDX-License-Identifier: Apache-2.0
// What the engine says on standard error: "rove-tent: warning: ...", a line each.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <string_view>

namespace rove::tent {

enum class LogLevel : uint8_t { kError, kWarning, kInfo, kDebug };
std::optional<LogLevel> parse_log_level(std::string_view name);  // "error", "warning", ... in any case
// Of the process, whose engines share standard error: what is less grave is not said.
void set_log_level(LogLevel level);

// One place in the code that may have much to say: it says 10 lines in 10 s; how many were left out stands at the end
// of the next line.
class LogLimit {
  public:
    static constexpr uint32_t kLines = 10;
    static constexpr uint64_t kSpanNs = 10'000'000'000;

    // Whether to say a line at `now_ns`; then `*left_out` is how many were not said before it.
    bool take(uint64_t now_ns, uint64_t* left_out);

  private:
    std::atomic<uint64_t> begun_ns_{0};
    std::atomic<uint32_t> said_{0};
    std::atomic<uint64_t> left_out_{0};
};

[[gnu::format(printf, 2, 3)]] void log(LogLevel level, const char* format, ...);
// For what peers, devices or programs may bring about again and again.
[[gnu::format(printf, 3, 4)]] void log(LogLimit& limit, LogLevel level, const char* format, ...);

}  // namespace rove::tent
