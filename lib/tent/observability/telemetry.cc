// SPDX-License-Identifier: Apache-2.0
// The /tent commands. They run on DPDK's telemetry thread, and acquire the shards' locks while they read the shards'
// counters.
#include "tent/observability/telemetry.h"

#include <algorithm>
#include <cctype>
#include <map>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "tent/engine/engine.h"
#include "tent/observability/figures.h"
#include "tent/observability/telemetry_calls.h"

namespace rove::tent {

namespace {

constexpr const char* kPrefix = "/tent/";

std::mutex mutex;
std::vector<Engine*> engines;
std::map<Engine*, SteadyFigures> steady;

using Texts = std::vector<std::pair<const char*, std::string>>;

void add(rte_tel_data* data, const FigureRow& row, const Texts& texts = {}) {
    const TelemetryCalls& calls = *telemetry_calls();
    rte_tel_data* one = calls.alloc();
    if (one == nullptr) return;
    calls.start_dict(one);
    for (const auto& [key, value] : texts) calls.add_string(one, key, value.c_str());
    for (const Figure& figure : row.figures) calls.add_uint(one, figure.name, figure.value);
    std::string key = row.of;  // DPDK accepts only letters, digits, '_' and '/'
    for (char& c : key)
        if (std::isalnum(static_cast<unsigned char>(c)) == 0 && c != '/') c = '_';
    calls.add_container(data, key.c_str(), one, 0);
}

// Answers with a dictionary to which `fill(Engine&)` adds for every engine.
int answer(rte_tel_data* data, auto&& fill) {
    telemetry_calls()->start_dict(data);
    const std::lock_guard lock(mutex);
    for (Engine* engine : engines) fill(*engine);
    return 0;
}

int show_figures(const char* command, const char*, rte_tel_data* data) {
    return answer(data, [&](Engine& engine) {
        for (const FigureTable& table : figure_tables()) {
            if (std::string(kPrefix) + table.name != command) continue;
            for (const FigureRow& row : steady[&engine].read(table, engine)) add(data, row);
        }
    });
}

// Shows the latency and the size that 50, 99 and 99.9 % of the requests do not exceed, to a factor of two.
int show_requests(const char*, const char*, rte_tel_data* data) {
    return answer(data, [data](Engine& engine) {
        for (const HistogramRow& row : read_histograms(engine)) {
            const auto& [latency, bytes] = row.seen;
            add(data, {row.priority + "/" + row.transport,
                       {{"requests", bytes.count()},
                        {"p50_ns", latency.quantile(0.5)},
                        {"p99_ns", latency.quantile(0.99)},
                        {"p999_ns", latency.quantile(0.999)},
                        {"total_ns", latency.sum()},
                        {"p50_bytes", bytes.quantile(0.5)},
                        {"p99_bytes", bytes.quantile(0.99)},
                        {"total_bytes", bytes.sum()}}});
        }
    });
}

std::string listed(const auto& values, auto&& text) {
    std::string list;
    for (const auto& value : values) list.append(list.empty() ? "" : ", ").append(text(value));
    return list;
}

// Shows the policies in the order in which they are tried, and then the default order where none matches.
int show_policies(const char*, const char*, rte_tel_data* data) {
    return answer(data, [&](Engine& engine) {
        const auto transports = [](std::span<const Transport> order) {
            return listed(order, [](Transport one) { return name(one); });
        };
        const auto type = [](SegmentType type) { return type == SegmentType::kMemory ? "memory" : "file"; };
        const ::rove::tent::Config& config = engine.core().config();
        for (const Policy& policy : config.policies) {
            const std::span<const Transport> order = policy.transports;
            add(data, {policy.name, {{"min_size", policy.min_size}, {"max_size", policy.max_size}}},
                {{"segment_type", type(policy.segment_type)},
                 {"priority", policy.priority ? name(*policy.priority) : "any"},
                 {"devices",
                  policy.devices.empty() ? "all" : listed(policy.devices, [](const auto& one) { return one; })},
                 {"transports", transports(order.empty() ? default_order(policy.segment_type) : order)}});
        }
        for (const SegmentType segment : {SegmentType::kMemory, SegmentType::kFile})
            add(data, {std::string("default/") + type(segment), {}},
                {{"segment_type", type(segment)},
                 {"transports", config.strict ? "none: strict" : transports(default_order(segment))}});
    });
}

}  // namespace

void show_in_telemetry(Engine& engine) {
    const TelemetryCalls* const calls = telemetry_calls();
    if (calls == nullptr) return;
    static const bool registered = [calls] {
        for (const FigureTable& table : figure_tables())
            calls->register_cmd((std::string(kPrefix) + table.name).c_str(), show_figures, table.help);
        calls->register_cmd("/tent/requests", show_requests,
                            "Latency and size of requests of the TENT engine by priority and transport");
        calls->register_cmd("/tent/policies", show_policies, "Policies of the TENT engine, in their order");
        return true;
    }();
    (void)registered;
    const std::lock_guard lock(mutex);
    engines.push_back(&engine);
}

void hide_from_telemetry(Engine& engine) {
    const std::lock_guard lock(mutex);
    std::erase(engines, &engine);
    steady.erase(&engine);
}

}  // namespace rove::tent
