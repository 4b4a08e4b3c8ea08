// SPDX-License-Identifier: Apache-2.0
// Implements table.h, with the texts of its errors.
#include "config/table.h"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <sstream>

namespace rove::config {

namespace {

std::string shown(const toml::node& node) {
    std::ostringstream out;
    out << toml::node_view<const toml::node>(node);
    std::string text = out.str();
    std::replace(text.begin(), text.end(), '\n', ' ');
    return text.size() > 60 ? text.substr(0, 57) + "..." : text;
}

std::string range(double least, double most) {
    char text[64];
    std::snprintf(text, sizeof(text), "%.10g..%.10g", least, most);
    return text;
}

bool read_number(const toml::node& node, double least, double most, double& out) {
    const auto value = node.value<double>();
    if (!node.is_number() || !value || !(*value >= least && *value <= most)) return false;
    out = *value;
    return true;
}

// Accepts digits only: no sign, no blank, no "0x".
std::optional<int64_t> parse_digits(const std::optional<std::string>& text) {
    int64_t value = 0;
    if (!text || text->empty() || !std::ranges::all_of(*text, [](char one) { return one >= '0' && one <= '9'; }))
        return std::nullopt;
    const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), value);
    return error == std::errc() ? std::optional(value) : std::nullopt;
}

// A value that the program itself put into a table has no line.
std::string place(const std::string& file, uint32_t line) {
    return file + ":" + std::to_string(std::max(line, 1u));
}

}  // namespace

std::string describe(const std::string& file, const toml::parse_error& error) {
    return place(file, error.source().begin.line) + ": " + std::string(error.description());
}

std::optional<uint64_t> Table::integer(std::string_view key, uint64_t least, uint64_t most) {
    const toml::node* node = find(key);
    if (node == nullptr) return std::nullopt;
    auto value = node->value_exact<int64_t>();
    if (text_numbers_ == TextNumbers::kAccepted && !value) value = parse_digits(node->value_exact<std::string>());
    if (!value || *value < 0 || static_cast<uint64_t>(*value) < least || static_cast<uint64_t>(*value) > most)
        refuse(*node, key, "an integer " + std::to_string(least) + ".." + std::to_string(most));
    return static_cast<uint64_t>(*value);
}

void Table::microseconds(std::string_view key, uint64_t& out_ns, uint64_t least, uint64_t most) {
    uint64_t us = out_ns / 1000;
    uint(key, us, least, most);
    out_ns = us * 1000;
}

void Table::seconds(std::string_view key, uint64_t& out_ns, double least, double most) {
    double value = static_cast<double>(out_ns) / 1e9;
    number(key, value, least, most);
    out_ns = static_cast<uint64_t>(value * 1e9 + 0.5);
}

void Table::boolean(std::string_view key, bool& out) {
    const toml::node* node = find(key);
    if (node == nullptr) return;
    const auto value = node->value_exact<bool>();
    if (!value) refuse(*node, key, "true or false");
    out = *value;
}

void Table::number(std::string_view key, double& out, double least, double most) {
    const toml::node* node = find(key);
    if (node != nullptr && !read_number(*node, least, most, out)) refuse(*node, key, "a number " + range(least, most));
}

void Table::numbers(std::string_view key, std::span<double> out, double least, double most) {
    const toml::node* node = find(key);
    if (node == nullptr) return;
    const std::string allowed = std::to_string(out.size()) + " numbers " + range(least, most);
    const toml::array* array = node->as_array();
    if (array == nullptr || array->size() != out.size()) refuse(*node, key, allowed);
    for (size_t i = 0; i < out.size(); ++i)
        if (!read_number((*array)[i], least, most, out[i])) refuse((*array)[i], key, allowed);
}

std::optional<std::string> Table::string(std::string_view key, const std::string& allowed) {
    const toml::node* node = find(key);
    if (node == nullptr) return std::nullopt;
    const auto value = node->value_exact<std::string>();
    if (!value || value->empty()) refuse(*node, key, allowed);
    return value;
}

