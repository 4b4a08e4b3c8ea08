// SPDX-License-Identifier: Apache-2.0
// Formats results as lines of a table and lines of JSON.
#pragma once

#include <string>

#include "point.h"

namespace rove::tebench {

std::string table_heading();
std::string table_line(const PointResult& result);
// Returns further lines for the classes of the command line and the streams with a deadline.
std::string detail_lines(const Options& options, const PointResult& result);
// Returns one object without line breaks. Keys that end with gbps are in GB/s, like Mooncake's.
std::string json_line(const Options& options, const PointResult& result);

}  // namespace rove::tebench
