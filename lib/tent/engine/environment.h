// SPDX-License-Identifier: Apache-2.0
// Environment variables of the original that stand for keys: MC_SLICE_SIZE=131072 is transports.rdma.workers.block_size
// = 131072.
#pragma once

#include <string>
#include <vector>

#include "tent/config/config.h"

namespace rove::tent {

// Of the variables that are set and not empty, whose names are added to `names`. They are stronger than the file and
// than what the program sets.
std::vector<Override> environment_overrides(std::string* names);

}  // namespace rove::tent
