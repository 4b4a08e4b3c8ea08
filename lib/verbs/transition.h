// SPDX-License-Identifier: Apache-2.0
// Which state changes of a QP are allowed, and with which attributes (IBTA 11.2.5.2, tables 91-95; man ibv_modify_qp).
#pragma once

#include <infiniband/verbs.h>

namespace rove::verbs {

// Whether a QP of `type` may go from `from` to `to` with the attributes in `mask` (ibv_qp_attr_mask): all that the
// transition requires are there, and none that it does not know.
bool is_transition_allowed(ibv_qp_type type, ibv_qp_state from, ibv_qp_state to, int mask);

}  // namespace rove::verbs
