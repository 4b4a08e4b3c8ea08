// SPDX-License-Identifier: Apache-2.0
// The /rove commands. They run on DPDK's telemetry thread. Their answers are described in report.h.
#include "runtime/telemetry.h"

#include <charconv>
#include <cstdlib>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "base/telemetry_data.h"
#include "runtime/report.h"
#include "runtime/runtime.h"

namespace rove::datapath {

namespace {

constexpr size_t kMaxListed = RTE_TEL_MAX_ARRAY_ENTRIES;

std::mutex mutex;  // against stop_telemetry()
Runtime* shown = nullptr;

void fill_dict(rte_tel_data* to, const Report& from);

void fill_array(rte_tel_data* to, const Report& from) {
    const bool numbers = !from.empty() && from.front().is_number();
    rte_tel_data_start_array(to, numbers ? RTE_TEL_U64_VAL : RTE_TEL_STRING_VAL);
    for (const Report& one : from) {
        if (numbers)
            rte_tel_data_add_array_uint(to, one.get<uint64_t>());
        else
            rte_tel_data_add_array_string(to, one.get_ref<const std::string&>().c_str());
    }
}

void fill_dict(rte_tel_data* to, const Report& from) {
    rte_tel_data_start_dict(to);
    for (const auto& [key, value] : from.items()) {
        const char* name = key.c_str();
        if (value.is_number_integer() && value >= 0) {
            rte_tel_data_add_dict_uint(to, name, value.get<uint64_t>());
        } else if (value.is_number()) {
            rte_tel_data_add_dict_int(to, name, value.get<int>());
        } else if (value.is_string()) {
            rte_tel_data_add_dict_string(to, name, value.get_ref<const std::string&>().c_str());
        } else if (rte_tel_data* inner = rte_tel_data_alloc()) {
            fill(inner, value);
            rte_tel_data_add_dict_container(to, name, inner, 0);
        }
    }
}

// Answers with `make(Runtime&)`. Fails if that is null or if telemetry was stopped.
int answer(rte_tel_data* data, auto&& make) {
    const std::lock_guard lock(mutex);
    if (shown == nullptr) return -1;
    const Report report = make(*shown);
    if (report.is_null()) return -1;
    if (report.is_string()) return rte_tel_data_string(data, report.get_ref<const std::string&>().c_str());
    fill(data, report);
    return 0;
}

// Answers commands without parameters.
template <Report (*kReport)(Runtime&)>
int show(const char*, const char*, rte_tel_data* data) {
    return answer(data, kReport);
}

uint32_t number(const char* text) {
    return text == nullptr ? 0 : static_cast<uint32_t>(std::strtoul(text, nullptr, 0));
}

int show_qps(const char*, const char* from, rte_tel_data* data) {
    return answer(data, [&](Runtime& runtime) { return report_qps(runtime, number(from), kMaxListed); });
}

int show_qp(const char*, const char* qpn, rte_tel_data* data) {
    return answer(data, [&](Runtime& runtime) { return report_qp(runtime, number(qpn)); });
}

std::string_view next_word(std::string_view& rest) {
    const std::string_view word = rest.substr(0, rest.find(','));
    rest.remove_prefix(std::min(word.size() + 1, rest.size()));
    return word;
}

// Makes the requested changes, if there are any. Returns "" or the reason for a failure.
std::string change_impairment(Runtime& runtime, const RdmaInterface& interface, std::string_view path,
                              std::string_view changes) {
    if (path.empty()) return {};
    if (path == "all") return runtime.impair(interface, std::nullopt, changes);
    uint32_t index = 0;
    const auto [end, bad] = std::from_chars(path.data(), path.data() + path.size(), index);
    if (bad != std::errc() || end != path.data() + path.size())
        return "got path '" + std::string(path) + "', allowed a number, or all";
    return runtime.impair(interface, index, changes);
}

// Answers with the paths, or with a string that describes an error.
int impair(const char*, const char* parameters, rte_tel_data* data) {
    return answer(data, [&](Runtime& runtime) -> Report {
        std::string_view rest = parameters == nullptr ? "" : parameters;
        const std::string_view name = next_word(rest), path = next_word(rest);
        const RdmaInterface* interface = find_interface(runtime, name);
        if (interface == nullptr) return "got device '" + std::string(name) + "', allowed" + device_names(runtime);
        if (std::string wrong = change_impairment(runtime, *interface, path, rest); !wrong.empty()) return wrong;
        return report_impairments(runtime, *interface);
    });
}

}  // namespace

void fill(rte_tel_data* to, const Report& from) {
    if (from.is_array())
        fill_array(to, from);
    else
        fill_dict(to, from);
}

void start_telemetry(Runtime& runtime) {
    {
        const std::lock_guard lock(mutex);
        shown = &runtime;
    }
    rte_telemetry_register_cmd("/rove/devices", show<report_devices>, "Devices with their addresses. No parameters.");
    rte_telemetry_register_cmd("/rove/ports", show<report_ports>,
                               "Frames and bytes of each device's port. No parameters.");
    rte_telemetry_register_cmd("/rove/workers", show<report_workers>,
                               "Transport counters of each worker. No parameters.");
    rte_telemetry_register_cmd("/rove/drops", show<report_drops>,
                               "Dropped frames of each worker by reason. No parameters.");
    rte_telemetry_register_cmd("/rove/qps", show_qps, "Numbers of queue pairs. Parameter: first index (default 0).");
    rte_telemetry_register_cmd("/rove/qp", show_qp, "State of a queue pair. Parameter: its number.");
    rte_telemetry_register_cmd("/rove/multipath", show<report_multipath>,
                               "Packets and memory of QPs in mp mode, of each worker. No parameters.");
    rte_telemetry_register_cmd("/rove/neighbours", show<report_neighbours>,
                               "Neighbours of each device. No parameters.");
    rte_telemetry_register_cmd("/rove/impair", impair,
                               "Impaired paths. Parameters: device; to change, also path or all, KEY=VALUE,...");
}

void stop_telemetry() {
    const std::lock_guard lock(mutex);
    shown = nullptr;
}

}  // namespace rove::datapath
