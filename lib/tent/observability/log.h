// SPDX-License-Identifier: Apache-2.0
// Messages of the engine on standard error, such as "rove-tent: warning: ...", one line each.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <string_view>

namespace rove::tent {

enum class LogLevel : uint8_t { kError, kWarning, kInfo, kDebug };
std::optional<LogLevel> parse_log_level(std::string_view name);  // "error", "warning", ..., in upper or lower case
// Sets the level of the process, since its engines share standard error. Less severe messages are suppressed.
void set_log_level(LogLevel level);

// Limits the messages from one place in the code to 10 lines in 10 s. The next line that is written ends with the
// number of suppressed ones.
class LogLimit {
  public:
    static constexpr uint32_t kLines = 10;
    static constexpr uint64_t kSpanNs = 10'000'000'000;

    // Returns true if a line may be written at `now_ns`. `*left_out` is then the number of lines suppressed before it.
    bool take(uint64_t now_ns, uint64_t* left_out);

  private:
    std::atomic<uint64_t> begun_ns_{0};
    std::atomic<uint32_t> said_{0};
    std::atomic<uint64_t> left_out_{0};
};

[[gnu::format(printf, 2, 3)]] void log(LogLevel level, const char* format, ...);
// For messages that peers, devices or programs can cause repeatedly.
[[gnu::format(printf, 3, 4)]] void log(LogLimit& limit, LogLevel level, const char* format, ...);

}  // namespace rove::tent
