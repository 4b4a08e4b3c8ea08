// SPDX-License-Identifier: Apache-2.0
// Tests the figures of an engine as a reader sees them over time: one row per name, counts that only grow, and
// histograms.
#include "tent/observability/figures.h"

#include <gtest/gtest.h>

#include "local_engine.h"
#include "tent/engine/engine.h"

namespace rove::tent {
namespace {

std::vector<FigureRow> rows_now;

std::vector<FigureRow> read_rows(Engine&) {
    return rows_now;
}

class SteadyFiguresTest : public testing::Test {
  protected:
    void SetUp() override {
        engine_ = start_local_engine();
        ASSERT_NE(engine_, nullptr);
    }

    // Returns the value of the only figure of the only row, if the engine has these rows.
    uint64_t value(std::vector<FigureRow> rows) {
        rows_now = std::move(rows);
        const std::vector<FigureRow> read = steady_.read({"rails", "rail", "", read_rows}, *engine_);
        EXPECT_EQ(read.size(), 1u);
        return read.at(0).figures.at(0).value;
    }

    std::unique_ptr<Engine> engine_;
    SteadyFigures steady_;
};

TEST_F(SteadyFiguresTest, CountsOfAPeerThatComesAgainGoOn) {
    EXPECT_EQ(value({{"a", {{"bytes", 100}}}}), 100u);
    EXPECT_EQ(value({{"a", {{"bytes", 0}}}}), 100u) << "another peer of this name";
    EXPECT_EQ(value({{"a", {{"bytes", 30}}}}), 130u);
}

TEST_F(SteadyFiguresTest, RowsOfOneNameAreOne) {
    EXPECT_EQ(value({{"a", {{"bytes", 100}}}, {"a", {{"bytes", 50}}}}), 150u);
    EXPECT_EQ(value({{"a", {{"bytes", 60}}}}), 150u) << "one of them is gone";
    EXPECT_EQ(value({{"a", {{"bytes", 70}}}}), 160u);
}

TEST_F(SteadyFiguresTest, WhatIsNowMayFall) {
    EXPECT_EQ(value({{"a", {{"waiting", 100, false}}}}), 100u);
    EXPECT_EQ(value({{"a", {{"waiting", 7, false}}}}), 7u);
}

TEST(HistogramTest, BucketsEndWithPowersOfTwo) {
    Histogram seen;
    EXPECT_EQ(seen.quantile(0.5), 0u);
    for (const uint64_t value : {0, 1, 2, 3, 4, 5}) seen.add(value);
    EXPECT_EQ(seen.count(), 6u);
    EXPECT_EQ(seen.sum(), 15u);
    EXPECT_EQ(seen.count_up_to(0), 2u) << "0 and 1";
    EXPECT_EQ(seen.count_up_to(1), 3u) << "2";
    EXPECT_EQ(seen.count_up_to(2), 5u) << "3 and 4";
    EXPECT_EQ(seen.count_up_to(3), 6u) << "5";
    EXPECT_EQ(seen.quantile(0.5), 2u);
    EXPECT_EQ(seen.quantile(1), 8u);
    seen.add(~uint64_t{0});
    EXPECT_EQ(seen.count(), 7u);
}

}  // namespace
}  // namespace rove::tent
