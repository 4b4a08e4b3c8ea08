// SPDX-License-Identifier: Apache-2.0
// Reports as text.
#pragma once

#include <string>

#include "runtime/report.h"

namespace rove::prompt {

using datapath::Report;

// Names and values under each other; objects of objects as a table, whose rows of zeros are left out.
std::string to_text(const Report& report);

// Counters (unsigned numbers) of `now` less those of `before`, wherever both have them; the rest of `now`. What has
// begun anew, as the counters of a memif whose peer went, counts from 0.
Report difference(const Report& now, const Report& before);

}  // namespace rove::prompt
