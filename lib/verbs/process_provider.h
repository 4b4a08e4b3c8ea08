// SPDX-License-Identifier: Apache-2.0
// The provider of this process. lib/preload defines these, since it reads the environment; lib/rdmacm uses them too.
#pragma once

#include <mutex>

#include "verbs/provider.h"

namespace rove::verbs {

// Of the devices that ROVE_CONFIG describes, with ROVE_EAL's further EAL arguments; made when it is first asked for.
// One line on stderr says what is wrong with the configuration.
Provider& provider();

// The priority of a constructor that runs before those of static objects.
inline constexpr int kFirstConstructor = 101;

// For what a forked child must find whole: nobody forks while it is held.
std::mutex& fork_mutex();

// In a forked child, before it asks for devices.
void leave_lists_in_child();

}  // namespace rove::verbs
