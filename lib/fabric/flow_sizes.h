// SPDX-License-Identifier: Apache-2.0
// How large flows are: distributions as published for datacenters, in the format of ns-3's and HPCC's generators.
// Units: bytes.
#pragma once

#include <istream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "fabric/random.h"

namespace rove::fabric {

// What somebody else has written cannot be used. Says file, line, and what is allowed there.
class BadInput : public std::runtime_error {
  public:
    BadInput(const std::string& file, size_t line, const std::string& found, const std::string& allowed)
        : std::runtime_error(file + ":" + std::to_string(line) + ": " + found + "; allowed: " + allowed) {}
};

class FlowSizes {
  public:
    // Lines of `size cumulative`: sizes that ascend, with the percentage of flows that are at most so large, from 0 to
    // 100; between two lines sizes are equally likely. Fractions up to 1 are understood as well. `#` begins a comment.
    // `name` is for messages. Throws BadInput.
    static FlowSizes read(std::istream& lines, const std::string& name);
    static FlowSizes load(const std::string& file);

    // At least 1.
    uint64_t draw(Random& random) const;
    double mean() const;
    uint64_t largest() const { return static_cast<uint64_t>(points_.back().bytes); }

  private:
    struct Point {
        double bytes, part;  // 0 to 1
    };
    std::vector<Point> points_;
};

// A number, all of `text`. False: it is none.
bool parse_number(std::string_view text, double& value);
// The words of a line without its comment.
std::vector<std::string_view> words_of(std::string_view line);

}  // namespace rove::fabric
