// SPDX-License-Identifier: Apache-2.0
// HTTP requests by libcurl, with TLS to servers that are named https://.
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

// Returns false, with the reason in `*error`, if there is no answer within `timeout_ms`, or the answer is longer than
// 1 MiB.
bool http_request(const HttpRequest& request, const StoreConfig& config, long timeout_ms, HttpAnswer* answer,
                  std::string* error);

// An answer that comes in pieces and does not end by itself.
class HttpStream {
  public:
    HttpStream();
    ~HttpStream();
    HttpStream(const HttpStream&) = delete;
    HttpStream& operator=(const HttpStream&) = delete;

    // Calls `take` with each piece until it returns false, the server ends the answer, or interrupt() is called. The
    // calling thread must block SIGPIPE.
    void run(const HttpRequest& request, const StoreConfig& config, std::function<bool(std::string_view)> take);
    // Ends run(), also a later run(). Any thread may call it.
    void interrupt();
    bool is_interrupted() const { return interrupted_.load(); }

  private:
    void* const multi_;  // handle of libcurl
    std::atomic<bool> interrupted_{false};
};

// Encodes text for a query (RFC 3986).
std::string percent_encode(std::string_view text);

}  // namespace rove::tent
