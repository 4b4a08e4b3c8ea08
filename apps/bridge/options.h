// SPDX-License-Identifier: Apache-2.0
// Parses the command line of rove-bridge.
#pragma once

#include <string>

#include "bridge/bridge.h"

namespace rove::bridge {

struct Options {
    Bridge::Settings bridge;
    std::string cmdline_file;
    bool interactive = false;
};

// Ends the program with status 2 and one line if the arguments are wrong, and with status 0 for --help.
Options parse_options(int argc, char** argv);

}  // namespace rove::bridge
