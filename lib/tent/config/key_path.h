// SPDX-License-Identifier: Apache-2.0
// Keys by their path from the outermost table: "transports/rdma/enable", or with dots.
#pragma once

#include <toml++/toml.h>

#include <string_view>

namespace rove::tent {

// Null: there is none.
toml::node* find_path(toml::table& root, std::string_view path);
// Makes the tables that are missing; what is in the way goes.
void put_path(toml::table& root, std::string_view path, toml::node&& value);
// Takes the key away if it is there.
void erase_path(toml::table& root, std::string_view path);

}  // namespace rove::tent
