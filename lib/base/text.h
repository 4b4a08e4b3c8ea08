// SPDX-License-Identifier: Apache-2.0
// Text for log lines.
#pragma once

#include <algorithm>
#include <cctype>
#include <string>
#include <system_error>

namespace rove {

// What errno says, as strerror() has it.
inline std::string reason_of(int error) {
    return std::generic_category().message(error);
}

// What somebody else has written, without what a terminal would obey.
inline std::string printable(std::string text) {
    std::replace_if(
        text.begin(), text.end(), [](unsigned char c) { return std::isprint(c) == 0; }, '?');
    return text;
}

}  // namespace rove
