// SPDX-License-Identifier: Apache-2.0
// Requests of one submit that are neighbours become one (T-14): what is small travels in fewer slices.
//
// The first of them, by place, leads: it has the slices, and all decisions are made for it. The others are its parts.
// Each has its own bytes counted and can be cancelled by itself: a slice is dropped when all requests that it carries
// are. All end together.
#pragma once

#include <span>

#include "tent/engine/task.h"

namespace rove::tent {

// Links those of `tasks` that lie next to each other, here and at the peer, and are alike in all that decides how they
// travel: direction, priority, hint, policy, devices, transport, and the registered buffers; up to `most_bytes` in one.
// Tasks must be as prepare() leaves them.
void merge_neighbours(std::span<Task> tasks, uint64_t most_bytes);

// All bytes that a leader carries.
uint64_t carried_bytes(const Task& leader);

}  // namespace rove::tent
