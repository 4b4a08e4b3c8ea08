// SPDX-License-Identifier: Apache-2.0
// Keys of Mooncake's configuration that have no meaning here: they are for hardware and for inner workings that rove
// does not have. A file with such keys loads.
#pragma once

#include <toml++/toml.h>

#include <string>

namespace rove::tent {

// Removes these keys from `root`. Each causes one warning in a process, unless it only says that something is not
// enabled. `file` is the file's name in messages.
void drop_foreign_keys(const std::string& file, toml::table& root);

}  // namespace rove::tent
