// SPDX-License-Identifier: Apache-2.0
// Text for log lines.
#pragma once

#include <algorithm>
#include <cctype>
#include <string>
#include <system_error>

namespace rove {

// Returns the message of an errno value, as strerror() does.
inline std::string reason_of(int error) {
    return std::generic_category().message(error);
}

// Returns text from outside with its unprintable characters replaced, so that a terminal does not interpret them.
inline std::string printable(std::string text) {
    std::replace_if(
        text.begin(), text.end(), [](unsigned char c) { return std::isprint(c) == 0; }, '?');
    return text;
}

}  // namespace rove
