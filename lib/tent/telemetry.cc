// SPDX-License-Identifier: Apache-2.0
// The /tent commands. They run on DPDK's telemetry thread and hold the drive lock while they read what it counts.
#include "tent/telemetry.h"

#include <rte_telemetry.h>

#include <algorithm>
#include <cctype>
#include <mutex>
#include <string>
#include <vector>

#include "tent/engine.h"
#include "tent/figures.h"

namespace rove::tent {

namespace {

constexpr const char* kPrefix = "/tent/";

std::mutex mutex;
std::vector<Engine*> engines;

void add(rte_tel_data* data, const FigureRow& row) {
    rte_tel_data* one = rte_tel_data_alloc();
    if (one == nullptr) return;
    rte_tel_data_start_dict(one);
    for (const Figure& figure : row.figures) rte_tel_data_add_dict_u64(one, figure.name, figure.value);
    std::string key = row.of;  // letters, digits, '_' and '/' are what DPDK takes
    for (char& c : key)
        if (std::isalnum(static_cast<unsigned char>(c)) == 0 && c != '/') c = '_';
    rte_tel_data_add_dict_container(data, key.c_str(), one, 0);
}

// A dictionary with the rows of all engines.
int answer(const char* command, const char*, rte_tel_data* data) {
    rte_tel_data_start_dict(data);
    const std::lock_guard lock(mutex);
    for (const FigureTable& table : figure_tables()) {
        if (std::string(kPrefix) + table.name != command) continue;
        for (Engine* engine : engines)
            engine->core().with_lock([&] {
                for (const FigureRow& row : table.read(*engine)) add(data, row);
            });
    }
    return 0;
}

}  // namespace

void show_in_telemetry(Engine& engine) {
    static const bool registered = [] {
        for (const FigureTable& table : figure_tables())
            rte_telemetry_register_cmd((std::string(kPrefix) + table.name).c_str(), answer, table.help);
        return true;
    }();
    (void)registered;
    const std::lock_guard lock(mutex);
    engines.push_back(&engine);
}

void hide_from_telemetry(Engine& engine) {
    const std::lock_guard lock(mutex);
    std::erase(engines, &engine);
}

}  // namespace rove::tent
