// SPDX-License-Identifier: Apache-2.0
#include "prompt/table.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "latency.h"

namespace rove::testpmd {
namespace {

using prompt::difference;
using prompt::to_text;

TEST(TableTest, ObjectsOfObjectsAreATableWithoutRowsOfZeros) {
    const Report report = {{"rove0", {{"frames", 12u}, {"lost", 0u}, {"rate", 0.5}}},
                           {"rove1", {{"frames", 7u}, {"lost", 0u}}}};
    EXPECT_EQ(to_text(report),
              "          rove0  rove1\n"
              "  frames     12      7\n"
              "  rate    0.500       \n");
}

TEST(TableTest, ManyItemsStandUnderEachOther) {
    Report report;
    for (const char* name : {"a", "b", "c", "d", "e"}) report[name] = {{"x", 1u}, {"y", 2u}};
    EXPECT_EQ(to_text(report), "     x  y\n  a  1  2\n  b  1  2\n  c  1  2\n  d  1  2\n  e  1  2\n");
}

TEST(TableTest, PlainValuesComeBeforeWhatIsNested) {
    EXPECT_EQ(to_text({{"list", {"p", "q"}}, {"state", "RTS"}, {"n", 3u}}), "  state  RTS\n  n        3\nlist\np\nq\n");
    EXPECT_EQ(to_text(Report()), "  nothing\n");
    EXPECT_EQ(to_text(Report::object()), "  none\n");
}

TEST(TableTest, DifferenceIsOfNumbersThatBothHave) {
    const Report before = {{"a", {{"n", 3u}, {"text", "x"}}}}, now = {{"a", {{"n", 10u}, {"text", "y"}, {"more", 5u}}}};
    EXPECT_EQ(difference(now, before), Report({{"a", {{"n", 7u}, {"text", "y"}, {"more", 5u}}}}));
}

TEST(TableTest, WhatBeganAnewCountsFromZero) {
    EXPECT_EQ(difference(Report{{"n", 4u}}, Report{{"n", 9u}}), Report({{"n", 4u}}));
}

TEST(TableTest, LatencyIsInMicroseconds) {
    Histogram latency;
    for (uint64_t us = 1; us <= 100; ++us) latency.record(us * 1000);
    const Report report = latency_us(latency);
    EXPECT_EQ(report["least"], 1.0);
    EXPECT_NEAR(report["p50"].get<double>(), 50, 1);
    EXPECT_NEAR(report["p99"].get<double>(), 99, 2);
    EXPECT_EQ(report["most"], 100.0);
}

}  // namespace
}  // namespace rove::testpmd
