// SPDX-License-Identifier: Apache-2.0
// The ranges that a commented example of config/ gives for its keys: "# key = 32  # 1..4096: packets".
#pragma once

#include <cstdio>
#include <fstream>
#include <string>
#include <vector>

namespace rove {

struct DocumentedRange {
    std::string table, key;  // such as "transport.paths" and "delta"
    long least = 0, most = 0;

    std::string text() const { return std::to_string(least) + ".." + std::to_string(most); }
    // Returns a value out of the range.
    std::string above() const { return std::to_string(most + 1); }
};

inline std::vector<DocumentedRange> documented_ranges(const std::string& file) {
    std::vector<DocumentedRange> ranges;
    std::string table;
    std::ifstream lines(file);
    for (std::string line; std::getline(lines, line);) {
        if (line.starts_with("# ")) line.erase(0, 2);
        if (line.starts_with('[')) table = line.substr(line.rfind('[', line.find(']')) + 1);
        table = table.substr(0, table.find(']'));
        const size_t equals = line.find(" = "), comment = line.find('#', equals), dots = line.find("..", comment);
        if (equals == line.npos || comment == line.npos || dots == line.npos) continue;
        const size_t start = line.find_last_not_of("0123456789", dots - 1) + 1;
        DocumentedRange range{table, line.substr(0, equals)};
        if (std::sscanf(line.c_str() + start, "%ld..%ld", &range.least, &range.most) == 2) ranges.push_back(range);
    }
    return ranges;
}

}  // namespace rove
