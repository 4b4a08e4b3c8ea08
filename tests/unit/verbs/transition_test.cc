// SPDX-License-Identifier: Apache-2.0
// Compares the table of state transitions with man ibv_modify_qp.
#include "verbs/transition.h"

#include <gtest/gtest.h>

#include "fixture.h"

namespace rove::verbs {
namespace {

constexpr int kRtrUcMask = kRtrMask & ~(IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);

TEST(Transition, TheWayUpNeedsItsAttributes) {
    EXPECT_TRUE(is_transition_allowed(IBV_QPT_RC, IBV_QPS_RESET, IBV_QPS_INIT, kInitMask));
    EXPECT_TRUE(is_transition_allowed(IBV_QPT_RC, IBV_QPS_INIT, IBV_QPS_RTR, kRtrMask));
    EXPECT_TRUE(is_transition_allowed(IBV_QPT_RC, IBV_QPS_RTR, IBV_QPS_RTS, kRtsMask));
    EXPECT_TRUE(is_transition_allowed(IBV_QPT_UC, IBV_QPS_INIT, IBV_QPS_RTR, kRtrUcMask));
    EXPECT_TRUE(is_transition_allowed(IBV_QPT_UC, IBV_QPS_RTR, IBV_QPS_RTS, IBV_QP_STATE | IBV_QP_SQ_PSN));
    EXPECT_TRUE(is_transition_allowed(IBV_QPT_UD, IBV_QPS_RESET, IBV_QPS_INIT, kInitUdMask));
    EXPECT_TRUE(is_transition_allowed(IBV_QPT_UD, IBV_QPS_INIT, IBV_QPS_RTR, IBV_QP_STATE));
    EXPECT_TRUE(is_transition_allowed(IBV_QPT_UD, IBV_QPS_RTR, IBV_QPS_RTS, IBV_QP_STATE | IBV_QP_SQ_PSN));
}

TEST(Transition, EachRequiredAttributeIsRequired) {
    struct Step {
        ibv_qp_type type;
        ibv_qp_state from, to;
        int mask;
    };
    const Step steps[] = {{IBV_QPT_RC, IBV_QPS_RESET, IBV_QPS_INIT, kInitMask},
                          {IBV_QPT_UD, IBV_QPS_RESET, IBV_QPS_INIT, kInitUdMask},
                          {IBV_QPT_RC, IBV_QPS_INIT, IBV_QPS_RTR, kRtrMask},
                          {IBV_QPT_UC, IBV_QPS_INIT, IBV_QPS_RTR, kRtrUcMask},
                          {IBV_QPT_RC, IBV_QPS_RTR, IBV_QPS_RTS, kRtsMask}};
    for (const Step& step : steps) {
        for (int bit = 1; bit <= IBV_QP_RATE_LIMIT; bit <<= 1) {
            if (bit == IBV_QP_STATE || (step.mask & bit) == 0) continue;
            EXPECT_FALSE(is_transition_allowed(step.type, step.from, step.to, step.mask & ~bit))
                << "without " << bit << " to " << step.to;
        }
    }
}

TEST(Transition, AttributesOfOtherTypesAndStatesAreRefused) {
    EXPECT_FALSE(is_transition_allowed(IBV_QPT_RC, IBV_QPS_RESET, IBV_QPS_INIT, kInitMask | IBV_QP_QKEY));
    EXPECT_FALSE(is_transition_allowed(IBV_QPT_UC, IBV_QPS_INIT, IBV_QPS_RTR, kRtrMask));
    EXPECT_FALSE(is_transition_allowed(IBV_QPT_UD, IBV_QPS_INIT, IBV_QPS_RTR, IBV_QP_STATE | IBV_QP_AV));
    EXPECT_FALSE(is_transition_allowed(IBV_QPT_RC, IBV_QPS_RTS, IBV_QPS_RTS, IBV_QP_AV));
    EXPECT_FALSE(is_transition_allowed(IBV_QPT_RC, IBV_QPS_RTS, IBV_QPS_ERR, IBV_QP_STATE | IBV_QP_AV));
}

TEST(Transition, ErrorAndResetFromEverywhereNothingElse) {
    // ib_core's table also refuses RESET to ERR, because no request is posted in RESET that could be flushed (D18).
    EXPECT_FALSE(is_transition_allowed(IBV_QPT_RC, IBV_QPS_RESET, IBV_QPS_ERR, IBV_QP_STATE));
    EXPECT_TRUE(is_transition_allowed(IBV_QPT_UD, IBV_QPS_RESET, IBV_QPS_RESET, IBV_QP_STATE));
    for (ibv_qp_state from : {IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS, IBV_QPS_SQD, IBV_QPS_SQE, IBV_QPS_ERR}) {
        EXPECT_TRUE(is_transition_allowed(IBV_QPT_RC, from, IBV_QPS_ERR, IBV_QP_STATE));
        EXPECT_TRUE(is_transition_allowed(IBV_QPT_UD, from, IBV_QPS_RESET, IBV_QP_STATE));
    }
    EXPECT_FALSE(is_transition_allowed(IBV_QPT_RC, IBV_QPS_RESET, IBV_QPS_RTR, kRtrMask));
    EXPECT_FALSE(is_transition_allowed(IBV_QPT_RC, IBV_QPS_INIT, IBV_QPS_RTS, kRtsMask));
    EXPECT_FALSE(is_transition_allowed(IBV_QPT_RC, IBV_QPS_ERR, IBV_QPS_RTS, kRtsMask));
    EXPECT_FALSE(is_transition_allowed(IBV_QPT_RC, IBV_QPS_SQE, IBV_QPS_RTS, IBV_QP_STATE));
    EXPECT_TRUE(is_transition_allowed(IBV_QPT_UD, IBV_QPS_SQE, IBV_QPS_RTS, IBV_QP_STATE));
}

TEST(Transition, Draining) {
    EXPECT_TRUE(is_transition_allowed(IBV_QPT_RC, IBV_QPS_RTS, IBV_QPS_SQD, IBV_QP_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY));
    EXPECT_TRUE(is_transition_allowed(IBV_QPT_RC, IBV_QPS_SQD, IBV_QPS_SQD, IBV_QP_TIMEOUT | IBV_QP_AV));
    EXPECT_FALSE(is_transition_allowed(IBV_QPT_UC, IBV_QPS_SQD, IBV_QPS_SQD, IBV_QP_TIMEOUT));
    EXPECT_TRUE(is_transition_allowed(IBV_QPT_RC, IBV_QPS_SQD, IBV_QPS_RTS, IBV_QP_STATE));
}

TEST(Transition, WhatATypeIgnoresIsTakenOut) {
    const int all = kRtrMask | kRtsMask;
    EXPECT_EQ(without_ignored(IBV_QPT_RC, all), all);
    EXPECT_EQ(all & ~without_ignored(IBV_QPT_XRC_SEND, all), IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
    EXPECT_EQ(all & ~without_ignored(IBV_QPT_XRC_RECV, all),
              IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY);
    EXPECT_TRUE(is_transition_allowed(IBV_QPT_XRC_SEND, IBV_QPS_INIT, IBV_QPS_RTR,
                                      without_ignored(IBV_QPT_XRC_SEND, kRtrMask)));
    EXPECT_TRUE(
        is_transition_allowed(IBV_QPT_XRC_RECV, IBV_QPS_RTR, IBV_QPS_RTS, without_ignored(IBV_QPT_XRC_RECV, kRtsMask)));
}

}  // namespace
}  // namespace rove::verbs
