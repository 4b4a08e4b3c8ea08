// SPDX-License-Identifier: Apache-2.0
// The configuration file of a program whose command line names none.
#pragma once

#include <optional>
#include <string>

namespace rove::datapath {

// Returns the path of ./rove.toml or else of /etc/rove/rove.toml, and says on standard error that `program` uses it. ""
// if there is neither. Returns nothing, and the reason in `*error`, if a user other than the caller and root may change
// the file: what it says becomes code, devices and files of the caller's.
std::optional<std::string> find_config_file(const char* program, std::string* error);

}  // namespace rove::datapath
