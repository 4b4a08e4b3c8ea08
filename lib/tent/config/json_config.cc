// SPDX-License-Identifier: Apache-2.0
// See json_config.h.
#include "tent/config/json_config.h"

#include <algorithm>
#include <cctype>
#include <cstdint>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "tent/config/key_path.h"

namespace rove::tent {

namespace {

using nlohmann::json;

// The position of the parser: the line of the last character that is not white space, since a number is read one
// character too far.
struct Place {
    uint32_t line = 1, last = 1;

    void pass(char c) {
        if (c == '\n') ++line;
        if (std::isspace(static_cast<unsigned char>(c)) == 0) last = line;
    }
};

struct Characters {
    using iterator_category = std::input_iterator_tag;
    using value_type = char;
    using difference_type = std::ptrdiff_t;
    using pointer = const char*;
    using reference = const char&;

    reference operator*() const { return *at; }
    Characters& operator++() {
        place->pass(*at++);
        return *this;
    }
    bool operator==(const Characters& other) const { return at == other.at; }

    const char* at;
    Place* place;
};

struct Value {
    enum class Kind { kScalar, kObject, kArray };
    Kind kind = Kind::kScalar;
    uint32_t line = 1;              // line of an element, or of the key of a member
    std::string scalar;             // text as TOML writes it; empty for null
    std::vector<std::string> keys;  // keys of an object's values, in their order
    std::vector<Value> values;      // members or elements
};

class Reader : public json::json_sax_t {
  public:
    explicit Reader(const Place& place) : place_(place) {}

    bool null() override { return add({}); }
    bool boolean(bool value) override { return scalar(value ? "true" : "false"); }
    bool number_integer(json::number_integer_t value) override { return scalar(std::to_string(value)); }
    bool number_unsigned(json::number_unsigned_t value) override { return scalar(std::to_string(value)); }
    bool number_float(json::number_float_t value, const std::string&) override { return scalar(json(value).dump()); }
    bool string(std::string& value) override { return scalar(json(value).dump()); }
    bool binary(json::binary_t&) override { return false; }
    bool start_object(size_t) override { return open(Value::Kind::kObject); }
    bool start_array(size_t) override { return open(Value::Kind::kArray); }
    bool end_object() override { return close(); }
    bool end_array() override { return close(); }
    bool key(std::string& name) override {
        const std::vector<std::string>& known = open_.back()->keys;
        if (std::find(known.begin(), known.end(), name) != known.end()) return fail("key '" + name + "' occurs twice");
        key_ = name;
        key_line_ = place_.last;
        return true;
    }
    bool parse_error(size_t, const std::string&, const json::exception& error) override {
        // The text is "[json.exception.parse_error.101] parse error at line 3, column 5: REASON".
        const std::string text = error.what();
        const size_t what = text.find(": ");
        return fail(what == std::string::npos ? text : text.substr(what + 2));
    }

    const Value& root() const { return root_; }
    const std::string& error() const { return error_; }

  private:
    bool fail(const std::string& what) {
        error_ = std::to_string(place_.line) + ": " + what;
        return false;
    }
    bool scalar(std::string text) {
        Value value;
        value.scalar = std::move(text);
        return add(std::move(value));
    }
    bool add(Value value) {
        place(std::move(value));
        return true;
    }
    bool open(Value::Kind kind) {
        Value value;
        value.kind = kind;
        open_.push_back(place(std::move(value)));
        return true;
    }
    bool close() {
        open_.pop_back();
        return true;
    }
    Value* place(Value value) {
        if (open_.empty()) {
            root_ = std::move(value);
            return &root_;
        }
        Value& parent = *open_.back();
        const bool member = parent.kind == Value::Kind::kObject;
        value.line = member ? key_line_ : place_.last;
        if (member) parent.keys.push_back(key_);
        return &parent.values.emplace_back(std::move(value));
    }

