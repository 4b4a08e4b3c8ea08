// SPDX-License-Identifier: Apache-2.0
// Finds the configuration file of a program whose command line names none.
#pragma once

#include <optional>
#include <string>

namespace rove::datapath {

// Returns the path of ./rove.toml or else of /etc/rove/rove.toml, and prints on standard error that `program` uses it.
// Returns "" if there is neither. Returns nothing, and the reason in `*error`, if a user other than the caller and root
// may change the file, because its content determines code, devices and files that the caller uses.
std::optional<std::string> find_config_file(const char* program, std::string* error);

}  // namespace rove::datapath
