// SPDX-License-Identifier: Apache-2.0
// Reports on ports, workers and neighbours. Reports on QPs are in report_qp.cc.
#include "runtime/report.h"

#include <rte_ethdev.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <vector>

#include "link/address.h"
#include "link/neighbour.h"
#include "runtime/runtime.h"
#include "runtime/worker_core.h"

namespace rove::datapath {

namespace {

constexpr size_t kMaxNeighbours = 512;  // entries in a report: the most that telemetry has room for

Report each_interface(Runtime& runtime, auto&& fill) {
    Report all = Report::object();
    for (const auto& interface : runtime.interfaces()) fill(*interface, all[interface->name()] = Report::object());
    return all;
}

Report each_worker(Runtime& runtime, auto&& fill) {
    Report all = Report::object();
    for (const auto& worker : runtime.workers()) {
        const Worker::Hold hold(*worker);
        fill(worker->core(hold), all["worker" + std::to_string(worker->index())] = Report::object());
    }
    return all;
}

// Converts a value that rises and falls to a signed one, so that no program treats it as a counter and shows
// differences.
int64_t level(uint64_t value) {
    return static_cast<int64_t>(value);
}

// Adds counters named by to_string(), from `first` on.
template <class Name>
void add_counters(Report& one, const auto& values, size_t first = 0) {
    for (size_t i = first; i < values.size(); ++i) one[to_string(static_cast<Name>(i))] = values[i];
}

}  // namespace

const RdmaInterface* find_interface(Runtime& runtime, std::string_view name) {
    for (const auto& interface : runtime.interfaces())
        if (interface->name() == name) return interface.get();
    return nullptr;
}

std::string device_names(Runtime& runtime) {
    std::string names;
    for (const auto& interface : runtime.interfaces()) names += " " + interface->name();
    return names;
}

Report report_devices(Runtime& runtime) {
    return each_interface(runtime, [](const RdmaInterface& interface, Report& one) {
        one["port"] = interface.port();
        one["mac"] = to_string(interface.mac());
        one["mtu"] = interface.active_mtu();
        one["link_up"] = uint64_t{interface.link_up()};
        one["ready"] = uint64_t{interface.ready()};
        Report& gids = one["gids"] = Report::array();
        for (const wire::Gid& gid : interface.gids())
            if (gid != wire::Gid{}) gids.push_back(to_string(gid));
    });
}

Report report_statistics(const PortStatistics& counted) {
    return {{"rx_frames", counted.rx_frames}, {"rx_bytes", counted.rx_bytes},     {"rx_missed", counted.rx_missed},
            {"rx_errors", counted.rx_errors}, {"rx_no_mbuf", counted.rx_no_mbuf}, {"tx_frames", counted.tx_frames},
            {"tx_bytes", counted.tx_bytes},   {"tx_errors", counted.tx_errors},   {"tx_over_mtu", counted.tx_over_mtu}};
}

Report report_ports(Runtime& runtime) {
    return each_interface(
        runtime, [](const RdmaInterface& interface, Report& one) { one = report_statistics(interface.statistics()); });
}

Report report_xstats(Runtime& runtime) {
    return each_interface(runtime, [](const RdmaInterface& interface, Report& one) {
        const std::optional<uint16_t> port = interface.dpdk_port();
        const int count = port ? rte_eth_xstats_get_names(*port, nullptr, 0) : 0;
        if (count <= 0) return;
        std::vector<rte_eth_xstat_name> names(static_cast<size_t>(count));
        std::vector<rte_eth_xstat> values(names.size());
        const auto room = static_cast<unsigned>(count);
        if (rte_eth_xstats_get_names(*port, names.data(), room) != count ||
            rte_eth_xstats_get(*port, values.data(), room) != count)
            return;
        for (const rte_eth_xstat& value : values)
            if (value.value != 0) one[names[value.id].name] = value.value;
    });
}

Report report_neighbours(const Neighbours& neighbours) {
    Report one = Report::object();
    add_counters<NeighbourCounter>(one, neighbours.counters());
    Report& table = one["table"] = Report::array();
    for (const auto& [address, entry] : neighbours.entries()) {
        if (table.size() == kMaxNeighbours) break;
        table.push_back(to_string(address) + " " + (entry.mac ? to_string(*entry.mac) : "incomplete") +
                        (entry.fixed    ? " static"
                         : entry.silent ? " silent"
                         : entry.used   ? " used"
                                        : ""));
    }
    return one;
}

Report report_neighbours(Runtime& runtime) {
    return each_interface(
        runtime, [](RdmaInterface& interface, Report& one) { one = report_neighbours(interface.neighbours()); });
}

Report report_impairments(Runtime& runtime, const RdmaInterface& interface) {
    Report all = Report::object();
    const std::vector<PathState> paths = runtime.impaired_paths(interface);
    for (size_t i = 0; i < paths.size(); ++i) {
        Report& one = all[i + 1 < paths.size() ? std::to_string(i) : "device"] = Report::object();
        for (const auto& [key, value] : texts(paths[i].settings)) one[key] = value;
        add_counters<ImpairCounter>(one, paths[i].counters.values);
        one["waiting"] = level(paths[i].waiting);
    }
    return all;
}

Report report_workers(Runtime& runtime) {
    return each_worker(runtime, [](WorkerCore& core, Report& one) {
        one["lcore"] = level(core.lcore());
        add_counters<transport::Counter>(one, core.engine().counters().values);
    });
}

Report report_drops(Runtime& runtime) {
    return each_worker(runtime, [](WorkerCore& core, Report& one) {
        add_counters<wire::ParseError>(one, core.counters().parse, 1);
        add_counters<PortCounter>(one, core.counters().values);
        add_counters<transport::Counter>(one, core.engine().counters().values,
                                         static_cast<size_t>(transport::Counter::kDropUnknownQp));
    });
}

Report report_multipath(Runtime& runtime) {
    return each_worker(runtime, [](WorkerCore& core, Report& one) {
        const transport::MultipathShared* shared = core.engine().multipath();
        if (shared == nullptr) return;
        const transport::PathsCounters& paths = shared->paths.counters();
        one["new_packets"] = paths.new_packets;
        one["resent_nack"] = paths.resent_nack;
        one["resent_rnr"] = paths.resent_rnr;
        one["resent_early"] = paths.resent_early;
        one["resent_timeout"] = paths.resent_timeout;
        one["resent_inferred"] = paths.resent_inferred;
        one["tail_probes"] = paths.tail_probes;
        one["false_alarms"] = paths.false_alarms;
        one["marked_acks"] = paths.marked_acks;
        one["slow_acks"] = paths.slow_acks;
        one["probes"] = paths.probes;
        one["explored"] = paths.explored;
        one["bursts"] = paths.bursts;
        one["unused_acks"] = paths.unused;
        one["surplus_acks"] = paths.surplus;
        one["recycled"] = paths.recycled;
        one["freezes"] = paths.freezes;
        one["paced"] = paths.paced;
        one["restarts"] = paths.restarts;
        one["stale_acks"] = paths.stale_acks;
        one["record_bytes"] = level(shared->paths.record_bytes());
        one["held_packets"] = level(shared->early_count());
        one["held_packets_peak"] = level(shared->held_peak());
        const transport::ReorderUsage& reorder = shared->reorder.usage();
        one["reorder_bytes"] = level(reorder.bytes);
        one["reorder_bytes_peak"] = level(reorder.peak_bytes);
        one["reorder_exhausted"] = reorder.exhausted;
        const transport::MultipathCounters& counters = shared->counters;
        static constexpr const char* kKinds[] = {"ack", "sack", "nack", "err"};
        for (size_t i = 0; i < std::size(kKinds); ++i) {
            one[std::string("tx_") + kKinds[i]] = counters.acks_sent[i];
            one[std::string("rx_") + kKinds[i]] = counters.acks_received[i];
        }
        for (size_t i = 0; i < counters.degrees.size(); ++i)  // named after the lowest degree of each
            one["degree_" + std::to_string(i == 0 ? 0 : 1u << (i - 1))] = counters.degrees[i];
    });
}

}  // namespace rove::datapath