    const Place& place_;
    Value root_;
    std::vector<Value*> open_;  // only the last one grows, so that pointers into the others' vectors stay valid
    std::string key_, error_;
    uint32_t key_line_ = 1;
};

// Only the parser of toml++ sets line numbers, so it parses each value at its line.
toml::table parsed(uint32_t line, const std::string& text) {
    return toml::parse(std::string(line - 1, '\n') + text);
}

void fill(toml::table& table, const Value& object);

void fill(toml::array& array, const Value& value);

// Calls `take` with the node, from which it may move.
void make(const Value& value, auto&& take) {
    toml::table holder = parsed(value.line, value.kind == Value::Kind::kScalar   ? "value = " + value.scalar
                                            : value.kind == Value::Kind::kObject ? "[value]"
                                                                                 : "value = []");
    toml::node& node = *holder.get("value");
    if (value.kind == Value::Kind::kObject) fill(*node.as_table(), value);
    if (value.kind == Value::Kind::kArray) fill(*node.as_array(), value);
    take(std::move(node));
}

bool is_null(const Value& value) {
    return value.kind == Value::Kind::kScalar && value.scalar.empty();
}

toml::key at_line(const std::string& name, uint32_t line) {
    return toml::key(name, toml::source_region{{line, 1}, {line, 1}, nullptr});
}

void fill(toml::table& table, const Value& object) {
    for (size_t i = 0; i < object.values.size(); ++i) {
        const Value& value = object.values[i];
        if (is_null(value)) continue;
        const toml::key key = at_line(object.keys[i], value.line);
        make(value, [&](toml::node&& node) { table.insert_or_assign(key, std::move(node)); });
    }
}

void fill(toml::array& array, const Value& value) {
    for (const Value& element : value.values)
        if (!is_null(element)) make(element, [&](toml::node&& node) { array.push_back(std::move(node)); });
}

// Keys of [transports.rdma] that the documents show without their table.
constexpr std::string_view kShort[] = {
    "enable_smart_scheduling",
    "numa_penalties",
    "bandwidth_learning_rate",
    "ewma_min_bandwidth_multiplier",
    "ewma_max_bandwidth_multiplier",
    "score_jitter_range",
    "score_epsilon",
    "default_bandwidth_gbps",
    "min_bandwidth_gbps",
    "max_bandwidth_gbps",
    "enable_priority_filtering",
    "local_rotation_interval_us",
    "priority_promotion_timeout_us",
    "slot_rotation_interval_ms",
    "shared_quota_shm_path",
};

std::optional<std::string> path_of(const std::string& key) {
    if (key.find('/') != std::string::npos) return key;
    for (const std::string_view one : kShort)
        if (key == one) return "transports/rdma/" + key;
    return std::nullopt;
}

}  // namespace

bool is_json(const std::string& text) {
    const size_t first = text.find_first_not_of(" \t\r\n");
    return first != std::string::npos && text[first] == '{';
}

Status read_json(const std::string& text, const std::string& name, toml::table* out) {
    Place place;
    Reader reader(place);
    const char* const end = text.data() + text.size();
    if (!json::sax_parse(Characters{text.data(), &place}, Characters{end, &place}, &reader))
        return {Code::kMalformedJson, name + ":" + reader.error()};
    try {
        toml::table root;
        fill(root, reader.root());
        for (const std::string& key : reader.root().keys) {
            const auto path = path_of(key);
            toml::node* node = root.get(key);
            if (!path || node == nullptr) continue;
            if (find_path(root, *path) == nullptr) put_path(root, *path, std::move(*node));
            root.erase(key);
        }
        *out = std::move(root);
    } catch (const toml::parse_error& error) {  // a number or a character that TOML does not have
        return {Code::kMalformedJson,
                name + ":" + std::to_string(error.source().begin.line) + ": " + std::string(error.description())};
    }
    return {};
}

}  // namespace rove::tent
