// SPDX-License-Identifier: Apache-2.0
// Objects that a forked child inherited (provider.h): what calls do with them that reach rove through the context's
// operations. Those that are exported are refused in preload/exports.cc.
#pragma once

#include <infiniband/verbs.h>

namespace rove::verbs {

struct Context;

// From now on, the operations of `context` fail with ENODEV, and polling finds nothing. Takes no lock: any may be held.
void disable(Context& context);

// What then is its poll_cq.
int poll_inherited(ibv_cq* cq, int count, ibv_wc* wc);

}  // namespace rove::verbs
