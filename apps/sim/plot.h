// SPDX-License-Identifier: Apache-2.0
// A figure as SVG: lines over a linear axis, or groups of bars.
#pragma once

#include "experiment.h"

namespace rove::sim {

std::string svg(const Plot& plot);

}  // namespace rove::sim
