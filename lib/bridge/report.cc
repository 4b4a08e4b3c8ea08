// SPDX-License-Identifier: Apache-2.0
#include "bridge/report.h"

#include <mutex>
#include <nlohmann/json.hpp>

#include "base/telemetry_data.h"
#include "bridge/bridge.h"
#include "link/address.h"
#include "runtime/telemetry.h"

namespace rove::bridge {

namespace {

std::mutex mutex;  // guards `shown` against stop_telemetry()
const Bridge* shown = nullptr;

template <Report (*kReport)(const Bridge&)>
int show(const char*, const char*, rte_tel_data* data) {
    const std::lock_guard lock(mutex);
    if (shown == nullptr) return -1;
    datapath::fill(data, kReport(*shown));
    return 0;
}

// Leaves out nested tables, which telemetry cannot represent.
Report overview(const Bridge& bridge) {
    Report all = Report::object();
    all["uplink"] = bridge.uplink_name();
    all.update(report_link(bridge)["uplink"]);
    all.update(report_frames(bridge));
    all["members"] = Report::array();
    for (const auto& member : bridge.members()) all["members"].push_back(member.name);
    return all;
}

// Numbers the tables, whose names may contain neither dots nor colons in telemetry.
Report numbered_members(const Bridge& bridge) {
    Report all = Report::object();
    const Report members = report_members(bridge);
    for (const auto& [name, member] : members.items()) {
        Report& one = all["member" + std::to_string(all.size())] = {{"name", name}};
        one.update(member);
    }
    return all;
}

}  // namespace

Report report_ports(const Bridge& bridge) {
    return {{"uplink", datapath::report_statistics(bridge.uplink_statistics())},
            {"mesh", datapath::report_statistics(bridge.mesh_statistics())}};
}

Report report_link(const Bridge& bridge) {
    Report all = Report::object();
    for (const char* port : {"uplink", "mesh"}) {
        all[port]["mac"] = datapath::to_string(bridge.mac());
        all[port]["mtu"] = bridge.path_mtu();
        all[port]["ready"] = uint64_t{port == std::string_view("mesh") || bridge.uplink_ready()};
    }
    return all;
}

Report report_members(const Bridge& bridge) {
    Report all = Report::object();
    for (const Bridge::MemberState& member : bridge.members()) {
        Report& one = all[member.name] = Report::object();
        one["mac"] = datapath::to_string(member.mac);
        std::string addresses;
        for (const wire::Gid& address : member.addresses)
            addresses.append(addresses.empty() ? "" : " ").append(datapath::to_string(address));
        one["addresses"] = addresses;
        one["rx_frames"] = member.rx_frames;
        one["rx_bytes"] = member.rx_bytes;
        one["rx_drops"] = member.rx_drops;
        one["tx_frames"] = member.tx_frames;
        one["tx_bytes"] = member.tx_bytes;
        one["tx_drops"] = member.tx_drops;
    }
    return all;
}

Report report_frames(const Bridge& bridge) {
    Report all = Report::object();
    const Counters counters = bridge.counters();
    for (size_t i = 0; i < counters.values.size(); ++i) all[to_string(static_cast<Counter>(i))] = counters.values[i];
    return all;
}

Report report_neighbours(const Bridge& bridge) {
    return datapath::report_neighbours(bridge.neighbours());
}

void start_telemetry(const Bridge& bridge) {
    {
        const std::lock_guard lock(mutex);
        shown = &bridge;
    }
    rte_telemetry_register_cmd("/rove/bridge", show<overview>,
                               "Uplink, frames by where they went or why not, and members. No parameters.");
    rte_telemetry_register_cmd("/rove/ports", show<report_ports>, "Frames and bytes of both sides. No parameters.");
    rte_telemetry_register_cmd("/rove/members", show<numbered_members>,
                               "Frames, bytes and drops of each member. No parameters.");
    rte_telemetry_register_cmd("/rove/neighbours", show<report_neighbours>, "Hosts at the uplink. No parameters.");
}

void stop_telemetry() {
    const std::lock_guard lock(mutex);
    shown = nullptr;
}

}  // namespace rove::bridge
