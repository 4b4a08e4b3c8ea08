// SPDX-License-Identifier: Apache-2.0
// Compares percentiles with the percentiles of the sorted values.
#include "histogram.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

namespace rove::testpmd {
namespace {

constexpr double kQuantiles[] = {0.0001, 0.01, 0.5, 0.9, 0.99, 0.999, 0.9999, 1};

TEST(HistogramTest, NothingRecordedIsZero) {
    const Histogram none;
    EXPECT_EQ(none.count() + none.least() + none.most() + none.at(0.5), 0u);
    EXPECT_EQ(none.mean(), 0);
}

TEST(HistogramTest, SmallValuesAreExact) {
    Histogram all;
    for (uint64_t ns = 0; ns < 100; ++ns) all.record(ns);
    EXPECT_EQ(all.at(0.01), 0u);
    EXPECT_EQ(all.at(0.5), 49u);
    EXPECT_EQ(all.at(1), 99u);
    EXPECT_DOUBLE_EQ(all.mean(), 49.5);
}

TEST(HistogramTest, QuantilesAreUpToASixtyFourthTooLarge) {
    std::mt19937_64 random(1);
    std::vector<uint64_t> values(20'000);
    Histogram all;
    for (uint64_t& ns : values) all.record(ns = random() >> random() % 64);
    std::sort(values.begin(), values.end());
    for (const double quantile : kQuantiles) {
        const auto rank = static_cast<size_t>(std::ceil(quantile * static_cast<double>(values.size())));
        const uint64_t exact = values[rank - 1], found = all.at(quantile);
        EXPECT_GE(found, exact) << quantile;
        EXPECT_LE(found - exact, exact / 64) << quantile;
    }
    EXPECT_EQ(all.least(), values.front());
    EXPECT_EQ(all.most(), values.back());
}

TEST(HistogramTest, TheLargestValueHasABucket) {
    Histogram all;
    all.record(UINT64_MAX);
    all.record(1);
    EXPECT_EQ(all.at(0.5), 1u);
    EXPECT_EQ(all.at(1), UINT64_MAX);
}

TEST(HistogramTest, SumOfTwoIsThatOfAllValues) {
    std::mt19937_64 random(2);
    Histogram one, other, all;
    for (int i = 0; i < 1000; ++i) {
        const uint64_t ns = random() % 1'000'000;
        (i % 3 == 0 ? one : other).record(ns);
        all.record(ns);
    }
    one.add(other);
    one.add(Histogram());
    EXPECT_EQ(one.count(), 1000u);
    EXPECT_EQ(one.least(), all.least());
    EXPECT_EQ(one.most(), all.most());
    EXPECT_EQ(one.mean(), all.mean());
    for (const double quantile : kQuantiles) EXPECT_EQ(one.at(quantile), all.at(quantile));
}

}  // namespace
}  // namespace rove::testpmd
