// SPDX-License-Identifier: Apache-2.0
// Neighbouring requests of one submit become one (T-14), so that small requests travel in fewer slices.
//
// The request with the lowest address is the leader: it has the slices, and all decisions are made for it. The others
// are its parts. Each part counts its own bytes and can be cancelled by itself. A slice is dropped when all requests
// that it carries are cancelled. The leader and its parts end together.
#pragma once

#include <span>

#include "tent/engine/task.h"

namespace rove::tent {

// Links tasks that are adjacent both here and at the peer, and that agree in direction, priority, hint, policy,
// devices, transport, deadline and registered buffers. One leader carries up to `most_bytes`. The tasks must be as
// prepare() leaves them.
void merge_neighbours(std::span<Task> tasks, uint64_t most_bytes);

// Returns the bytes of a leader and all its parts.
uint64_t carried_bytes(const Task& leader);

}  // namespace rove::tent
