// SPDX-License-Identifier: Apache-2.0
// Counters and gauges read at equal intervals: goodput, marks or a queue's length over time. Units: picoseconds.
#pragma once

#include "fabric/network.h"

namespace rove::fabric {

class Sampler {
  public:
    // Reads everything every `interval` from now on, as long as the network runs. It must live until it has run for the
    // last time.
    Sampler(Network& network, Time interval) : network_(network), interval_(interval) { take(); }
    Sampler(const Sampler&) = delete;

    // Adds a column; before the network runs. Returns its number.
    size_t watch(std::function<uint64_t()> read) {
        rows_.front().push_back(read());
        columns_.push_back(std::move(read));
        return columns_.size() - 1;
    }

    // Row 0 is the start, row i the reading after i intervals.
    size_t rows() const { return rows_.size(); }
    uint64_t value(size_t row, size_t column) const { return rows_[row][column]; }
    // Of a counter, from the row before.
    uint64_t growth(size_t row, size_t column) const { return value(row, column) - value(row - 1, column); }
    // Of a counter of bytes, in the interval that ends with `row`.
    double bits_per_s(size_t row, size_t column) const {
        return static_cast<double>(growth(row, column)) * 8 * static_cast<double>(kSecond) /
               static_cast<double>(interval_);
    }

  private:
    void take() {
        std::vector<uint64_t>& row = rows_.emplace_back();
        for (const auto& read : columns_) row.push_back(read());
        network_.at(network_.now() + interval_, [this] { take(); });
    }

    Network& network_;
    Time interval_;
    std::vector<std::function<uint64_t()>> columns_;
    std::vector<std::vector<uint64_t>> rows_;
};

}  // namespace rove::fabric
