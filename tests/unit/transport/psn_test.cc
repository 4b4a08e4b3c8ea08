// SPDX-License-Identifier: Apache-2.0
#include "transport/psn.h"

#include <gtest/gtest.h>

namespace rove::transport {
namespace {

TEST(Psn, keeps_24_bits) {
    EXPECT_EQ(Psn(0x1000000).value(), 0u);
    EXPECT_EQ((Psn(0xFFFFFF) + 1).value(), 0u);
    EXPECT_EQ((Psn(0xFFFFF0) + 0x20).value(), 0x10u);
    EXPECT_EQ(Psn(0).previous().value(), 0xFFFFFFu);
    Psn psn(0xFFFFFF);
    ++psn;
    EXPECT_EQ(psn, Psn(0));
}

TEST(Psn, orders_across_the_wrap) {
    for (uint32_t base : {0u, 1u, 0x7FFFFFu, 0x800000u, 0xFFFFFEu, 0xFFFFFFu}) {
        for (uint32_t ahead : {1u, 2u, 1000u, 0x7FFFFFu}) {
            const Psn first(base), second = first + ahead;
            EXPECT_EQ(second - first, static_cast<int32_t>(ahead));
            EXPECT_EQ(first - second, -static_cast<int32_t>(ahead));
            EXPECT_TRUE(first < second && first <= second && second > first && second >= first) << base << ' ' << ahead;
            EXPECT_FALSE(second < first || second <= first || first > second || first >= second);
        }
        EXPECT_TRUE(Psn(base) <= Psn(base) && Psn(base) >= Psn(base) && !(Psn(base) < Psn(base)));
        EXPECT_EQ((Psn(base) + 0x800000) - Psn(base), -0x800000);  // half the circle away counts as behind
    }
}

}  // namespace
}  // namespace rove::transport