std::vector<std::string> Table::strings(std::string_view key, const std::string& allowed) {
    std::vector<std::string> values;
    const toml::node* node = find(key);
    if (node == nullptr) return values;
    const toml::array* array = node->as_array();
    if (array == nullptr) refuse(*node, key, allowed);
    for (const toml::node& element : *array) {
        const auto value = element.value_exact<std::string>();
        if (!value || value->empty()) refuse(element, key, allowed);
        values.push_back(*value);
    }
    return values;
}

std::optional<std::vector<int64_t>> Table::integers(std::string_view key, const std::string& allowed) {
    const toml::node* node = find(key);
    if (node == nullptr) return std::nullopt;
    const toml::array* array = node->as_array();
    if (array == nullptr) refuse(*node, key, allowed);
    std::vector<int64_t> values;
    for (const toml::node& element : *array) {
        const auto value = element.value_exact<int64_t>();
        if (!value) refuse(element, key, allowed);
        values.push_back(*value);
    }
    return values;
}

std::optional<Table> Table::table(std::string_view key) {
    const toml::node* node = find(key);
    if (node == nullptr) return std::nullopt;
    if (!node->is_table()) refuse(*node, key, "a table");
    return Table(file_, path(key), *node->as_table(), text_numbers_);
}

std::vector<Table> Table::tables(std::string_view key) {
    std::vector<Table> found;
    const toml::node* node = find(key);
    if (node == nullptr) return found;
    const toml::array* array = node->as_array();
    if (array == nullptr) refuse(*node, key, "tables [[" + path(key) + "]]");
    for (const toml::node& element : *array) {
        if (!element.is_table()) refuse(element, key, "tables [[" + path(key) + "]]");
        found.emplace_back(file_, path(key) + "[" + std::to_string(found.size()) + "]", *element.as_table(),
                           text_numbers_);
    }
    return found;
}

std::vector<std::string> Table::keys() const {
    std::vector<std::string> all;
    for (const auto& [key, node] : table_) all.emplace_back(key.str());
    return all;
}

void Table::require(std::string_view key, const std::string& allowed) const {
    if (table_.get(key) == nullptr) refuse_text(table_.source().begin.line, key, "got nothing, allowed " + allowed);
}

void Table::require_together(const std::string& prefix, const char* wrong) const {
    if (wrong == nullptr) return;
    const std::string text = wrong;
    const size_t colon = text.find(": ");
    const std::string key = prefix + text.substr(0, colon), allowed = text.substr(colon + 2);
    if (const toml::node* node = table_.get(key)) refuse(*node, key, allowed);
    refuse_text(table_.source().begin.line, key, "got nothing, allowed " + allowed);
}

void Table::refuse_unknown() const {
    for (const auto& [key, node] : table_) {
        if (std::find(known_.begin(), known_.end(), key.str()) != known_.end()) continue;
        std::string allowed;
        for (const std::string& name : known_) allowed += (allowed.empty() ? "" : ", ") + name;
        refuse_text(key.source().begin.line, key.str(), "got an unknown key, allowed " + allowed);
    }
}

void Table::refuse(const toml::node& node, std::string_view key, const std::string& allowed) const {
    refuse_text(node.source().begin.line, key, "got " + shown(node) + ", allowed " + allowed);
}

std::string Table::where(std::string_view key) const {
    const toml::node* node = table_.get(key);
    const uint32_t line = node == nullptr ? table_.source().begin.line : node->source().begin.line;
    return place(file_, line) + ": key '" + path(key) + "'";
}

const toml::node* Table::find(std::string_view key) {
    known_.emplace_back(key);
    return table_.get(key);
}

std::string Table::path(std::string_view key) const {
    return name_.empty() ? std::string(key) : name_ + "." + std::string(key);
}

void Table::refuse_text(uint32_t line, std::string_view key, const std::string& text) const {
    throw Refused{place(file_, line) + ": key '" + path(key) + "': " + text};
}

}  // namespace rove::config
