// SPDX-License-Identifier: Apache-2.0
// Waiting for an event of a completion channel.
#pragma once

#include "verbs/objects.h"

namespace rove::verbs {

// Takes the oldest event of `channel` and counts it as delivered. Waits for one as a blocking read() does, unless the
// channel's descriptor is O_NONBLOCK: a signal ends the wait if its handler was installed without SA_RESTART. It is a
// cancellation point. Returns 0 or an errno: EAGAIN, EINTR, EMFILE.
int wait_for_event(Channel& channel, Cq** cq);

}  // namespace rove::verbs
