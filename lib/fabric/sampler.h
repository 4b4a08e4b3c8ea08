// SPDX-License-Identifier: Apache-2.0
// Samples counters and gauges at equal intervals: goodput, marks or queue lengths over time. Units: picoseconds.
#pragma once

#include "fabric/network.h"

namespace rove::fabric {

class Sampler {
  public:
    // Samples every `interval` from now on while the network runs. The sampler must outlive the network's last run.
    Sampler(Network& network, Time interval) : network_(network), interval_(interval) { take(); }
    Sampler(const Sampler&) = delete;

    // Adds a column, before the network runs, and returns its number.
    size_t watch(std::function<uint64_t()> read) {
        rows_.front().push_back(read());
        columns_.push_back(std::move(read));
        return columns_.size() - 1;
    }

    // Row 0 is the start, and row i the sample after i intervals.
    size_t rows() const { return rows_.size(); }
    uint64_t value(size_t row, size_t column) const { return rows_[row][column]; }
    // Returns the increase of a counter since the row before.
    uint64_t growth(size_t row, size_t column) const { return value(row, column) - value(row - 1, column); }
    // Returns the rate of a byte counter in the interval that ends with `row`.
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
