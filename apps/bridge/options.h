// SPDX-License-Identifier: Apache-2.0
// What the command line of rove-bridge says.
#pragma once

#include <string>

#include "bridge/bridge.h"

namespace rove::bridge {

struct Options {
    Bridge::Settings bridge;
    std::string cmdline_file;
    bool interactive = false;
};

// Ends the program with one line and status 2 if the arguments are wrong; with status 0 for --help.
Options parse_options(int argc, char** argv);

}  // namespace rove::bridge
