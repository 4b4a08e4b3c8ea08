// SPDX-License-Identifier: Apache-2.0
// A connection to redis: commands and their replies (redis.io/docs/reference/protocol-spec, RESP2). Units: bytes,
// nanoseconds of CLOCK_MONOTONIC.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "tent/config/config.h"
#include "tent/control/stream.h"

namespace rove::tent {

struct RedisReply {
    enum class Kind : uint8_t { kText, kNumber, kNothing, kList, kError };
    Kind kind = Kind::kError;
    std::string text;               // also the digits of a number, or the reason of an error
    std::vector<std::string> list;  // texts and numbers
};

class RedisSession {
  public:
    static constexpr size_t kMaxReply = 1 << 20, kMaxList = 16;

    // Opens a connection to "HOST" or "HOST:PORT", also with "redis://" or, for TLS, "rediss://" in front. The
    // environment has MC_REDIS_USERNAME, MC_REDIS_PASSWORD and MC_REDIS_DB_INDEX, as in Mooncake: a password does
    // not belong in a configuration file. Returns false on failure, with the reason in `*error`.
    bool open(const std::string& server, const StoreConfig& config, uint64_t deadline_ns, std::string* error);
    RedisReply ask(std::initializer_list<std::string_view> words, uint64_t deadline_ns);
    // Receives the next message, also one that no command asked for.
    RedisReply next(uint64_t deadline_ns);
    // Returns the number of the selected database.
    static std::string database();
    int fd() const { return stream_.fd(); }

  private:
    RedisReply read_list(const std::string& length, uint64_t deadline_ns);
    RedisReply read_text(const std::string& length, uint64_t deadline_ns);
    bool read_line(std::string* line, uint64_t deadline_ns);
    bool fill(size_t size, uint64_t deadline_ns);

    Stream stream_;
    std::string in_;
};

}  // namespace rove::tent
