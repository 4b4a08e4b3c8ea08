// SPDX-License-Identifier: Apache-2.0
// See transition.h. Alternate paths (IBV_QP_ALT_PATH, IBV_QP_PATH_MIG_STATE) are not offered, so no transition knows
// them.
#include "verbs/transition.h"

#include <algorithm>
#include <array>
#include <cstdint>

namespace rove::verbs {

namespace {

enum TypeBit : uint8_t { kRc = 1, kUc = 2, kUd = 4, kXrcIni = 8, kXrcTgt = 16 };

struct Transition {
    ibv_qp_state from, to;
    uint8_t types;
    int required, optional;
};

// Annex A14: an INI QP has a requester's attributes, a TGT QP a responder's.
constexpr uint8_t kConnected = kRc | kUc | kXrcIni | kXrcTgt;
constexpr int kInitConnected = IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
constexpr int kInitUd = IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY;
constexpr int kRtrUc = IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
constexpr int kRtrRc = kRtrUc | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
constexpr int kRtsRc = IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
constexpr int kRunningRc = IBV_QP_CUR_STATE | IBV_QP_ACCESS_FLAGS | IBV_QP_MIN_RNR_TIMER;
constexpr int kRunningUc = IBV_QP_CUR_STATE | IBV_QP_ACCESS_FLAGS;
constexpr int kRunningUd = IBV_QP_CUR_STATE | IBV_QP_QKEY;
constexpr int kDrainedUc = IBV_QP_PORT | IBV_QP_AV | IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX;
constexpr int kDrainedIni = kDrainedUc | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
constexpr int kDrainedTgt = kDrainedUc | IBV_QP_TIMEOUT | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
constexpr int kDrainedRc = kDrainedIni | kDrainedTgt;

constexpr std::array kTransitions = {
    Transition{IBV_QPS_RESET, IBV_QPS_INIT, kConnected, kInitConnected, 0},
    Transition{IBV_QPS_RESET, IBV_QPS_INIT, kUd, kInitUd, 0},
    Transition{IBV_QPS_INIT, IBV_QPS_INIT, kConnected, 0, kInitConnected},
    Transition{IBV_QPS_INIT, IBV_QPS_INIT, kUd, 0, kInitUd},
    Transition{IBV_QPS_INIT, IBV_QPS_RTR, kRc | kXrcTgt, kRtrRc, IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX},
    Transition{IBV_QPS_INIT, IBV_QPS_RTR, kUc | kXrcIni, kRtrUc, IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX},
    Transition{IBV_QPS_INIT, IBV_QPS_RTR, kUd, 0, IBV_QP_PKEY_INDEX | IBV_QP_QKEY},
    Transition{IBV_QPS_RTR, IBV_QPS_RTS, kRc, kRtsRc, kRunningRc},
    Transition{IBV_QPS_RTR, IBV_QPS_RTS, kUc, IBV_QP_SQ_PSN, kRunningUc},
    Transition{IBV_QPS_RTR, IBV_QPS_RTS, kXrcIni, kRtsRc, kRunningUc},
    Transition{IBV_QPS_RTR, IBV_QPS_RTS, kXrcTgt, IBV_QP_SQ_PSN | IBV_QP_TIMEOUT, kRunningRc},
    Transition{IBV_QPS_RTR, IBV_QPS_RTS, kUd, IBV_QP_SQ_PSN, kRunningUd},
    Transition{IBV_QPS_RTS, IBV_QPS_RTS, kRc | kXrcTgt, 0, kRunningRc},
    Transition{IBV_QPS_RTS, IBV_QPS_RTS, kUc | kXrcIni, 0, kRunningUc},
    Transition{IBV_QPS_RTS, IBV_QPS_RTS, kUd, 0, kRunningUd},
    Transition{IBV_QPS_RTS, IBV_QPS_SQD, kConnected | kUd, 0, IBV_QP_CUR_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY},
    Transition{IBV_QPS_SQD, IBV_QPS_RTS, kRc | kXrcTgt, 0, kRunningRc},
    Transition{IBV_QPS_SQD, IBV_QPS_RTS, kUc | kXrcIni, 0, kRunningUc},
    Transition{IBV_QPS_SQD, IBV_QPS_RTS, kUd, 0, kRunningUd},
    Transition{IBV_QPS_SQD, IBV_QPS_SQD, kRc, 0, kDrainedRc},
    Transition{IBV_QPS_SQD, IBV_QPS_SQD, kUc, 0, kDrainedUc},
    Transition{IBV_QPS_SQD, IBV_QPS_SQD, kXrcIni, 0, kDrainedIni},
    Transition{IBV_QPS_SQD, IBV_QPS_SQD, kXrcTgt, 0, kDrainedTgt},
    Transition{IBV_QPS_SQD, IBV_QPS_SQD, kUd, 0, IBV_QP_PKEY_INDEX | IBV_QP_QKEY},
    Transition{IBV_QPS_SQE, IBV_QPS_RTS, kUc, 0, kRunningUc},
    Transition{IBV_QPS_SQE, IBV_QPS_RTS, kUd, 0, kRunningUd},
};

constexpr uint8_t type_bit(ibv_qp_type type) {
    switch (type) {
        case IBV_QPT_RC:
            return kRc;
        case IBV_QPT_UC:
            return kUc;
        case IBV_QPT_UD:
            return kUd;
        case IBV_QPT_XRC_SEND:
            return kXrcIni;
        case IBV_QPT_XRC_RECV:
            return kXrcTgt;
        default:
            return 0;
    }
}

}  // namespace

bool is_transition_allowed(ibv_qp_type type, ibv_qp_state from, ibv_qp_state to, int mask) {
    mask &= ~IBV_QP_STATE;
    // Without attributes, or with the current state only: RESET can be entered from every state, and ERR from every
    // state but RESET, where nothing is posted that could be flushed (IBTA 10.3.1.1; ib_core's table).
    if (from == IBV_QPS_RESET && to == IBV_QPS_ERR) return false;
    if (to == IBV_QPS_RESET || to == IBV_QPS_ERR) return (mask & ~IBV_QP_CUR_STATE) == 0;
    return std::any_of(kTransitions.begin(), kTransitions.end(), [&](const Transition& t) {
        return t.from == from && t.to == to && (t.types & type_bit(type)) != 0 && (mask & t.required) == t.required &&
               (mask & ~(t.required | t.optional)) == 0;
    });
}

int without_ignored(ibv_qp_type type, int mask) {
    switch (type) {
        case IBV_QPT_XRC_SEND:
            return mask & ~(IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
        case IBV_QPT_XRC_RECV:
            return mask & ~(IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY);
        default:
            return mask;
    }
}

}  // namespace rove::verbs
