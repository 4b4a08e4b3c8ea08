// SPDX-License-Identifier: Apache-2.0
// Counts values by size, with a bucket for each power of two.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace rove::tent {

class Histogram {
  public:
    // Bucket i counts the values up to 2^i that no earlier bucket counts. The last bucket counts all greater values
    // too.
    static constexpr size_t kBuckets = 48;

    void add(uint64_t value) {
        ++counts_[std::min<size_t>(static_cast<size_t>(std::bit_width(value - (value != 0))), kBuckets - 1)];
        sum_ += value;
        greatest_ = std::max(greatest_, value);
    }
    // Adds all values of another histogram.
    void add(const Histogram& other) {
        for (size_t i = 0; i < kBuckets; ++i) counts_[i] += other.counts_[i];
        sum_ += other.sum_;
        greatest_ = std::max(greatest_, other.greatest_);
    }
    uint64_t count_up_to(size_t bucket) const {
        uint64_t count = 0;
        for (size_t i = 0; i <= bucket; ++i) count += counts_[i];
        return count;
    }
    uint64_t count() const { return count_up_to(kBuckets - 1); }
    uint64_t sum() const { return sum_; }
    uint64_t greatest() const { return greatest_; }  // 0 if there were no values
    // Returns a value that the fraction `share` of all values do not exceed. It is at most twice the least such value,
    // and 0 if there were no values.
    uint64_t quantile(double share) const {
        const uint64_t all = count();
        uint64_t seen = 0;
        for (size_t i = 0; all != 0 && i < kBuckets; ++i)
            if (static_cast<double>(seen += counts_[i]) >= share * static_cast<double>(all)) return uint64_t{1} << i;
        return 0;
    }

  private:
    std::array<uint64_t, kBuckets> counts_{};
    uint64_t sum_ = 0, greatest_ = 0;
};

// Histograms of the requests of a priority that a transport completed.
struct RequestHistograms {
    Histogram latency_ns;  // from submitTransfer() to the last byte
    Histogram bytes;

    void add(const RequestHistograms& other) {
        latency_ns.add(other.latency_ns);
        bytes.add(other.bytes);
    }
};

}  // namespace rove::tent
