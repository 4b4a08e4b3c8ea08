// SPDX-License-Identifier: Apache-2.0
// All experiments. Each is in the file of its name.
#pragma once

#include "experiment.h"

namespace rove::sim {

Report fig11a(uint64_t seed);

}  // namespace rove::sim
