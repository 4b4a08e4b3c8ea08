// SPDX-License-Identifier: Apache-2.0
// What can be said at the prompt.
#pragma once

#include <cmdline_parse.h>

#include <string>

namespace rove::testpmd {

class Prompt;

// For DPDK's parser, null at its end. Lives as long as the program.
cmdline_parse_ctx_t* command_table(Prompt& prompt);

// What was possible instead of `line`, which is no command.
std::string explain(const std::string& line);

}  // namespace rove::testpmd
