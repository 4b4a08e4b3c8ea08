// SPDX-License-Identifier: Apache-2.0
// Requests of HTTP, by libcurl; with TLS to servers that are named https://.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tent/config/config.h"

namespace rove::tent {

struct HttpRequest {
    const char* method = "GET";
    std::string url, body;
    std::vector<std::string> headers;
};

struct HttpAnswer {
    long status = 0;
    std::string text;
};

// False: it had no answer within `timeout_ms`; `*error` says why. Answers of more than a mebibyte are none.
bool http_request(const HttpRequest& request, const StoreConfig& config, long timeout_ms, HttpAnswer* answer,
                  std::string* error);

// An answer that comes in pieces, and has no end of its own.
class HttpStream {
  public:
    HttpStream();
    ~HttpStream();
    HttpStream(const HttpStream&) = delete;
    HttpStream& operator=(const HttpStream&) = delete;

    // Calls `take` with each piece, until it returns false, the server ends the answer, or interrupt() is called. On a
    // thread that takes no SIGPIPE.
    void run(const HttpRequest& request, const StoreConfig& config, std::function<bool(std::string_view)> take);
    // Ends run(), also one that will begin. Any thread.
    void interrupt();
    bool is_interrupted() const { return interrupted_.load(); }

  private:
    void* const multi_;  // libcurl's
    std::atomic<bool> interrupted_{false};
};

// As in a query (RFC 3986).
std::string percent_encode(std::string_view text);

}  // namespace rove::tent
