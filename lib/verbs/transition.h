// SPDX-License-Identifier: Apache-2.0
// The state transitions of a QP and their attributes (IBTA 11.2.5.2, tables 91-95; man ibv_modify_qp).
#pragma once

#include <infiniband/verbs.h>

namespace rove::verbs {

// Returns true if a QP of `type` may change from `from` to `to` with the attributes in `mask` (ibv_qp_attr_mask): all
// attributes that the transition requires, and no attribute that it does not know.
bool is_transition_allowed(ibv_qp_type type, ibv_qp_state from, ibv_qp_state to, int mask);

// Returns `mask` without the attributes that a QP of `type` ignores: an XRC INI QP is no responder, and a TGT QP no
// requester (annex A14). The kernel removes the same ones (uverbs_cmd.c: modify_qp_mask), so programs use one mask for
// all types.
int without_ignored(ibv_qp_type type, int mask);

}  // namespace rove::verbs
