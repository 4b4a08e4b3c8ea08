// SPDX-License-Identifier: Apache-2.0
#include "bars.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <string_view>

namespace rove::sim {
namespace {

// Defines kRows and kErrata.
#include "bars.inc"

constexpr std::string_view kPapers[] = {"MP-RDMA", "Eunomia"};

enum class Verdict : uint8_t { kHolds, kHoldsQuick, kMisses, kNoResult };

bool is_of_papers(const Row& row) {
    return std::ranges::find(kPapers, row.paper_name) != std::end(kPapers);
}

// Returns the committed result that a bar is judged by: the quick form is used where the full one was not run.
std::optional<double> result_of(const Row& row, const Bar& bar) {
    return row.is_quick || !bar.full ? bar.quick : bar.full;
}

Verdict verdict(const Row& row) {
    bool is_quick = row.is_quick;
    Verdict worst = Verdict::kHolds;
    for (const Bar& bar : row.bars) {
        if (!bar.is_judged()) continue;
        const std::optional<double> result = result_of(row, bar);
        if (!result)
            worst = worst == Verdict::kMisses ? worst : Verdict::kNoResult;
        else if (!bar.holds(*result))
            worst = Verdict::kMisses;
        is_quick |= !bar.full;
    }
    return worst == Verdict::kHolds && is_quick ? Verdict::kHoldsQuick : worst;
}

const char* text_of(Verdict verdict) {
    switch (verdict) {
        case Verdict::kHolds:
            return "holds";
        case Verdict::kHoldsQuick:
            return "holds (quick)";
        case Verdict::kMisses:
            return "misses";
        case Verdict::kNoResult:
            break;
    }
    return "no result";
}

struct Count {
    size_t rows = 0, hold = 0, quick = 0;
};

Count count(bool of_papers) {
    Count count;
    for (const Row& row : rows()) {
        if (is_of_papers(row) != of_papers) continue;
        const Verdict how = verdict(row);
        ++count.rows;
        count.hold += how == Verdict::kHolds || how == Verdict::kHoldsQuick;
        count.quick += how == Verdict::kHoldsQuick;
    }
    return count;
}

// Returns the results of a row, with its misses marked.
std::string results_of(const Row& row, const char* mark) {
    std::string text;
    for (const Bar& bar : row.bars) {
        if (!text.empty()) text += ", ";
        const std::optional<double> result = result_of(row, bar);
        if (!result) {
            text += "-";
            continue;
        }
        const bool misses = bar.is_judged() && !bar.holds(*result);
        text +=
            (misses ? mark : "") + format(std::abs(*result) < 100 ? "%.3g" : "%.4g", *result) + (misses ? mark : "");
    }
    return text;
}

// Returns the bars of a row, each once.
std::string bars_of(const Row& row) {
    std::string text;
    std::set<std::string> seen;
    for (const Bar& bar : row.bars) {
        if (bar.is_judged() && seen.insert(bar.text()).second) text += (text.empty() ? "" : "; ") + bar.text();
    }
    return text;
}

// Breaks a paragraph into lines of Markdown, of which all but the first are indented as an item's.
std::string wrapped(const std::string& text) {
    constexpr size_t kWidth = 116;
    std::string out, line;
    size_t at = 0;
    while (at < text.size()) {
        const size_t end = std::min(text.find(' ', at), text.size());
        const std::string word = text.substr(at, end - at);
        if (!line.empty() && line.size() + 1 + word.size() > kWidth) {
            out += line + "\n";
            line = "  " + word;
        } else {
            line += (line.empty() ? "" : " ") + word;
        }
        at = end + 1;
    }
    return out + line + "\n";
}

}  // namespace

std::span<const Row> rows() {
    return kRows;
}

std::span<const Erratum> errata() {
    return kErrata;
}

bool Bar::holds(double value) const {
    return (!at_least || value >= *at_least) && (!at_most || value <= *at_most) && (!above || value > *above) &&
           (!below || value < *below);
}

std::string Bar::text() const {
    std::string text;
    const auto add = [&](const char* what, const std::optional<double>& limit) {
        if (limit) text += (text.empty() ? "" : ", ") + std::string(what) + format(" %.6g", *limit);
    };
    add("at least", at_least);
    add("at most", at_most);
    add("above", above);
    add("below", below);
    return text;
}

void apply_bars(const std::string& figure, Report& report) {
    for (const Row& row : rows()) {
        for (const Bar& bar : row.bars) {
            if (figure != bar.figure) continue;
            for (Measure& measure : report.measures) {
                if (measure.metric != bar.metric) continue;
                measure.paper = bar.paper;
                if (!bar.is_judged()) continue;
                measure.bar = bar.text();
                measure.holds = bar.holds(measure.ours);
            }
        }
    }
}

std::string count_rows() {
    const Count papers = count(true), others = count(false);
    const auto number = [](size_t value) { return std::to_string(value); };
    return number(papers.hold) + " of " + number(papers.rows) + " rows hold (" + number(papers.quick) +
           " in quick form only), " + number(errata().size()) + (errata().size() == 1 ? " erratum" : " errata") +
           "; of UEC's rows and our own " + number(others.hold) + " of " + number(others.rows);
}

std::string table_of_rows() {
    std::string text;
    for (const Row& row : rows()) {
        text += std::string(row.figure) + ": " + row.claim + "\n    " + row.metric + ": paper " + row.paper + "; bar " +
                bars_of(row) + "; ours " + results_of(row, "!") + ": " + text_of(verdict(row)) + "\n";
    }
    return text + "\n" + count_rows() + "\n";
}

std::string markdown_of_rows() {
    std::string text = count_rows() + ".\n\n| figure | metric | paper | bar | ours | |\n|---|---|---|---|---|---|\n";
    const char* figure = "";
    for (const Row& row : rows()) {
        const Verdict how = verdict(row);
        const bool holds = how == Verdict::kHolds || how == Verdict::kHoldsQuick;
        text += std::string(row.figure) == figure ? "| " : "| `" + std::string(row.figure) + "` ";
        figure = row.figure;
        text += "| " + std::string(row.metric) + " | " + row.paper + " | " + bars_of(row) + " | " +
                results_of(row, "**") + (*row.note != 0 ? "; " + std::string(row.note) : "") + " | " +
                (holds ? text_of(how) : "**" + std::string(text_of(how)) + "**") + " |\n";
    }
    text += "\nRows that miss, and why:\n\n";
    for (const Row& row : rows()) {
        if (*row.reason == 0) continue;
        text += wrapped("- `" + std::string(row.figure) + "`, " + row.metric + ". " + row.reason);
    }
    text += "\nErrata of the papers, which are not counted:\n\n";
    for (const Erratum& erratum : errata())
        text += wrapped("- `" + std::string(erratum.figure) + "`, " + erratum.where + ". " + erratum.claim + " " +
                        erratum.why);
    return text;
}

}  // namespace rove::sim
