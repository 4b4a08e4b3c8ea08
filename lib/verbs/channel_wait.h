// SPDX-License-Identifier: Apache-2.0
// Waits for an event of a completion channel.
#pragma once

#include "verbs/objects.h"

namespace rove::verbs {

// Removes the oldest event of `channel` and counts it as delivered. Waits like a blocking read(), unless the channel's
// descriptor is O_NONBLOCK: a signal ends the wait if its handler was installed without SA_RESTART. This is a
// cancellation point. Returns 0, EAGAIN, EINTR or EMFILE.
int wait_for_event(Channel& channel, Cq** cq);

}  // namespace rove::verbs
