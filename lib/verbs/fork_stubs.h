// SPDX-License-Identifier: Apache-2.0
// Operations for objects that a forked child inherited (provider.h). They serve calls that reach rove through the
// context's operations; preload/exports.cc refuses the exported ones.
#pragma once

#include <infiniband/verbs.h>

namespace rove::verbs {

struct Context;

// Makes the operations of `context` fail with ENODEV from now on; polling finds nothing. Takes no lock, because any
// lock may be held.
void disable(Context& context);

// The poll_cq operation of such a context. Returns 0.
int poll_inherited(ibv_cq* cq, int count, ibv_wc* wc);

}  // namespace rove::verbs
