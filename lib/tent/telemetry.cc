// SPDX-License-Identifier: Apache-2.0
// The /tent commands. They run on DPDK's telemetry thread and hold the drive lock while they read what it counts.
#include "tent/telemetry.h"

#include <rte_telemetry.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <mutex>
#include <string>
#include <vector>

#include "tent/engine.h"
#include "tent/transports/rdma/rdma_backend.h"

namespace rove::tent {

namespace {

std::mutex mutex;
std::vector<Engine*> engines;

using Fields = std::vector<std::pair<const char*, uint64_t>>;

void add(rte_tel_data* data, const std::string& name, const Fields& fields) {
    rte_tel_data* one = rte_tel_data_alloc();
    if (one == nullptr) return;
    rte_tel_data_start_dict(one);
    for (const auto& [key, value] : fields) rte_tel_data_add_dict_u64(one, key, value);
    std::string key = name;  // letters, digits, '_' and '/' are what DPDK takes
    for (char& c : key)
        if (std::isalnum(static_cast<unsigned char>(c)) == 0 && c != '/') c = '_';
    rte_tel_data_add_dict_container(data, key.c_str(), one, 0);
}

// A dictionary that `fill(Engine&)` adds to for every engine, which is held.
int answer(rte_tel_data* data, auto&& fill) {
    rte_tel_data_start_dict(data);
    const std::lock_guard lock(mutex);
    for (Engine* engine : engines) engine->core().with_lock([&] { fill(*engine); });
    return 0;
}

int show_devices(const char*, const char*, rte_tel_data* data) {
    return answer(data, [&](Engine& engine) {
        if (engine.rdma() == nullptr) return;
        const DeviceSelector& selector = engine.rdma()->selector();
        const std::vector<DeviceLoad> loads = selector.load();
        for (uint8_t i = 0; i < loads.size(); ++i) {
            add(data, loads[i].name,
                {{"up", selector.up_mask() >> i & 1},
                 {"completed_bytes", selector.completed_bytes(i)},
                 {"inflight_bytes", loads[i].inflight_bytes},
                 {"ewma_bytes_per_s", static_cast<uint64_t>(loads[i].ewma_bandwidth)}});
        }
    });
}

int show_rails(const char*, const char*, rte_tel_data* data) {
    return answer(data, [&](Engine& engine) {
        if (engine.rdma() == nullptr) return;
        for (RdmaChannel* channel : engine.rdma()->channels()) {
            for (const auto& rail : channel->rails()) {
                const RailCounters& c = rail->counters;
                const auto& posted = rail->posted_bytes;
                add(data, channel->peer().name() + "/" + rail->name,
                    {{"state", static_cast<uint64_t>(rail->state)},
                     {"read_bytes", c.read_bytes},
                     {"write_bytes", c.write_bytes},
                     {"slices", c.slices},
                     {"errors", c.errors},
                     {"silences", c.silences},
                     {"probes", c.probes},
                     {"connects", c.connects},
                     {"resprayed", c.resprayed},
                     {"posted_bytes", posted[0] + posted[1] + posted[2]},
                     {"window_bytes", rail->window.bytes()},
                     {"pauses", rail->health.pauses()}});
            }
        }
    });
}

int show_priorities(const char*, const char*, rte_tel_data* data) {
    return answer(data, [&](Engine& engine) {
        std::array<uint64_t, kPriorities> waiting{}, promoted{};
        for (const auto& peer : engine.peers().all()) {
            for (size_t i = 0; i < kTransports; ++i) {
                const Channel* channel = peer->channel(static_cast<Transport>(i));
                for (uint8_t p = 0; channel != nullptr && p < kPriorities; ++p) {
                    waiting[p] += channel->queues.depth(static_cast<Priority>(p));
                    promoted[p] += channel->queues.promoted(static_cast<Priority>(p));
                }
            }
        }
        for (uint8_t p = 0; p < kPriorities; ++p) {
            const PriorityCounters& c = engine.core().priorities[p];
            add(data, name(static_cast<Priority>(p)),
                {{"completed_requests", c.requests},
                 {"completed_bytes", c.bytes},
                 {"failed_requests", c.failed},
                 {"timed_out_requests", c.timed_out},
                 {"canceled_requests", c.canceled},
                 {"waiting_slices", waiting[p]},
                 {"promoted_slices", promoted[p]}});
        }
    });
}

int show_transports(const char*, const char*, rte_tel_data* data) {
    return answer(data, [&](Engine& engine) {
        for (size_t i = 0; i < kTransports; ++i) {
            if (engine.core().backends()[i] == nullptr) continue;
            const TransportCounters& c = engine.core().transports[i];
            add(data, name(static_cast<Transport>(i)),
                {{"read_bytes", c.read_bytes},
                 {"write_bytes", c.write_bytes},
                 {"slices", c.slices},
                 {"retried_slices", c.retries},
                 {"failed_over_slices", c.failovers}});
        }
    });
}

}  // namespace

void show_in_telemetry(Engine& engine) {
    static const bool registered = [] {
        rte_telemetry_register_cmd("/tent/devices", show_devices, "Devices of the TENT engine: load and learned bandwidth");
        rte_telemetry_register_cmd("/tent/rails", show_rails, "Rails of the TENT engine: state and counters");
        rte_telemetry_register_cmd("/tent/priorities", show_priorities, "Requests of the TENT engine by priority");
        rte_telemetry_register_cmd("/tent/transports", show_transports, "Bytes of the TENT engine by transport");
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
