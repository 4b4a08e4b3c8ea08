// SPDX-License-Identifier: Apache-2.0
// Reads a table of TOML key by key. Wrong types, values out of range and unknown keys are refused with file, line, key
// and the allowed values.
#pragma once

#include <toml++/toml.h>

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace rove::config {

// Thrown for a wrong value, with a message like "FILE:LINE: key 'x.y': got ..., allowed ...".
struct Refused {
    std::string message;
};

// Formats the error of text that is not TOML, as "FILE:LINE: ...".
std::string describe(const std::string& file, const toml::parse_error& error);

// One table of a file. It reads values by key, remembers which keys were read, and refuses the others. If a key is
// absent, the output parameter stays unchanged.
class Table {
  public:
    // Tells whether "80" is accepted for the integer 80, because some writers of JSON produce it.
    enum class TextNumbers : bool { kRefused, kAccepted };

    // `file` and `table` must outlive this object. Nested tables are read with the same options.
    Table(const std::string& file, std::string name, const toml::table& table,
          TextNumbers text_numbers = TextNumbers::kRefused)
        : file_(file), name_(std::move(name)), table_(table), text_numbers_(text_numbers) {}

    void uint(std::string_view key, auto& out, uint64_t least, uint64_t most) {
        const auto value = integer(key, least, most);
        if (value) out = static_cast<std::remove_reference_t<decltype(out)>>(*value);
    }
    void microseconds(std::string_view key, uint64_t& out_ns, uint64_t least, uint64_t most);
    void seconds(std::string_view key, uint64_t& out_ns, double least, double most);
    void boolean(std::string_view key, bool& out);
    // Reads one of several names.
    template <class T>
    void choice(std::string_view key, T& out, std::initializer_list<std::pair<const char*, T>> choices) {
        std::string allowed;
        for (const auto& [name, value] : choices)
            allowed += (allowed.empty() ? "\"" : " or \"") + std::string(name) + "\"";
        const auto text = string(key, allowed);
        if (!text) return;
        for (const auto& [name, value] : choices) {
            if (*text != name) continue;
            out = value;
            return;
        }
        refuse(node(key), key, allowed);
    }
    void number(std::string_view key, double& out, double least, double most);
    void probability(std::string_view key, double& out) { number(key, out, 0, 1); }
    // Reads exactly as many numbers as `out` holds.
    void numbers(std::string_view key, std::span<double> out, double least, double most);
    std::optional<std::string> string(std::string_view key, const std::string& allowed);  // an empty string is refused
    std::vector<std::string> strings(std::string_view key, const std::string& allowed);   // empty strings are refused
    std::optional<std::vector<int64_t>> integers(std::string_view key, const std::string& allowed);
    // Reads a string and converts it with `parse`, which returns an optional.
    template <class Parse>
    auto parsed(std::string_view key, const std::string& allowed, Parse parse) -> decltype(parse(std::string_view())) {
        const auto text = string(key, allowed);
        if (!text) return std::nullopt;
        const auto value = parse(std::string_view(*text));
        if (!value) refuse(node(key), key, allowed);
        return value;
    }
    // Returns the value of any type, or null if the key is absent. Serves keys that accept several types.
    const toml::node* any(std::string_view key) { return find(key); }
    std::optional<Table> table(std::string_view key);
    std::vector<Table> tables(std::string_view key);
    std::vector<std::string> keys() const;

    void require(std::string_view key, const std::string& allowed) const;
    // Refuses values that are valid alone but not together. `wrong` is null, or "NAME: allowed values" for the key that
    // is called `prefix`NAME in this table.
    void require_together(const std::string& prefix, const char* wrong) const;
    void refuse_unknown() const;
    [[noreturn]] void refuse(const toml::node& node, std::string_view key, const std::string& allowed) const;
    // Returns the value of a key that is present.
    const toml::node& node(std::string_view key) const { return *table_.get(key); }
    // Returns "FILE:LINE: key 'x.y'", for an error that is found later.
    std::string where(std::string_view key) const;

  private:
    const toml::node* find(std::string_view key);
    std::optional<uint64_t> integer(std::string_view key, uint64_t least, uint64_t most);
    std::string path(std::string_view key) const;
    [[noreturn]] void refuse_text(uint32_t line, std::string_view key, const std::string& text) const;

    const std::string& file_;
    std::string name_;
    const toml::table& table_;
    TextNumbers text_numbers_;
    std::vector<std::string> known_;
};

}  // namespace rove::config
