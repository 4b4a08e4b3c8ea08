// SPDX-License-Identifier: Apache-2.0
// See key_path.h.
#include "tent/config/key_path.h"

#include <utility>

namespace rove::tent {

namespace {

// Splits "a/b/c" into "a/b" and "c".
std::pair<std::string_view, std::string_view> split(std::string_view path) {
    const size_t at = path.find_last_of("/.");
    if (at == std::string_view::npos) return {{}, path};
    return {path.substr(0, at), path.substr(at + 1)};
}

toml::table* find_table(toml::table& root, std::string_view path) {
    if (path.empty()) return &root;
    toml::node* node = find_path(root, path);
    return node == nullptr ? nullptr : node->as_table();
}

toml::table& make_table(toml::table& root, std::string_view path) {
    if (path.empty()) return root;
    const auto [rest, name] = split(path);
    toml::table& parent = make_table(root, rest);
    if (!parent[name].is_table()) parent.insert_or_assign(name, toml::table{});
    return *parent[name].as_table();
}

}  // namespace

toml::node* find_path(toml::table& root, std::string_view path) {
    const auto [rest, name] = split(path);
    toml::table* table = find_table(root, rest);
    return table == nullptr ? nullptr : table->get(name);
}

void put_path(toml::table& root, std::string_view path, toml::node&& value) {
    const auto [rest, name] = split(path);
    make_table(root, rest).insert_or_assign(name, std::move(value));
}

void erase_path(toml::table& root, std::string_view path) {
    const auto [rest, name] = split(path);
    if (toml::table* table = find_table(root, rest)) table->erase(name);
}

}  // namespace rove::tent
