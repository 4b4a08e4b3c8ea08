// SPDX-License-Identifier: Apache-2.0
// Counts latencies in log-linear buckets, like HdrHistogram, whose C library Debian 12 does not package. The unit is
// nanoseconds.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>

namespace rove::testpmd {

class Histogram {
  public:
    void record(uint64_t ns) {
        ++buckets_[index_of(ns)];
        ++count_;
        sum_ += ns;
        least_ = std::min(least_, ns);
        most_ = std::max(most_, ns);
    }
    void add(const Histogram& other) {
        for (size_t i = 0; i < buckets_.size(); ++i) buckets_[i] += other.buckets_[i];
        count_ += other.count_;
        sum_ += other.sum_;
        least_ = std::min(least_, other.least_);
        most_ = std::max(most_, other.most_);
    }
    uint64_t count() const { return count_; }
    uint64_t least() const { return count_ == 0 ? 0 : least_; }
    uint64_t most() const { return most_; }
    double mean() const { return count_ == 0 ? 0 : static_cast<double>(sum_) / static_cast<double>(count_); }
    // Returns the smallest value that at least the share `quantile` of all values do not exceed, with a relative error
    // of up to 1/64.
    uint64_t at(double quantile) const {
        const auto rank = static_cast<uint64_t>(std::ceil(quantile * static_cast<double>(count_)));
        uint64_t seen = 0;
        for (size_t i = 0; i < buckets_.size(); ++i) {
            seen += buckets_[i];
            if (seen >= rank && seen != 0) return std::min(last_of(i), most_);
        }
        return 0;
    }

  private:
    static constexpr unsigned kBits = 6;  // 64 buckets for each power of two
    static constexpr uint64_t kLinear = 1u << kBits;

    static size_t index_of(uint64_t ns) {
        if (ns < kLinear) return ns;
        const auto shift = static_cast<unsigned>(std::bit_width(ns)) - kBits - 1;
        return (shift + 1) * kLinear + (ns >> shift) - kLinear;
    }
    static uint64_t last_of(size_t index) {
        if (index < kLinear) return index;
        const size_t shift = index / kLinear - 1;
        return ((kLinear + index % kLinear + 1) << shift) - 1;
    }

    std::array<uint64_t, (65 - kBits) * kLinear> buckets_{};
    uint64_t count_ = 0, sum_ = 0, least_ = UINT64_MAX, most_ = 0;
};

}  // namespace rove::testpmd
