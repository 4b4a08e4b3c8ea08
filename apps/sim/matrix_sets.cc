// SPDX-License-Identifier: Apache-2.0
// The cells of the matrix: their names, and the sets that are run. The quick set covers every pair of values of two
// dimensions that is possible, because most faults of a transport need two conditions to meet.
#include <fnmatch.h>

#include <algorithm>
#include <array>
#include <set>
#include <sstream>
#include <stdexcept>

#include "fabric/random.h"
#include "matrix.h"

namespace rove::sim {
namespace {

using namespace fabric;
using Condition = MatrixCell::Condition;
using Pattern = MatrixCell::Pattern;
using Protocol = MatrixCell::Protocol;
using Signal = MatrixCell::Signal;

template <class Value>
struct Named {
    Value value;
    const char* name;
};

constexpr std::array<Named<Protocol>, 3> kProtocols{
    {{Protocol::kRc, "rc"}, {Protocol::kMp, "mp"}, {Protocol::kMixed, "mixed"}}};
constexpr std::array<Named<uint32_t>, 5> kQps{
    {{1, "1qp"}, {12, "12qp"}, {128, "128qp"}, {1000, "1000qp"}, {10'000, "10000qp"}}};
constexpr std::array<Named<uint32_t>, 4> kMessages{{{64, "64B"}, {4096, "4K"}, {65'536, "64K"}, {1 << 20, "1M"}}};
constexpr std::array<Named<Time>, 5> kRtts{{{kMicrosecond, "1us"},
                                            {12 * kMicrosecond, "12us"},
                                            {kMillisecond, "1ms"},
                                            {10 * kMillisecond, "10ms"},
                                            {100 * kMillisecond, "100ms"}}};
constexpr std::array<Named<Signal>, 3> kSignals{
    {{Signal::kNone, "nomarks"}, {Signal::kEcn, "ecn"}, {Signal::kPfc, "pfc"}}};
using Fault = std::pair<Condition, uint32_t>;
constexpr std::array<Named<Fault>, 34> kFaults{{{{Condition::kHealthy, 0}, "healthy"},
                                                {{Condition::kLoss, 100'000}, "loss1in100000"},
                                                {{Condition::kLoss, 10'000}, "loss1in10000"},
                                                {{Condition::kLoss, 1'000}, "loss1in1000"},
                                                {{Condition::kLoss, 100}, "loss1in100"},
                                                {{Condition::kLoss, 20}, "loss1in20"},
                                                {{Condition::kLoss, 10}, "loss1in10"},
                                                {{Condition::kBurst, 100'000}, "burst1in100000"},
                                                {{Condition::kBurst, 10'000}, "burst1in10000"},
                                                {{Condition::kBurst, 1'000}, "burst1in1000"},
                                                {{Condition::kBurst, 100}, "burst1in100"},
                                                {{Condition::kBurst, 20}, "burst1in20"},
                                                {{Condition::kBurst, 10}, "burst1in10"},
                                                {{Condition::kDead, 1}, "dead1"},
                                                {{Condition::kDead, 2}, "dead2"},
                                                {{Condition::kDead, 3}, "dead3"},
                                                {{Condition::kDead, 4}, "dead4"},
                                                {{Condition::kDead, 5}, "dead5"},
                                                {{Condition::kDead, 6}, "dead6"},
                                                {{Condition::kDead, 7}, "dead7"},
                                                {{Condition::kDying, 1}, "dying1"},
                                                {{Condition::kDying, 2}, "dying2"},
                                                {{Condition::kDying, 3}, "dying3"},
                                                {{Condition::kDying, 4}, "dying4"},
                                                {{Condition::kDying, 5}, "dying5"},
                                                {{Condition::kDying, 6}, "dying6"},
                                                {{Condition::kDying, 7}, "dying7"},
                                                {{Condition::kSlow, 2}, "slow2"},
                                                {{Condition::kSlow, 10}, "slow10"},
                                                {{Condition::kSlow, 100}, "slow100"},
                                                {{Condition::kFlap, 1}, "flap1ms"},
                                                {{Condition::kFlap, 5}, "flap5ms"},
                                                {{Condition::kFlap, 20}, "flap20ms"},
                                                {{Condition::kFlap, 100}, "flap100ms"}}};
using Load = std::pair<Pattern, uint32_t>;
constexpr std::array<Named<Load>, 5> kLoads{{{{Pattern::kPaths, 1}, "paths8"},
                                             {{Pattern::kIncast, 8}, "8to1"},
                                             {{Pattern::kIncast, 16}, "16to1"},
                                             {{Pattern::kIncast, 64}, "64to1"},
                                             {{Pattern::kAllToAll, 8}, "all8"}}};

constexpr size_t kDimensions = 7;
constexpr std::array<size_t, kDimensions> kSizes{kProtocols.size(), kQps.size(),    kMessages.size(), kRtts.size(),
                                                 kSignals.size(),   kFaults.size(), kLoads.size()};
using Choice = std::array<size_t, kDimensions>;  // an index into each dimension

MatrixCell cell_of(const Choice& at) {
    const auto& [condition, degree] = kFaults[at[5]].value;
    const auto& [pattern, senders] = kLoads[at[6]].value;
    return {.protocol = kProtocols[at[0]].value,
            .qps = kQps[at[1]].value,
            .message_bytes = kMessages[at[2]].value,
            .rtt = kRtts[at[3]].value,
            .signal = kSignals[at[4]].value,
            .condition = condition,
            .degree = degree,
            .pattern = pattern,
            .senders = senders};
}

template <class Value, size_t size>
std::string name_in(const std::array<Named<Value>, size>& values, const Value& value) {
    for (const auto& each : values) {
        if (each.value == value) return each.name;
    }
    return "?";
}

void for_each_choice(const auto& use) {
    Choice at{};
    while (true) {
        use(at);
        size_t dimension = kDimensions;
        while (dimension != 0 && ++at[dimension - 1] == kSizes[dimension - 1]) at[--dimension] = 0;
        if (dimension == 0) return;
    }
}

// The pairs of values that a choice has: first dimension and value, second dimension and value.
using Pair = std::array<uint8_t, 4>;
std::vector<Pair> pairs_of(const Choice& at) {
    std::vector<Pair> pairs;
    for (uint8_t i = 0; i < kDimensions; ++i) {
        for (uint8_t j = i + 1; j < kDimensions; ++j)
            pairs.push_back({i, static_cast<uint8_t>(at[i]), j, static_cast<uint8_t>(at[j])});
    }
    return pairs;
}

// Chooses cells until they have every possible pair: each time the best of some candidates that have the first missing
// pair and are random otherwise.
std::vector<MatrixCell> pairwise() {
    std::set<Pair> missing;
    for_each_choice([&](const Choice& at) {
        if (!cell_of(at).is_possible()) return;
        for (const Pair& pair : pairs_of(at)) missing.insert(pair);
    });
    std::vector<MatrixCell> cells;
    const auto add = [&](const Choice& at) {
        cells.push_back(cell_of(at));
        for (const Pair& pair : pairs_of(at)) missing.erase(pair);
    };
    // The incast of which the issue speaks, and the base of all comparisons.
    for (size_t protocol = 0; protocol < kProtocols.size(); ++protocol) {
        add({protocol, 1, 2, 1, 0, 0, 2});
        add({protocol, 0, 2, 1, 1, 0, 0});
        add({protocol, 2, 2, 1, 1, 0, 0});
    }
    Random random(47, 1);
    while (!missing.empty()) {
        const Pair wanted = *missing.begin();
        Choice best{};
        size_t most = 0;
        for (int i = 0; i < 60 || most == 0; ++i) {
            Choice at;
            for (size_t dimension = 0; dimension < kDimensions; ++dimension)
                at[dimension] = random.below(kSizes[dimension]);
            // Most conditions are possible over parallel paths only.
            if (random.chance(0.8)) at[6] = 0;
            at[wanted[0]] = wanted[1];
            at[wanted[2]] = wanted[3];
            if (!cell_of(at).is_possible()) continue;
            size_t covered = 0;
            for (const Pair& pair : pairs_of(at)) covered += missing.contains(pair);
            if (covered > most) {
                most = covered;
                best = at;
            }
        }
        add(best);
    }
    return cells;
}

// Returns true if a cell belongs to the full set: the load and the network crossed without a fault, and each fault with
// two of them.
bool is_in_full(const MatrixCell& cell) {
    const bool paths = cell.pattern == Pattern::kPaths;
    const bool usual_message = cell.message_bytes == 65'536, usual_qps = cell.qps == 12;
    if (cell.condition == Condition::kHealthy) {
        if (paths) return true;
        return usual_message || (cell.qps == 128 && cell.rtt == 12 * kMicrosecond);
    }
    if (!paths) return usual_message && cell.qps <= 12 && cell.signal != Signal::kPfc;
    if (usual_message && usual_qps) return true;
    if (cell.signal != Signal::kEcn) return false;
    return cell.rtt == 12 * kMicrosecond && (usual_message || usual_qps || cell.message_bytes == 4096);
}

std::vector<MatrixCell> cells_of(MatrixSet set) {
    if (set == MatrixSet::kQuick) return pairwise();
    std::vector<MatrixCell> cells;
    for_each_choice([&](const Choice& at) {
        const MatrixCell cell = cell_of(at);
        if (cell.is_possible() && (set == MatrixSet::kAll || is_in_full(cell))) cells.push_back(cell);
    });
    return cells;
}

std::vector<std::string> split(const std::string& text, char separator) {
    std::vector<std::string> words;
    std::istringstream in(text);
    for (std::string word; std::getline(in, word, separator);) words.push_back(word);
    return words;
}

bool matches(const std::string& name, const std::string& filter) {
    if (fnmatch(filter.c_str(), name.c_str(), 0) == 0) return true;
    const std::vector<std::string> values = split(name, '-');
    return std::ranges::all_of(split(filter, ','), [&](const std::string& word) {
        return std::ranges::any_of(
            values, [&](const std::string& value) { return fnmatch(word.c_str(), value.c_str(), 0) == 0; });
    });
}

}  // namespace

std::string MatrixCell::name() const {
    return name_in(kProtocols, protocol) + '-' + name_in(kQps, qps) + '-' + name_in(kMessages, message_bytes) + '-' +
           name_in(kRtts, rtt) + '-' + name_in(kSignals, signal) + '-' + name_in(kFaults, Fault{condition, degree}) +
           '-' + name_in(kLoads, Load{pattern, senders});
}

bool MatrixCell::is_possible() const {
    const bool loses = condition == Condition::kLoss || condition == Condition::kBurst;
    if (pattern != Pattern::kPaths) return condition == Condition::kHealthy || loses;
    // Ten round trips to find a path again are a small part of the seven periods in which it is up.
    return condition != Condition::kFlap || 20 * rtt <= 7 * degree * kMillisecond;
}

std::vector<MatrixCell> matrix_cells(MatrixSet set, const std::string& filter) {
    std::vector<MatrixCell> cells = cells_of(set);
    if (!filter.empty()) std::erase_if(cells, [&](const MatrixCell& cell) { return !matches(cell.name(), filter); });
    if (cells.empty()) throw std::invalid_argument("no cell of the matrix matches '" + filter + "'");
    return cells;
}

}  // namespace rove::sim
