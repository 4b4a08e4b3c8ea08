// SPDX-License-Identifier: Apache-2.0
#include "fabric/flow_sizes.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <fstream>

namespace rove::fabric {

bool parse_number(std::string_view text, double& value) {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    return error == std::errc() && end == text.data() + text.size() && std::isfinite(value);
}

std::vector<std::string_view> words_of(std::string_view line) {
    constexpr std::string_view kBlank = " \t\r";
    line = line.substr(0, line.find('#'));
    std::vector<std::string_view> words;
    for (size_t at = 0; (at = line.find_first_not_of(kBlank, at)) != std::string_view::npos;) {
        const size_t end = std::min(line.find_first_of(kBlank, at), line.size());
        words.push_back(line.substr(at, end - at));
        at = end;
    }
    return words;
}

FlowSizes FlowSizes::read(std::istream& lines, const std::string& name) {
    constexpr const char* kAllowed =
        "two numbers, size in bytes and cumulative percentage, neither less than in the line before";
    FlowSizes made;
    std::string line;
    size_t number = 0;
    while (std::getline(lines, line)) {
        ++number;
        const std::vector<std::string_view> words = words_of(line);
        if (words.empty()) continue;
        Point point{};
        if (words.size() != 2 || !parse_number(words[0], point.bytes) || !parse_number(words[1], point.part) ||
            point.bytes < 0 || point.part < 0 || point.part > 100) {
            throw BadInput(name, number, "'" + line + "'", kAllowed);
        }
        if (!made.points_.empty() && (point.bytes < made.points_.back().bytes || point.part < made.points_.back().part))
            throw BadInput(name, number, "'" + line + "'", kAllowed);
        made.points_.push_back(point);
    }
    const double last = made.points_.empty() ? 0 : made.points_.back().part;
    if (last != 100 && last != 1) throw BadInput(name, number, "it ends", "a last line of 100 percent (or 1)");
    if (made.points_.back().bytes < 1) throw BadInput(name, number, "flows of nothing", "sizes of at least 1");
    for (Point& point : made.points_) point.part /= last;
    return made;
}

FlowSizes FlowSizes::load(const std::string& file) {
    std::ifstream lines(file);
    if (!lines) throw BadInput(file, 0, "it cannot be read", "a file of lines 'size cumulative'");
    return read(lines, file);
}

uint64_t FlowSizes::draw(Random& random) const {
    const double part = random.uniform();
    const auto above = std::ranges::upper_bound(points_, part, {}, &Point::part);
    if (above == points_.begin()) return std::max<uint64_t>(static_cast<uint64_t>(above->bytes), 1);
    if (above == points_.end()) return largest();
    const Point& below = *(above - 1);
    const double share = (part - below.part) / (above->part - below.part);
    const double bytes = below.bytes + share * (above->bytes - below.bytes);
    return std::max<uint64_t>(static_cast<uint64_t>(std::llround(bytes)), 1);
}

double FlowSizes::mean() const {
    double sum = points_.front().part * points_.front().bytes;
    for (size_t i = 1; i < points_.size(); ++i)
        sum += (points_[i].part - points_[i - 1].part) * (points_[i].bytes + points_[i - 1].bytes) / 2;
    return sum;
}

}  // namespace rove::fabric
