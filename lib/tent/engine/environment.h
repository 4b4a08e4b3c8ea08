// SPDX-License-Identifier: Apache-2.0
// Environment variables of the original TENT that set configuration keys. For example, MC_SLICE_SIZE=131072 sets
// transports.rdma.workers.block_size = 131072.
#pragma once

#include <string>
#include <vector>

#include "tent/config/config.h"

namespace rove::tent {

// Returns the overrides from the variables that are set and not empty, and adds the names of these variables to
// `names`. They take precedence over the file and over what the program sets.
std::vector<Override> environment_overrides(std::string* names);

}  // namespace rove::tent
