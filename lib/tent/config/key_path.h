// SPDX-License-Identifier: Apache-2.0
// Keys by their path from the outermost table, such as "transports/rdma/enable"; dots are allowed too.
#pragma once

#include <toml++/toml.h>

#include <string_view>

namespace rove::tent {

// Returns null if there is no such key.
toml::node* find_path(toml::table& root, std::string_view path);
// Creates missing tables and replaces any other node on the path.
void put_path(toml::table& root, std::string_view path, toml::node&& value);
// Removes the key if it is there.
void erase_path(toml::table& root, std::string_view path);

}  // namespace rove::tent
