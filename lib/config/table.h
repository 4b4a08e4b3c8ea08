// SPDX-License-Identifier: Apache-2.0
// Reading a table of TOML by naming its keys: wrong types, values out of range and keys that were not named are refused
// with file, line, key and what is allowed.
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

// Thrown: "FILE:LINE: key 'x.y': got ..., allowed ..."
struct Refused {
    std::string message;
};

// What is wrong with text that is not TOML: "FILE:LINE: ..."
std::string describe(const std::string& file, const toml::parse_error& error);

// One table of the file. Reads values of keys, remembers which were asked for, and refuses the others. A key that is
// not there leaves what it would set as it is.
class Table {
  public:
    // Whether "80" is the integer 80, as some writers of JSON have it.
    enum class TextNumbers : bool { kRefused, kAccepted };

    // `file` and `table` outlive this. The tables in it are read in the same way.
    Table(const std::string& file, std::string name, const toml::table& table,
          TextNumbers text_numbers = TextNumbers::kRefused)
        : file_(file), name_(std::move(name)), table_(table), text_numbers_(text_numbers) {}

    void uint(std::string_view key, auto& out, uint64_t least, uint64_t most) {
        const auto value = integer(key, least, most);
        if (value) out = static_cast<std::remove_reference_t<decltype(out)>>(*value);
    }
    void microseconds(std::string_view key, uint64_t& out_ns, uint64_t least, uint64_t most);
    void boolean(std::string_view key, bool& out);
    // One of several names.
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
    // Exactly as many as `out` has.
    void numbers(std::string_view key, std::span<double> out, double least, double most);
    std::optional<std::string> string(std::string_view key, const std::string& allowed);  // not empty
    std::vector<std::string> strings(std::string_view key, const std::string& allowed);   // none of them empty
    std::optional<std::vector<int64_t>> integers(std::string_view key, const std::string& allowed);
    // Parses a string by `parse`, which returns an optional.
    template <class Parse>
    auto parsed(std::string_view key, const std::string& allowed, Parse parse) -> decltype(parse(std::string_view())) {
        const auto text = string(key, allowed);
        if (!text) return std::nullopt;
        const auto value = parse(std::string_view(*text));
        if (!value) refuse(node(key), key, allowed);
        return value;
    }
    // The value whatever it is, null if there is none: for keys of several types.
    const toml::node* any(std::string_view key) { return find(key); }
    std::optional<Table> table(std::string_view key);
    std::vector<Table> tables(std::string_view key);
    std::vector<std::string> keys() const;

    void require(std::string_view key, const std::string& allowed) const;
    // Values that are fine alone may not be so together: `wrong` is null, or "NAME: what it may be" of the key that is
    // called `prefix`NAME here.
    void require_together(const std::string& prefix, const char* wrong) const;
    void refuse_unknown() const;
    [[noreturn]] void refuse(const toml::node& node, std::string_view key, const std::string& allowed) const;
    // The value of a key that is there.
    const toml::node& node(std::string_view key) const { return *table_.get(key); }
    // "FILE:LINE: key 'x.y'", for what only later is found to be wrong.
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
