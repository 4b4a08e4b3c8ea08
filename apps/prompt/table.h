// SPDX-License-Identifier: Apache-2.0
// Formats reports as text.
#pragma once

#include <string>

#include "runtime/report.h"

namespace rove::prompt {

using datapath::Report;

// Prints each name with its value on a line. Objects of objects become a table without its rows of zeros.
std::string to_text(const Report& report);

// Subtracts the counters (unsigned numbers) of `before` from their values in `now`, and copies everything else from
// `now`. A counter that was reset, as on a memif whose peer left, counts from 0.
Report difference(const Report& now, const Report& before);

}  // namespace rove::prompt
