// SPDX-License-Identifier: Apache-2.0
// Keys of Mooncake's configuration that mean nothing here: hardware that rove has not, and inner workings that it has
// not. A file that has them loads.
#pragma once

#include <toml++/toml.h>

#include <string>

namespace rove::tent {

// Takes them out of `root`. Each is warned of once in a process, unless all that it says is that something is not
// enabled. `file` is what messages call it.
void drop_foreign_keys(const std::string& file, toml::table& root);

}  // namespace rove::tent
