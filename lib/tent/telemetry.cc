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
using Texts = std::vector<std::pair<const char*, std::string>>;

void add(rte_tel_data* data, const std::string& name, const Fields& fields, const Texts& texts = {}) {
    rte_tel_data* one = rte_tel_data_alloc();
    if (one == nullptr) return;
    rte_tel_data_start_dict(one);
    for (const auto& [key, value] : texts) rte_tel_data_add_dict_string(one, key, value.c_str());
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

std::string listed(const auto& values, auto&& text) {
    std::string list;
    for (const auto& value : values) list.append(list.empty() ? "" : ", ").append(text(value));
    return list;
}

// In the order in which they are tried; then what holds where none matches.
int show_policies(const char*, const char*, rte_tel_data* data) {
    return answer(data, [&](Engine& engine) {
        const auto transports = [](std::span<const Transport> order) {
            return listed(order, [](Transport one) { return name(one); });
        };
        const auto type = [](SegmentType type) { return type == SegmentType::kMemory ? "memory" : "file"; };
        const ::rove::tent::Config& config = engine.core().config();
        for (const Policy& policy : config.policies) {
            const std::span<const Transport> order = policy.transports;
            add(data, policy.name, {{"min_size", policy.min_size}, {"max_size", policy.max_size}},
                {{"segment_type", type(policy.segment_type)},
                 {"priority", policy.priority ? name(*policy.priority) : "any"},
                 {"devices",
                  policy.devices.empty() ? "all" : listed(policy.devices, [](const auto& one) { return one; })},
                 {"transports", transports(order.empty() ? default_order(policy.segment_type) : order)}});
        }
        for (const SegmentType segment : {SegmentType::kMemory, SegmentType::kFile})
            add(data, std::string("default/") + type(segment), {},
                {{"segment_type", type(segment)},
                 {"transports", config.strict ? "none: strict" : transports(default_order(segment))}});
    });
}

int show_slots(const char*, const char*, rte_tel_data* data) {
    return answer(data, [&](Engine& engine) {
        const Slots* slots = engine.core().slots();
        if (slots == nullptr) return;
        add(data, "slots",
            {{"current_slot", slots->current_slot()},
             {"rotating", uint64_t{slots->rotating()}},
             {"rotations", slots->rotations()},
             {"takeovers", slots->takeovers()}});
        const uint8_t allowed = engine.core().allowed(monotonic_ns());
        for (uint8_t p = 0; p < kPriorities; ++p)
            add(data, name(static_cast<Priority>(p)), {{"may_send", allowed >> p & 1u}});
    });
}

}  // namespace

void show_in_telemetry(Engine& engine) {
    static const bool registered = [] {
        rte_telemetry_register_cmd("/tent/devices", show_devices,
                                   "Devices of the TENT engine: load and learned bandwidth");
        rte_telemetry_register_cmd("/tent/rails", show_rails, "Rails of the TENT engine: state and counters");
        rte_telemetry_register_cmd("/tent/priorities", show_priorities, "Requests of the TENT engine by priority");
        rte_telemetry_register_cmd("/tent/transports", show_transports, "Bytes of the TENT engine by transport");
        rte_telemetry_register_cmd("/tent/policies", show_policies, "Policies of the TENT engine, in their order");
        rte_telemetry_register_cmd("/tent/slots", show_slots, "Time slots that the TENT engine shares with others");
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
