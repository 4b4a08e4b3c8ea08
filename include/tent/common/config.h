// SPDX-License-Identifier: Apache-2.0
// A configuration that a program puts together, under the name that Mooncake gives it; it needs nlohmann-json
// (nlohmann-json3-dev). TransferEngine takes a shared pointer to one.
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

// Paths are "transports/rdma/enable"; a key of the outermost table may be such a path itself. Any thread.
class Config {
  public:
    // What stands at `path`; `otherwise` if nothing does, or something that is no T.
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
    std::string get(const std::string& path, const char* otherwise) const {
        return get<std::string>(path, std::string(otherwise));
    }
    template <class T>
    std::vector<T> getArray(const std::string& path) const {
        return get<std::vector<T>>(path, {});
    }
    bool contains(const std::string& path) const {
        const std::lock_guard lock(mutex_);
        return find(path) != nullptr;
    }

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
    // As a boolean or an integer if `text` is one, else as text.
    void setFromString(const std::string& path, const std::string& text) {
        std::string lower;
        for (const char c : text) lower += c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
        if (lower == "true" || lower == "false") return set(path, lower == "true");
        char* end = nullptr;
        const long long number = std::strtoll(text.c_str(), &end, 10);
        if (!text.empty() && *end == 0) return set(path, number);
        set(path, text);
    }

    // Replaces all that was set. kInvalidArgument: not JSON.
    Status load(const std::string& content) {
        json parsed = json::parse(content, nullptr, false);
        if (parsed.is_discarded()) return Status::InvalidArgument("not JSON: " + content.substr(0, 60));
        const std::lock_guard lock(mutex_);
        values_ = std::move(parsed);
        return {};
    }
    Status loadFile(const std::string& path) {
        std::ifstream file(path);
        if (!file) return Status::InvalidArgument(path + " cannot be read");
        return load({std::istreambuf_iterator<char>(file), {}});
    }
    std::string dump(int indent = 2) const {
        const std::lock_guard lock(mutex_);
        return values_.dump(indent);
    }
    bool dumpSubtree(const std::string& path, std::string* out) const {
        const std::lock_guard lock(mutex_);
        const json* found = out == nullptr ? nullptr : find(path);
        if (found != nullptr) *out = found->dump();
        return found != nullptr;
    }

  private:
    // Until `take(part)` says that it is enough.
    static void each_part(std::string_view path, auto&& take) {
        while (!path.empty()) {
            const size_t end = path.find('/');
            const std::string_view part = path.substr(0, end);
            path.remove_prefix(end == std::string_view::npos ? path.size() : end + 1);
            if (!part.empty() && !take(std::string(part))) return;
        }
    }
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
