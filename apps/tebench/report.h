// SPDX-License-Identifier: Apache-2.0
// What came out: a line of the table, a line of JSON.
#pragma once

#include <string>

#include "point.h"

namespace rove::tebench {

std::string table_heading();
std::string table_line(const PointResult& result);
// Lines below it, of classes that were asked for and of streams with a deadline.
std::string detail_lines(const Options& options, const PointResult& result);
// One object without line breaks. gbps are GB/s, as Mooncake's.
std::string json_line(const Options& options, const PointResult& result);

}  // namespace rove::tebench
