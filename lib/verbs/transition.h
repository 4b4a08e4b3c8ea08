// SPDX-License-Identifier: Apache-2.0
// Which state changes of a QP are allowed, and with which attributes (IBTA 11.2.5.2, tables 91-95; man ibv_modify_qp).
#pragma once

#include <infiniband/verbs.h>

namespace rove::verbs {

// Whether a QP of `type` may go from `from` to `to` with the attributes in `mask` (ibv_qp_attr_mask): all that the
// transition requires are there, and none that it does not know.
bool is_transition_allowed(ibv_qp_type type, ibv_qp_state from, ibv_qp_state to, int mask);

// Returns `mask` without the attributes that a QP of `type` ignores: an XRC INI QP is no responder and a TGT QP no
// requester (annex A14). The kernel takes them out in the same way (uverbs_cmd.c: modify_qp_mask), so programs use one
// mask for all types.
int without_ignored(ibv_qp_type type, int mask);

}  // namespace rove::verbs
