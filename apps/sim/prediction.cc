// SPDX-License-Identifier: Apache-2.0
// A path of a fault injection becomes a link between two switches, each direction with the settings of its receiving
// end. Rates of a configuration count frames without FCS and gap, rates of a link count both; they are converted for
// frames of the path MTU, of which the data consists. Queues are converted likewise, from frames to bytes.
#include "prediction.h"

#include <algorithm>
#include <cstdlib>
#include <deque>
#include <stdexcept>

#include "fabric/audit.h"
#include "fabric/flow.h"
#include "fabric/topology.h"
#include "runtime/config.h"
#include "wire/frame.h"

namespace rove::sim {
namespace {

using namespace fabric;
using datapath::PathSettings;

constexpr LinkConfig kAccess{.bits_per_s = 40 * kGbps, .delay = kMicrosecond};
constexpr Time kDrain = 10 * kSecond;

struct End {
    std::string file;
    transport::Config transport;
    std::vector<PathSettings> paths;  // settings of the frames that it receives
};

End load(const std::string& file) {
    std::string error;
    const auto config = datapath::Config::load(file, &error);
    if (!config) throw std::invalid_argument(error);
    const auto refuse = [&](const std::string& what) { throw std::invalid_argument(file + ": " + what); };
    if (config->devices.size() != 1) refuse("allowed: one device");
    if (config->transport.mode != transport::Mode::kMp) refuse("allowed: transport.mode = \"mp\"");
    const std::vector<PathSettings>& paths = config->devices.front().impair.paths;
    if (paths.empty()) refuse("allowed: a device with impair.paths");
    for (const PathSettings& path : paths) {
        if (path.duplicate != 0 || path.reorder != 0 || path.mark != 0)
            refuse("allowed: paths without duplicate, reorder and mark, of which there is no model");
        if (path.rate_mbps == 0) refuse("allowed: paths with a rate_mbps");
        if (path.ecn_threshold_packets != paths.front().ecn_threshold_packets)
            refuse("allowed: paths with one ecn_threshold_packets");
    }
    return {file, config->transport, paths};
}

uint64_t bytes_or_never(uint32_t packets, uint32_t frame_bytes) {
    return packets == 0 ? UINT64_MAX : uint64_t{packets} * frame_bytes;
}

struct Change {
    Time at;
    size_t path;
    std::string settings;
};

Change parse(const std::string& text, size_t paths) {
    const auto refuse = [&] {
        throw std::invalid_argument("--change " + text + "; allowed: SECONDS:PATH:key=value,..., a path below " +
                                    std::to_string(paths));
    };
    char* end = nullptr;
    const double seconds = std::strtod(text.c_str(), &end);
    if (*end != ':' || !(seconds >= 0 && seconds < 1e6)) refuse();
    const size_t path = std::strtoul(end + 1, &end, 10);
    if (*end != ':' || path >= paths) refuse();
    Change change{static_cast<Time>(seconds * static_cast<double>(kSecond)), path, end + 1};
    PathSettings tried;
    if (const std::string wrong = datapath::change(tried, change.settings); !wrong.empty())
        throw std::invalid_argument("--change " + text + ": " + wrong);
    return change;
}

// Applies `settings` to one direction of a path.
void apply(Link& link, const PathSettings& settings, uint32_t frame_bytes) {
    const uint64_t on_wire = frame_bytes + kGapBytes, counted = frame_bytes - kFcsBytes;
    link.set_rate(settings.rate_mbps * uint64_t{1'000'000} * on_wire / counted);
    link.set_loss(settings.loss);
    link.set_corruption(settings.corrupt);
    link.set_up(!settings.down);
    static_cast<Switch&>(link.from()).set_queue_bytes(link, bytes_or_never(settings.queue_packets, frame_bytes));
}

}  // namespace

Report run_prediction(const PredictionConfig& config, uint64_t seed) {
    End from = load(config.sender), to = load(config.receiver);
    if (from.paths.size() != to.paths.size()) throw std::invalid_argument("two ends with different numbers of paths");
    Network network(seed);
    const std::array<const End*, 2> ends{&from, &to};
    const std::array<Host*, 2> hosts{&add_host(network, {.transport = from.transport}, kAccess),
                                     &add_host(network, {.transport = to.transport}, kAccess)};
    // The bytes of a packet of the path MTU, with FCS.
    const auto header = wire::make_template(hosts[0]->flow_to(*hosts[1], 0));
    const auto frame_bytes = static_cast<uint32_t>(
        wire::frame_bytes(header, wire::opcode(wire::Service::kMp, wire::Op::kWriteMiddle), config.mtu) + kFcsBytes);
    std::array<Switch*, 2> switches{};
    for (size_t i = 0; i < 2; ++i) {
        SwitchConfig a_switch{.buffer_bytes = 1u << 30, .balancer = Balancer::kSourcePort};
        // Frames for the other end wait here.
        a_switch.mark_on_arrival_bytes = bytes_or_never(ends[1 - i]->paths.front().ecn_threshold_packets, frame_bytes);
        switches[i] = &network.add_switch(a_switch);
        network.connect(*hosts[i], *switches[i], kAccess);
    }
    std::vector<Cable> cables;
    for (size_t i = 0; i < from.paths.size(); ++i) {
        if (from.paths[i].delay_us != to.paths[i].delay_us)
            throw std::invalid_argument("path " + std::to_string(i) + " has another delay_us in " + to.file +
                                        "; allowed: the same");
        cables.push_back(network.connect(*switches[0], *switches[1], {.delay = to.paths[i].delay_us * kMicrosecond}));
        apply(cables[i].forward, to.paths[i], frame_bytes);
        apply(cables[i].backward, from.paths[i], frame_bytes);
    }
    network.route();
    for (const std::string& text : config.changes) {
        const Change change = parse(text, cables.size());
        network.at(change.at, [&, change] {
            for (auto& [end, link] :
                 {std::pair{&to, &cables[change.path].forward}, std::pair{&from, &cables[change.path].backward}}) {
                datapath::change(end->paths[change.path], change.settings);
                apply(*link, end->paths[change.path], frame_bytes);
            }
        });
    }

    std::deque<Flow> flows;
    for (uint32_t i = 0; i < config.flows; ++i) {
        flows.emplace_back(network, *hosts[0], *hosts[1],
                           FlowConfig{.message_bytes = config.message_bytes,
                                      .in_flight = config.depth,
                                      .qp = {.multipath = true, .mtu = config.mtu, .depth = config.depth}});
        flows.back().on_end = [&](Flow&) {
            if (std::ranges::all_of(flows, &Flow::ended)) network.stop();
        };
    }
    for (Flow& flow : flows) flow.start();
    network.run_until(static_cast<Time>(config.seconds * static_cast<double>(kSecond)));
    for (Flow& flow : flows) flow.stop();
    network.run_for(kDrain);
    check_conservation(network);

    Report report;
    uint64_t bytes = 0, errors = 0;
    for (const Flow& flow : flows) {
        bytes += flow.completed_bytes();
        errors += flow.status() != IBV_WC_SUCCESS;
    }
    const transport::PathsCounters& counters = hosts[0]->multipath()->paths.counters();
    const auto add = [&](const std::string& name, double value, const char* unit = "") {
        report.measures.push_back({name, unit, value});
    };
    add("goodput_gbps",
        static_cast<double>(bytes) * 8e-9 * static_cast<double>(kSecond) / static_cast<double>(network.now()), "Gb/s");
    add("errors", static_cast<double>(errors));
    add("sent", static_cast<double>(counters.new_packets));
    add("packets", static_cast<double>(hosts[0]->counters()[transport::Counter::kRetransmittedPackets]));
    for (const auto& [name, value] :
         {std::pair{"nack", counters.resent_nack}, std::pair{"rnr", counters.resent_rnr},
          std::pair{"inferred", counters.resent_inferred}, std::pair{"early", counters.resent_early},
          std::pair{"timeout", counters.resent_timeout}, std::pair{"tail_probes", counters.tail_probes},
          std::pair{"false_alarms", counters.false_alarms}}) {
        add(name, static_cast<double>(value));
    }
    for (size_t i = 0; i < cables.size(); ++i) {
        const LinkStats& stats = cables[i].forward.stats();
        const std::string path = "path " + std::to_string(i) + ": ";
        add(path + "frames", static_cast<double>(stats.enqueued_packets + stats.dropped_packets));
        add(path + "lost", static_cast<double>(stats.lost_packets));
        add(path + "marked", static_cast<double>(stats.marked_packets));
        add(path + "drop_queue_full", static_cast<double>(stats.dropped_packets));
        add(path + "drop_down", static_cast<double>(stats.cut_packets + stats.drained_packets));
    }
    return report;
}

}  // namespace rove::sim
