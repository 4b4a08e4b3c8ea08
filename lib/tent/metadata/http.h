// SPDX-License-Identifier: Apache-2.0
// Requests of HTTP, by libcurl; with TLS to servers that are named https://.
#pragma once

#include <string>
#include <vector>

#include "tent/config.h"

namespace rove::tent {

struct HttpAnswer {
    long status = 0;
    std::string text;
};

// False: it had no answer within `timeout_ms`; `*error` says why. Answers of more than a mebibyte are none.
bool http_request(const char* method, const std::string& url, const std::string& body,
                  const std::vector<std::string>& headers, const StoreConfig& config, long timeout_ms,
                  HttpAnswer* answer, std::string* error);

// As in a query (RFC 3986).
std::string percent_encode(std::string_view text);

}  // namespace rove::tent
