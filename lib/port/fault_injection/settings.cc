// SPDX-License-Identifier: Apache-2.0
// Converts settings from and to text.
#include "port/fault_injection/settings.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <sstream>

namespace rove::datapath {

namespace {

// Reads settings from "key=value" texts. `error` keeps the first mistake.
struct Reader {
    std::map<std::string, std::string, std::less<>> values;
    std::string known, error;

    void take(const char* key, auto& out, const std::string& allowed, auto&& parse) {
        known += (known.empty() ? "" : ", ") + std::string(key);
        const auto found = values.extract(key);
        if (!found.empty() && !parse(std::string_view(found.mapped()), out) && error.empty())
            error = "key '" + std::string(key) + "': got '" + found.mapped() + "', allowed " + allowed;
    }
    static bool number(std::string_view text, auto& out, auto least, auto most) {
        const char* const end = text.data() + text.size();
        const auto [stopped, bad] = std::from_chars(text.data(), end, out);
        return bad == std::errc() && stopped == end && out >= least && out <= most;
    }
    void probability(const char* key, double& out) {
        take(key, out, "a number 0..1", [](auto text, double& value) { return number(text, value, 0, 1); });
    }
    void uint(const char* key, uint32_t& out, uint32_t least, uint32_t most) {
        take(key, out, "an integer " + std::to_string(least) + ".." + std::to_string(most),
             [=](auto text, uint32_t& value) { return number(text, value, least, most); });
    }
    void boolean(const char* key, bool& out) {
        take(key, out, "true or false", [](auto text, bool& value) {
            value = text == "true";
            return value || text == "false";
        });
    }
};

struct Writer {
    std::vector<std::pair<const char*, std::string>> written;

    void probability(const char* key, double value) {
        std::ostringstream text;
        text << value;
        written.emplace_back(key, text.str());
    }
    void uint(const char* key, uint32_t value, uint32_t, uint32_t) { written.emplace_back(key, std::to_string(value)); }
    void boolean(const char* key, bool value) { written.emplace_back(key, value ? "true" : "false"); }
};

}  // namespace

std::string change(PathSettings& settings, std::string_view changes) {
    Reader reader;
    for (std::string_view rest = changes; !rest.empty();) {
        const std::string_view item = rest.substr(0, rest.find(','));
        rest.remove_prefix(std::min(item.size() + 1, rest.size()));
        const size_t equals = item.find('=');
        if (equals == std::string_view::npos) return "got '" + std::string(item) + "', allowed KEY=VALUE";
        reader.values[std::string(item.substr(0, equals))] = item.substr(equals + 1);
    }
    PathSettings changed = settings;
    PathSettings::visit(changed, reader);
    if (reader.error.empty() && !reader.values.empty())
        reader.error = "got the unknown key '" + reader.values.begin()->first + "', allowed " + reader.known;
    if (reader.error.empty()) settings = changed;
    return reader.error;
}

std::vector<std::pair<const char*, std::string>> texts(const PathSettings& settings) {
    Writer writer, defaults;
    const PathSettings none;
    PathSettings::visit(settings, writer);
    PathSettings::visit(none, defaults);
    std::erase_if(writer.written, [&](const auto& text) {
        return std::count(defaults.written.begin(), defaults.written.end(), text) != 0;
    });
    return writer.written;
}

void PathState::add(const PathState& worker) {
    settings = worker.settings;
    for (size_t i = 0; i < counters.values.size(); ++i) counters.values[i] += worker.counters.values[i];
    waiting += worker.waiting;
}

}  // namespace rove::datapath
