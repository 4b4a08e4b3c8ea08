// SPDX-License-Identifier: Apache-2.0
// The /rove commands. They run on DPDK's telemetry thread and hold a worker, or all, while they read what it counts.
#include "datapath/telemetry.h"

#include <rte_ethdev.h>
#include <rte_telemetry.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "datapath/address.h"
#include "datapath/neighbour.h"
#include "datapath/runtime.h"
#include "datapath/worker_core.h"

namespace rove::datapath {

namespace {

constexpr size_t kMaxListed = RTE_TEL_MAX_ARRAY_ENTRIES;

std::mutex mutex;  // against stop_telemetry()
Runtime* shown = nullptr;

// Calls `fill(Runtime&)` unless telemetry was stopped.
int with_runtime(auto&& fill) {
    const std::lock_guard lock(mutex);
    return shown == nullptr ? -1 : fill(*shown);
}

void add(rte_tel_data* dict, const char* name, uint64_t value) {
    rte_tel_data_add_dict_u64(dict, name, value);
}
void add(rte_tel_data* dict, const char* name, const std::string& value) {
    rte_tel_data_add_dict_string(dict, name, value.c_str());
}

// Fills `data` with one dictionary for each of `items`, by name.
int each(rte_tel_data* data, const auto& items, auto&& name, auto&& fill) {
    rte_tel_data_start_dict(data);
    for (const auto& item : items) {
        rte_tel_data* one = rte_tel_data_alloc();
        if (one == nullptr) return -1;
        rte_tel_data_start_dict(one);
        fill(*item, one);
        rte_tel_data_add_dict_container(data, name(*item).c_str(), one, 0);
    }
    return 0;
}

int show_devices(const char*, const char*, rte_tel_data* data) {
    return with_runtime([&](Runtime& runtime) {
        return each(
            data, runtime.devices(), [](const Device& d) { return d.name(); },
            [](const Device& d, rte_tel_data* one) {
                add(one, "port", d.port());
                add(one, "mac", to_string(d.mac()));
                add(one, "mtu", d.max_mtu());
                add(one, "link_up", d.link_up());
                rte_tel_data* gids = rte_tel_data_alloc();
                if (gids == nullptr) return;
                rte_tel_data_start_array(gids, RTE_TEL_STRING_VAL);
                for (const wire::Gid& gid : d.gids()) rte_tel_data_add_array_string(gids, to_string(gid).c_str());
                rte_tel_data_add_dict_container(one, "gids", gids, 0);
            });
    });
}

int show_ports(const char*, const char*, rte_tel_data* data) {
    return with_runtime([&](Runtime& runtime) {
        return each(
            data, runtime.devices(), [](const Device& d) { return d.name(); },
            [](const Device& d, rte_tel_data* one) {
                rte_eth_stats stats{};
                if (rte_eth_stats_get(d.port(), &stats) != 0) return;
                add(one, "rx_frames", stats.ipackets);
                add(one, "rx_bytes", stats.ibytes);
                add(one, "rx_missed", stats.imissed);
                add(one, "rx_errors", stats.ierrors);
                add(one, "rx_no_mbuf", stats.rx_nombuf);
                add(one, "tx_frames", stats.opackets);
                add(one, "tx_bytes", stats.obytes);
                add(one, "tx_errors", stats.oerrors);
            });
    });
}

std::string worker_name(Worker& worker) {
    return "worker" + std::to_string(worker.index());
}

int show_workers(const char*, const char*, rte_tel_data* data) {
    return with_runtime([&](Runtime& runtime) {
        return each(data, runtime.workers(), worker_name, [](Worker& worker, rte_tel_data* one) {
            const Worker::Hold hold(worker);
            add(one, "lcore", worker.core().lcore());
            const auto& counters = worker.core().engine().counters().values;
            for (size_t i = 0; i < counters.size(); ++i)
                add(one, transport::to_string(static_cast<transport::Counter>(i)), counters[i]);
        });
    });
}

// Every reason for which a frame was dropped, those of the transport included.
int show_drops(const char*, const char*, rte_tel_data* data) {
    return with_runtime([&](Runtime& runtime) {
        return each(data, runtime.workers(), worker_name, [](Worker& worker, rte_tel_data* one) {
            const Worker::Hold hold(worker);
            const PortCounters& frames = worker.core().counters();
            for (size_t i = 1; i < frames.parse.size(); ++i)
                add(one, wire::to_string(static_cast<wire::ParseError>(i)), frames.parse[i]);
            for (size_t i = 0; i < frames.values.size(); ++i)
                add(one, to_string(static_cast<PortCounter>(i)), frames.values[i]);
            const auto& counters = worker.core().engine().counters().values;
            for (size_t i = static_cast<size_t>(transport::Counter::kDropUnknownQp); i < counters.size(); ++i)
                add(one, transport::to_string(static_cast<transport::Counter>(i)), counters[i]);
        });
    });
}

int show_qps(const char*, const char* from, rte_tel_data* data) {
    return with_runtime([&](Runtime& runtime) {
        const uint32_t first = from == nullptr ? 0 : static_cast<uint32_t>(std::strtoul(from, nullptr, 0));
        rte_tel_data_start_array(data, RTE_TEL_U64_VAL);
        size_t listed = 0;
        const Runtime::Pause pause(runtime);
        runtime.queue_pairs().for_each([&](const transport::QueuePair& qp) {
            const uint32_t index = qp.qpn & (transport::QueuePairTable::kEntries - 1);
            if (index >= first && listed < kMaxListed && rte_tel_data_add_array_u64(data, qp.qpn) == 0) ++listed;
        });
        return 0;
    });
}

// A container named `name` in `dict`, filled by `fill`.
void nest(rte_tel_data* dict, const char* name, auto&& fill) {
    rte_tel_data* inner = rte_tel_data_alloc();
    if (inner == nullptr) return;
    rte_tel_data_start_dict(inner);
    fill(inner);
    rte_tel_data_add_dict_container(dict, name, inner, 0);
}

void add_stream(rte_tel_data* dict, const transport::Paths& paths, const transport::SendStream& stream) {
    add(dict, "next_psn", stream.nxt.value());
    add(dict, "una_psn", stream.una.value());
    add(dict, "cwnd", stream.cwnd());
    rte_tel_data_add_dict_int(dict, "awnd", stream.awnd());
    add(dict, "inflate", stream.inflate);
    add(dict, "recovering", stream.recovering);
    add(dict, "lost", stream.lost);
    add(dict, "paths", paths.paths_in_use(stream));
    add(dict, "srtt_ns", stream.srtt_ns);
    add(dict, "timeouts_in_a_row", stream.backoff);
}

void add_stream(rte_tel_data* dict, const transport::Reorder& reorder, const transport::ReorderStream& stream,
                uint32_t peak_degree) {
    add(dict, "expected_psn", stream.expected.value());
    add(dict, "out_of_order_degree", reorder.degree(stream));
    add(dict, "out_of_order_degree_peak", peak_degree);
    add(dict, "reorder_bytes", reorder.bytes(stream));
}

// What QPs in mp mode do, and what they share, of each worker.
int show_multipath(const char*, const char*, rte_tel_data* data) {
    return with_runtime([&](Runtime& runtime) {
        return each(data, runtime.workers(), worker_name, [](Worker& worker, rte_tel_data* one) {
            const Worker::Hold hold(worker);
            const transport::MultipathShared* shared = worker.core().engine().multipath();
            if (shared == nullptr) return;
            const transport::PathsCounters& paths = shared->paths.counters();
            add(one, "new_packets", paths.new_packets);
            add(one, "resent_nack", paths.resent_nack);
            add(one, "resent_early", paths.resent_early);
            add(one, "resent_timeout", paths.resent_timeout);
            add(one, "resent_inferred", paths.resent_inferred);
            add(one, "slow_acks", paths.slow_acks);
            add(one, "probes", paths.probes);
            add(one, "explored", paths.explored);
            add(one, "bursts", paths.bursts);
            add(one, "unused_acks", paths.unused);
            add(one, "restarts", paths.restarts);
            add(one, "stale_acks", paths.stale_acks);
            add(one, "record_bytes", shared->paths.record_bytes());
            add(one, "held_packets", shared->held_now());
            add(one, "held_packets_peak", shared->held_peak());
            const transport::ReorderUsage& reorder = shared->reorder.usage();
            add(one, "reorder_bytes", reorder.bytes);
            add(one, "reorder_bytes_peak", reorder.peak_bytes);
            add(one, "reorder_exhausted", reorder.exhausted);
            const transport::MultipathCounters& counters = shared->counters;
            static constexpr const char* kKinds[] = {"ack", "sack", "nack", "err"};
            for (size_t i = 0; i < std::size(kKinds); ++i) {
                add(one, (std::string("tx_") + kKinds[i]).c_str(), counters.acks_sent[i]);
                add(one, (std::string("rx_") + kKinds[i]).c_str(), counters.acks_received[i]);
            }
            for (size_t i = 0; i < counters.degrees.size(); ++i)  // by the least degree of each
                add(one, ("degree_" + std::to_string(i == 0 ? 0 : 1u << (i - 1))).c_str(), counters.degrees[i]);
        });
    });
}

int show_qp(const char*, const char* number, rte_tel_data* data) {
    if (number == nullptr) return -1;
    return with_runtime([&](Runtime& runtime) {
        static constexpr const char* kStates[] = {"RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR"};
        const Runtime::Pause pause(runtime);
        const transport::QueuePair* qp =
            runtime.queue_pairs().find(static_cast<uint32_t>(std::strtoul(number, nullptr, 0)));
        if (qp == nullptr) return -1;
        rte_tel_data_start_dict(data);
        add(data, "qpn", qp->qpn);
        add(data, "type", qp->type == IBV_QPT_RC ? "RC" : qp->type == IBV_QPT_UC ? "UC" : "UD");
        add(data, "state", qp->state < std::size(kStates) ? kStates[qp->state] : "unknown");
        add(data, "port", qp->port);
        add(data, "worker", qp->worker);
        add(data, "priority", qp->priority);
        add(data, "mtu", qp->mtu);
        add(data, "remote_qpn", qp->remote_qpn);
        if (qp->is_connected()) {
            add(data, "remote_gid", to_string(qp->path.flow.dst));
            add(data, "remote_mac", to_string(qp->path.flow.dst_mac));
            add(data, "udp_src", qp->path.flow.udp_src);
        }
        add(data, "sq_posted", qp->sq.produced());
        add(data, "sq_completed", qp->sq.consumed());
        add(data, "rq_posted", qp->rq.produced());
        add(data, "rq_consumed", qp->rq.consumed());
        if (const transport::Multipath* mp = qp->multipath.get()) {
            const transport::MultipathShared& shared = *runtime.worker_of(*qp).core().engine().multipath();
            add(data, "mode", "mp");
            nest(data, "requests", [&](rte_tel_data* one) { add_stream(one, shared.paths, mp->requests); });
            nest(data, "responses", [&](rte_tel_data* one) { add_stream(one, shared.paths, mp->responses); });
            nest(data, "requests_in", [&](rte_tel_data* one) { add_stream(one, shared.reorder, mp->requests_in, mp->requests_in_degree); });
            nest(data, "responses_in", [&](rte_tel_data* one) { add_stream(one, shared.reorder, mp->responses_in, mp->responses_in_degree); });
            return 0;
        }
        add(data, "mode", "rc");
        add(data, "next_psn", qp->requester.next_psn.value());
        add(data, "una_psn", qp->requester.una.value());
        add(data, "expected_psn", qp->responder.epsn.value());
        add(data, "msn", qp->responder.msn);
        add(data, "srtt_ns", qp->requester.srtt_ns);
        add(data, "retries_left", qp->requester.retries_left);
        add(data, "rate_limited", qp->congestion.limited());
        add(data, "rate_bytes_per_s", qp->congestion.rate_bytes_per_s());
        return 0;
    });
}

int show_neighbours(const char*, const char*, rte_tel_data* data) {
    return with_runtime([&](Runtime& runtime) {
        return each(
            data, runtime.devices(), [](const Device& d) { return d.name(); },
            [](Device& d, rte_tel_data* one) {
                const auto counters = d.neighbours().counters();
                for (size_t i = 0; i < counters.size(); ++i)
                    add(one, to_string(static_cast<NeighbourCounter>(i)), counters[i]);
                rte_tel_data* table = rte_tel_data_alloc();
                if (table == nullptr) return;
                rte_tel_data_start_array(table, RTE_TEL_STRING_VAL);
                size_t listed = 0;
                for (const auto& [address, entry] : d.neighbours().entries()) {
                    if (listed++ == kMaxListed) break;
                    const std::string line = to_string(address) + " " +
                                             (entry.mac ? to_string(*entry.mac) : "incomplete") +
                                             (entry.fixed ? " static" : "");
                    rte_tel_data_add_array_string(table, line.c_str());
                }
                rte_tel_data_add_dict_container(one, "table", table, 0);
            });
    });
}

std::string_view next_word(std::string_view& rest) {
    const std::string_view word = rest.substr(0, rest.find(','));
    rest.remove_prefix(std::min(word.size() + 1, rest.size()));
    return word;
}

// Changes what is asked for, if anything. Returns "" or what is wrong.
std::string change_impairment(Runtime& runtime, const Device& device, std::string_view path, std::string_view changes) {
    if (path.empty()) return {};
    if (path == "all") return runtime.impair(device, std::nullopt, changes);
    uint32_t index = 0;
    const auto [end, bad] = std::from_chars(path.data(), path.data() + path.size(), index);
    if (bad != std::errc() || end != path.data() + path.size())
        return "got path '" + std::string(path) + "', allowed a number, or all";
    return runtime.impair(device, index, changes);
}

// Answers with a dictionary of paths, or with a string that says what is wrong.
int impair(const char*, const char* parameters, rte_tel_data* data) {
    return with_runtime([&](Runtime& runtime) {
        std::string_view rest = parameters == nullptr ? "" : parameters;
        const std::string_view name = next_word(rest), path = next_word(rest);
        const auto& devices = runtime.devices();
        const auto found =
            std::find_if(devices.begin(), devices.end(), [&](const auto& d) { return d->name() == name; });
        if (found == devices.end()) {
            std::string wrong = "got device '" + std::string(name) + "', allowed";
            for (const auto& device : devices) wrong += " " + device->name();
            return rte_tel_data_string(data, wrong.c_str());
        }
        const Device& device = **found;
        if (const std::string wrong = change_impairment(runtime, device, path, rest); !wrong.empty())
            return rte_tel_data_string(data, wrong.c_str());
        rte_tel_data_start_dict(data);
        const std::vector<PathState> paths = runtime.impaired_paths(device);
        for (size_t i = 0; i < paths.size(); ++i) {
            rte_tel_data* one = rte_tel_data_alloc();
            if (one == nullptr) return -1;
            rte_tel_data_start_dict(one);
            for (const auto& [key, value] : texts(paths[i].settings)) add(one, key, value);
            for (size_t c = 0; c < paths[i].counters.values.size(); ++c)
                add(one, to_string(static_cast<ImpairCounter>(c)), paths[i].counters.values[c]);
            add(one, "waiting", paths[i].waiting);
            const std::string path = i + 1 < paths.size() ? std::to_string(i) : "device";
            rte_tel_data_add_dict_container(data, path.c_str(), one, 0);
        }
        return 0;
    });
}

}  // namespace

void start_telemetry(Runtime& runtime) {
    {
        const std::lock_guard lock(mutex);
        shown = &runtime;
    }
    rte_telemetry_register_cmd("/rove/devices", show_devices, "Devices with their addresses. No parameters.");
    rte_telemetry_register_cmd("/rove/ports", show_ports, "Frames and bytes of each device's port. No parameters.");
    rte_telemetry_register_cmd("/rove/workers", show_workers, "Transport counters of each worker. No parameters.");
    rte_telemetry_register_cmd("/rove/drops", show_drops, "Dropped frames of each worker by reason. No parameters.");
    rte_telemetry_register_cmd("/rove/qps", show_qps, "Numbers of queue pairs. Parameter: first index (default 0).");
    rte_telemetry_register_cmd("/rove/qp", show_qp, "State of a queue pair. Parameter: its number.");
    rte_telemetry_register_cmd("/rove/multipath", show_multipath,
                               "Packets and memory of QPs in mp mode, of each worker. No parameters.");
    rte_telemetry_register_cmd("/rove/neighbours", show_neighbours, "Neighbours of each device. No parameters.");
    rte_telemetry_register_cmd("/rove/impair", impair,
                               "Impaired paths. Parameters: device; to change, also path or all, KEY=VALUE,...");
}

void stop_telemetry() {
    const std::lock_guard lock(mutex);
    shown = nullptr;
}

}  // namespace rove::datapath
