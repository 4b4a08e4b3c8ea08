// SPDX-License-Identifier: Apache-2.0
// Flow size distributions as published for data centres, in the format of ns-3's and HPCC's generators. Units: bytes.
#pragma once

#include <istream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "fabric/random.h"

namespace rove::fabric {

// An input file cannot be used. The message has file, line, and the allowed syntax.
class BadInput : public std::runtime_error {
  public:
    BadInput(const std::string& file, size_t line, const std::string& found, const std::string& allowed)
        : std::runtime_error(file + ":" + std::to_string(line) + ": " + found + "; allowed: " + allowed) {}
};

class FlowSizes {
  public:
    // Reads lines of `size cumulative`: ascending sizes, and the percentage of flows that are at most that large, from
    // 0 to 100. Between two lines sizes are equally likely. Fractions up to 1 are accepted as well, and `#` begins a
    // comment. `name` is for messages. Throws BadInput.
    static FlowSizes read(std::istream& lines, const std::string& name);
    static FlowSizes load(const std::string& file);

    // Returns a random size, at least 1.
    uint64_t draw(Random& random) const;
    double mean() const;
    uint64_t largest() const { return static_cast<uint64_t>(points_.back().bytes); }

  private:
    struct Point {
        double bytes, part;  // 0 to 1
    };
    std::vector<Point> points_;
};

// Parses all of `text` as a number. Returns false if it is not a number.
bool parse_number(std::string_view text, double& value);
// Returns the words of a line without its comment.
std::vector<std::string_view> words_of(std::string_view line);

}  // namespace rove::fabric
