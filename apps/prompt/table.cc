// SPDX-License-Identifier: Apache-2.0
#include "prompt/table.h"

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <vector>

namespace rove::prompt {

namespace {

constexpr size_t kMaxColumns = 4;  // without the column of names; more items are printed below each other

std::string value_text(const Report& value) {
    if (value.is_string()) return value.get<std::string>();
    if (value.is_number_float()) {
        char text[32];
        std::snprintf(text, sizeof text, "%.3f", value.get<double>());
        return text;
    }
    if (!value.is_array()) return value.dump();
    std::string list;
    for (const Report& one : value) list.append(list.empty() ? "" : "\n").append(value_text(one));
    return list;
}

bool is_zero(const std::string& text) {
    return text == "0" || text == "0.000" || text.empty();
}

using Row = std::vector<std::string>;

std::string aligned(const std::vector<Row>& rows) {
    std::vector<size_t> widths;
    for (const Row& row : rows) {
        widths.resize(std::max(widths.size(), row.size()));
        for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
    }
    std::string text;
    for (const Row& row : rows) {
        std::string line = "  ";
        for (size_t i = 0; i < row.size(); ++i) {
            const std::string blanks(widths[i] - row[i].size(), ' ');
            line += i == 0 ? row[i] + blanks : "  " + blanks + row[i];
        }
        text += line + "\n";
    }
    return text;
}

// Formats an object of objects whose members are plain values.
std::string matrix(const Report& report) {
    std::vector<std::string> names;  // the members' names, in the order of their first appearance
    for (const auto& [item, members] : report.items())
        for (const auto& [name, value] : members.items())
            if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
    std::vector<Row> rows;
    Row head{""};
    for (const auto& [item, members] : report.items()) head.push_back(item);
    rows.push_back(std::move(head));
    for (const std::string& name : names) {
        Row row{name};
        for (const auto& [item, members] : report.items())
            row.push_back(members.contains(name) ? value_text(members[name]) : "");
        if (!std::all_of(row.begin() + 1, row.end(), is_zero)) rows.push_back(std::move(row));
    }
    if (report.size() <= kMaxColumns) return aligned(rows);
    std::vector<Row> turned(rows.front().size());
    for (const Row& row : rows)
        for (size_t i = 0; i < row.size(); ++i) turned[i].push_back(row[i]);
    return aligned(turned);
}

bool is_plain(const Report& report) {
    return std::none_of(report.begin(), report.end(), [](const Report& one) { return one.is_structured(); });
}

}  // namespace

std::string to_text(const Report& report) {
    if (report.is_null()) return "  nothing\n";
    if (!report.is_structured()) return value_text(report) + "\n";
    if (report.empty()) return "  none\n";
    if (report.is_array()) return value_text(report) + "\n";
    if (std::all_of(report.begin(), report.end(), [](const Report& one) { return one.is_object() && is_plain(one); }))
        return matrix(report);
    std::vector<Row> plain;
    std::string nested;
    for (const auto& [name, value] : report.items()) {
        if (value.is_structured())
            nested += name + "\n" + to_text(value);
        else
            plain.push_back({name, value_text(value)});
    }
    return aligned(plain) + nested;
}

Report difference(const Report& now, const Report& before) {
    if (now.is_number_unsigned() && before.is_number_unsigned()) {
        const auto last = now.get<uint64_t>(), first = before.get<uint64_t>();
        return last >= first ? last - first : last;
    }
    if (!now.is_object() || !before.is_object()) return now;
    Report result = Report::object();
    for (const auto& [name, value] : now.items())
        result[name] = before.contains(name) ? difference(value, before[name]) : value;
    return result;
}

}  // namespace rove::prompt
