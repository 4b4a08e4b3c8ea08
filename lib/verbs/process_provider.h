// SPDX-License-Identifier: Apache-2.0
// The provider of this process. lib/preload defines these functions, because it reads the environment. lib/rdmacm uses
// them too.
#pragma once

#include <mutex>

#include "verbs/provider.h"

namespace rove::verbs {

// Returns the provider with the devices that ROVE_CONFIG describes. ROVE_EAL has further EAL arguments. The first call
// creates it; an error in the configuration prints one line on stderr.
Provider& provider();

// A constructor priority that runs before the constructors of static objects.
inline constexpr int kFirstConstructor = 101;

// Guards data that a forked child must find consistent: no fork happens while it is held.
std::mutex& fork_mutex();

// Leaves the parent's device lists to it. Called in a forked child before that asks for devices.
void leave_lists_in_child();

}  // namespace rove::verbs
