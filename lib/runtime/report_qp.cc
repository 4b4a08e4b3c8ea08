// SPDX-License-Identifier: Apache-2.0
// Reports on queue pairs.
#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "link/address.h"
#include "runtime/held_qp.h"
#include "runtime/report.h"
#include "runtime/runtime.h"
#include "runtime/worker_core.h"
#include "transport/paths/path_tally.h"

namespace rove::datapath {

namespace {

Report of_stream(const transport::Paths& paths, const transport::SendStream& stream) {
    return {{"next_psn", stream.nxt.value()},
            {"una_psn", stream.una.value()},
            {"cwnd", stream.cwnd()},
            {"awnd", stream.awnd()},
            {"inflate", stream.inflate},
            {"recovering", uint64_t{stream.recovering}},
            {"lost", stream.lost},
            {"paths", paths.paths_in_use(stream)},
            {"srtt_ns", stream.srtt_ns},
            {"rttvar_ns", stream.rttvar_ns},
            {"patience", stream.patience},
            {"timeouts_in_a_row", stream.backoff},
            {"next_timer", name(paths.next_timer(stream).timer)}};
}

Report of_stream(const transport::Reorder& reorder, const transport::ReorderStream& stream, uint32_t peak_degree) {
    return {{"expected_psn", stream.expected.value()},
            {"out_of_order_degree", reorder.degree(stream)},
            {"out_of_order_degree_peak", peak_degree},
            {"reorder_bytes", reorder.bytes(stream)}};
}

// Returns the memory of a QP in mp mode beyond that of one in rc mode: its state, the records of its streams while they
// have packets in flight, and the reordering state. Early packets do not count, because their memory belongs to the
// worker, for all QPs.
uint64_t multipath_bytes(const transport::MultipathShared& shared, const transport::Mp& mp) {
    uint64_t bytes = sizeof(transport::Mp) - sizeof(transport::Rc);
    for (const transport::SendStream* stream : {&mp.requests, &mp.responses})
        bytes += stream->acks.bytes() + (stream->records != nullptr ? shared.paths.ring_bytes(stream->ring) : 0);
    for (const transport::ReorderStream* stream : {&mp.requests_in, &mp.responses_in})
        bytes += shared.reorder.bytes(*stream) - transport::kReorderStreamBytes;
    return bytes;
}

const char* type_name(ibv_qp_type type) {
    switch (type) {
        case IBV_QPT_RC:
            return "RC";
        case IBV_QPT_UC:
            return "UC";
        case IBV_QPT_XRC_SEND:
            return "XRC INI";
        case IBV_QPT_XRC_RECV:
            return "XRC TGT";
        default:
            return "UD";
    }
}

// Returns the result of `fill(QueuePair, WorkerQuiesced)`, called while the QP's worker is stopped. Returns null if
// there is no such QP.
Report with_qp(Runtime& runtime, uint32_t qpn, auto&& fill) {
    Report report;
    look_at_qp(runtime, qpn,
               [&](const transport::QueuePair& qp, const transport::WorkerQuiesced& held) { report = fill(qp, held); });
    return report;
}

// Calls `fill(Paths, SendStream)` for both streams of a QP in mp mode. Returns the results under the streams' names.
Report each_stream(Runtime& runtime, const transport::WorkerQuiesced& held, const transport::QueuePair& qp,
                   auto&& fill) {
    Report all = Report::object();
    if (qp.mp() == nullptr) return all;
    const transport::Paths& paths = runtime.worker_of(qp).core(held).engine().multipath()->paths;
    all["requests"] = fill(paths, qp.mp()->requests);
    all["responses"] = fill(paths, qp.mp()->responses);
    return all;
}

Report of_path(const transport::PathTally& path) {
    return {{"state", path.state()},
            {"packets", path.packets},
            {"on_their_way", path.on_their_way},
            {"acknowledged", path.acknowledged},
            {"to_send_again", path.to_send_again},
            {"marked", path.marked},
            {"lost", path.lost},
            {"retransmitted", path.retransmitted},
            {"acks_to_use", path.acks_to_use}};
}

// Returns the state of the only path. In rc mode nothing is recorded for a packet, so the state is the requester's:
// "lossy" and "dead" end with its next progress.
Report of_single_path(const transport::QueuePair& qp, const transport::Rc& rc) {
    const transport::RcRequester& requester = rc.requester;
    return {{"state", requester.retry.retries_left < qp.retry_cnt ? "dead"
                      : requester.rewound                         ? "lossy"
                      : rc.congestion.rate.limited()              ? "congested"
                      : qp.sq.consumed() == 0                     ? "unknown"
                                                                  : "good"},
            {"on_their_way", static_cast<uint32_t>(requester.max_psn - requester.una)}};
}

}  // namespace

Report report_balance(Runtime& runtime) {
    using transport::Counter;
    uint64_t sent = 0, acknowledged = 0, lost = 0, abandoned = 0, in_flight = 0;
    const Runtime::Pause pause(runtime);
    for (const auto& worker : runtime.workers()) {
        const auto& engine = worker->core(pause).engine();
        const transport::Counters& counters = engine.counters();
        sent += counters[Counter::kPsnsSent];
        acknowledged += counters[Counter::kPsnsAcknowledged];
        lost += counters[Counter::kPsnsLost];
        abandoned += counters[Counter::kPsnsAbandoned];
        if (engine.multipath() == nullptr) continue;
        acknowledged += engine.multipath()->paths.counters().acknowledged;
        abandoned += engine.multipath()->paths.counters().abandoned;
    }
    runtime.queue_pairs().for_each(pause, [&](const transport::QueuePair& qp) {
        if (const transport::Mp* mp = qp.mp()) {
            const transport::Paths& paths = runtime.worker_of(qp).core(pause).engine().multipath()->paths;
            in_flight += paths.in_flight(mp->requests) + paths.in_flight(mp->responses);
        } else if (const transport::Rc* rc = qp.rc_or_xrc()) {
            in_flight += static_cast<uint32_t>(rc->requester.max_psn - rc->requester.una);
        }
    });
    return {{"sent", sent},
            {"acknowledged", acknowledged},
            {"lost", lost},
            {"abandoned", abandoned},
            {"in_flight", in_flight}};
}

Report report_qps(Runtime& runtime, uint32_t first, size_t most) {
    Report all = Report::array();
    const Runtime::Pause pause(runtime);
    runtime.queue_pairs().for_each(pause, [&](const transport::QueuePair& qp) {
        const uint32_t index = qp.qpn & (transport::QueuePairTable::kEntries - 1);
        if (index >= first && all.size() < most) all.push_back(qp.qpn);
    });
    return all;
}

Report report_qp(Runtime& runtime, uint32_t qpn) {
    return with_qp(runtime, qpn, [&](const transport::QueuePair& qp, const transport::WorkerQuiesced& held) {
        static constexpr const char* kStates[] = {"RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR"};
        Report one = {{"qpn", qp.qpn},
                      {"type", type_name(qp.type)},
                      {"state", qp.state < std::size(kStates) ? kStates[qp.state] : "unknown"},
                      {"port", qp.port},
                      {"worker", qp.worker},
                      {"priority", qp.priority},
                      {"mtu", qp.mtu},
                      {"remote_qpn", qp.remote_qpn}};
        if (qp.is_connected()) {
            one["remote_gid"] = to_string(qp.path.flow.dst);
            one["remote_mac"] = to_string(qp.path.flow.dst_mac);
            one["udp_src"] = qp.path.flow.udp_src;
        }
        one["sq_posted"] = qp.sq.produced();
        one["sq_completed"] = qp.sq.consumed();
        one["rq_posted"] = qp.rq.produced();
        one["rq_consumed"] = qp.rq.consumed();
        if (const transport::Mp* mp = qp.mp()) {
            const transport::MultipathShared& shared = *runtime.worker_of(qp).core(held).engine().multipath();
            one["mode"] = "mp";
            one["multipath_bytes"] = multipath_bytes(shared, *mp);
            one["requests"] = of_stream(shared.paths, mp->requests);
            one["responses"] = of_stream(shared.paths, mp->responses);
            one["requests_in"] = of_stream(shared.reorder, mp->requests_in, mp->requests_in_degree);
            one["responses_in"] = of_stream(shared.reorder, mp->responses_in, mp->responses_in_degree);
            return one;
        }
        one["mode"] = "rc";
        const transport::Rc nothing;  // for a QP that is not connected or has no such state
        const transport::Rc& rc = qp.rc_or_xrc() != nullptr ? *qp.rc_or_xrc() : nothing;
        one["next_psn"] = qp.next_psn();
        one["una_psn"] = rc.requester.una.value();
        one["expected_psn"] = qp.expected_psn();
        one["msn"] = rc.responder.msn;
        one["cwnd"] = rc.requester.cwnd();
        one["srtt_ns"] = rc.requester.srtt_ns;
        one["rttvar_ns"] = rc.requester.rttvar_ns;
        one["retries_left"] = rc.requester.retry.retries_left;
        one["rate_limited"] = uint64_t{rc.congestion.rate.limited()};
        one["rate_bytes_per_s"] = rc.congestion.rate.rate_bytes_per_s();
        return one;
    });
}

Report report_paths(Runtime& runtime, uint32_t qpn) {
    return with_qp(runtime, qpn, [&](const transport::QueuePair& qp, const transport::WorkerQuiesced& held) {
        if (const transport::Rc* rc = qp.rc_or_xrc())
            return Report{{"requests", {{std::to_string(qp.path.flow.udp_src), of_single_path(qp, *rc)}}}};
        return each_stream(runtime, held, qp, [](const transport::Paths& paths, const transport::SendStream& stream) {
            Report table = Report::object();
            for (const auto& [vp, path] : tally(paths, stream)) table[std::to_string(vp)] = of_path(path);
            return table;
        });
    });
}

Report report_port_paths(Runtime& runtime, size_t most) {
    std::map<uint16_t, std::map<uint16_t, transport::PathTally>> ports;  // tallies by virtual path, for each port
    {
        const Runtime::Pause pause(runtime);
        runtime.queue_pairs().for_each(pause, [&](const transport::QueuePair& qp) {
            const transport::Mp* mp = qp.mp();
            if (mp == nullptr) return;
            const transport::Paths& paths = runtime.worker_of(qp).core(pause).engine().multipath()->paths;
            for (const transport::SendStream* stream : {&mp->requests, &mp->responses})
                for (const auto& [vp, path] : tally(paths, *stream)) ports[qp.port][vp].add(path);
        });
    }
    Report all = Report::object();
    for (const auto& interface : runtime.interfaces()) {
        Report& table = all[interface->name()] = Report::object();
        const auto& paths = ports[interface->port()];
        std::vector<std::pair<uint16_t, transport::PathTally>> sorted(paths.begin(), paths.end());
        std::stable_sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) {
            return std::tuple(a.second.lost, a.second.marked, a.second.packets) >
                   std::tuple(b.second.lost, b.second.marked, b.second.packets);
        });
        transport::PathTally others;
        for (size_t i = 0; i < sorted.size(); ++i) {
            if (i < most)
                table[std::to_string(sorted[i].first)] = of_path(sorted[i].second);
            else
                others.add(sorted[i].second);
        }
        if (sorted.size() > most) table["others (" + std::to_string(sorted.size() - most) + ")"] = of_path(others);
    }
    return all;
}

Report report_packets(Runtime& runtime, uint32_t qpn) {
    const auto under_way = [](const transport::Paths& paths, const transport::SendStream& stream) {
        Report table = Report::object();
        paths.for_each(stream, [&](transport::Psn psn, const transport::PacketRecord& packet) {
            if (psn < stream.una) return;
            table[std::to_string(psn.value())] = {{"path", packet.vp},
                                                  {"state", packet.acked  ? "acknowledged"
                                                            : packet.lost ? "lost"
                                                                          : "on its way"},
                                                  {"retransmitted", uint64_t{packet.retransmitted}},
                                                  {"transmission", packet.order}};
        });
        return table;
    };
    return with_qp(runtime, qpn, [&](const transport::QueuePair& qp, const transport::WorkerQuiesced& held) {
        return each_stream(runtime, held, qp, under_way);
    });
}

}  // namespace rove::datapath
