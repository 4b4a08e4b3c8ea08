// SPDX-License-Identifier: Apache-2.0
// mooncake::tent::Config, a configuration that a program builds in memory, with Mooncake's interface. Pass a
// std::shared_ptr to one to the constructor of TransferEngine, which checks the keys and copies the values. Needs
// nlohmann-json (Debian's nlohmann-json3-dev).
#pragma once

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "tent/common/status.h"
#include "tent/common/types.h"

namespace mooncake::tent {

using json = nlohmann::json;

// A tree of JSON values. A `path` such as "transports/rdma/enable" names a value in nested tables; empty parts between
// slashes are ignored. If no value is there, a key of the outermost table with exactly that text, slashes included, is
// found instead. JSON's null counts as no value.
//
// Any thread may call any member at any time: a lock guards the tree. Calls fail only as described; memory may run out
// (std::bad_alloc), and text that is not UTF-8 makes dump() and dumpSubtree() throw nlohmann::json::exception.
class Config {
  public:
    // Returns the value at `path`, or `otherwise` if there is no value or it cannot be converted to T.
    template <class T>
    T get(const std::string& path, const T& otherwise) const {
        const std::lock_guard lock(mutex_);
        const json* found = find(path);
        if (found == nullptr) return otherwise;
        try {
            return found->get<T>();
        } catch (const json::exception&) {
            return otherwise;
        }
    }
    // Does the same for a text.
    std::string get(const std::string& path, const char* otherwise) const {
        return get<std::string>(path, std::string(otherwise));
    }
    // Returns the elements of the list at `path`; empty if there is no list, or an element is not a T.
    template <class T>
    std::vector<T> getArray(const std::string& path) const {
        return get<std::vector<T>>(path, {});
    }
    // Returns true if there is a value at `path`.
    bool contains(const std::string& path) const {
        const std::lock_guard lock(mutex_);
        return find(path) != nullptr;
    }

    // Sets the value at `path`. Creates the tables on the way, also in place of values that are not tables. An empty
    // path changes nothing.
    template <class T>
    void set(const std::string& path, const T& value) {
        const std::lock_guard lock(mutex_);
        json* at = &values_;
        bool any = false;
        each_part(path, [&](const std::string& part) {
            if (!at->is_object()) *at = json::object();
            at = &(*at)[part];
            any = true;
            return true;
        });
        if (any) *at = value;
    }
    // Sets a boolean if `text` is "true" or "false" in any case, an integer if it is a decimal number (beyond 64
    // bits, the nearest one of 64 bits), else the text.
    void setFromString(const std::string& path, const std::string& text) {
        std::string lower;
        for (const char c : text) lower += c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
        if (lower == "true" || lower == "false") return set(path, lower == "true");
        char* end = nullptr;
        const long long number = std::strtoll(text.c_str(), &end, 10);
        if (!text.empty() && *end == 0) return set(path, number);
        set(path, text);
    }

    // Replaces all values by those in `content`, a JSON text. Returns kInvalidArgument, and changes nothing, if it
    // cannot be parsed.
    Status load(const std::string& content) {
        json parsed = json::parse(content, nullptr, false);
        if (parsed.is_discarded()) return Status::InvalidArgument("not JSON: " + content.substr(0, 60));
        const std::lock_guard lock(mutex_);
        values_ = std::move(parsed);
        return {};
    }
    // Does the same with the content of a file. Returns kInvalidArgument if it cannot be read.
    Status loadFile(const std::string& path) {
        std::ifstream file(path);
        if (!file) return Status::InvalidArgument(path + " cannot be read");
        return load({std::istreambuf_iterator<char>(file), {}});
    }
    // Returns all values as JSON. `indent` is the number of spaces a level; -1 puts everything on one line.
    std::string dump(int indent = 2) const {
        const std::lock_guard lock(mutex_);
        return values_.dump(indent);
    }
    // Writes the value at `path` to *out as JSON on one line. Returns false, and leaves *out as it is, if there is no
    // value or `out` is null.
    bool dumpSubtree(const std::string& path, std::string* out) const {
        const std::lock_guard lock(mutex_);
        const json* found = out == nullptr ? nullptr : find(path);
        if (found != nullptr) *out = found->dump();
        return found != nullptr;
    }

  private:
    // Calls `take` with each part of `path` that is not empty, until it returns false.
    static void each_part(std::string_view path, auto&& take) {
        while (!path.empty()) {
            const size_t end = path.find('/');
            const std::string_view part = path.substr(0, end);
            path.remove_prefix(end == std::string_view::npos ? path.size() : end + 1);
            if (!part.empty() && !take(std::string(part))) return;
        }
    }
    // Returns the value at `path`, or null. The caller holds `mutex_`.
    const json* find(const std::string& path) const {
        if (path.empty()) return nullptr;
        const json* at = &values_;
        each_part(path, [&](const std::string& part) {
            const auto found = at->is_object() ? at->find(part) : at->end();
            at = found == at->end() ? nullptr : &*found;
            return at != nullptr;
        });
        if (at == nullptr && values_.is_object() && values_.contains(path)) at = &values_.at(path);
        return at == nullptr || at->is_null() ? nullptr : at;
    }

    json values_ = json::object();
    mutable std::mutex mutex_;
};

}  // namespace mooncake::tent
