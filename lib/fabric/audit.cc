// SPDX-License-Identifier: Apache-2.0
#include "fabric/audit.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <stdexcept>
#include <string>

namespace rove::fabric {
namespace {

void equal(const std::string& what, uint64_t in, uint64_t out) {
    if (in == out) return;
    throw std::logic_error("fabric: " + what + ": " + std::to_string(in) + " in, " + std::to_string(out) +
                           " accounted for");
}

std::string name(const Link& link) {
    return "link from node " + std::to_string(link.from().index()) + " to " + std::to_string(link.to().index());
}

}  // namespace

void check_conservation(Network& network) {
    uint64_t present = 0;
    std::vector<uint64_t> in(network.nodes().size()), out(network.nodes().size());
    for (const Link& link : network.links()) {
        const LinkStats& stats = link.stats();
        equal("queue of the " + name(link), stats.enqueued_packets,
              stats.sent_packets + stats.drained_packets + stats.evicted_packets + link.queued_packets() +
                  link.urgent_packets());
        equal("wire of the " + name(link), stats.sent_packets,
              stats.delivered_packets + stats.lost_packets + stats.cut_packets + link.frames_on_wire());
        in[link.to().index()] += stats.delivered_packets;
        out[link.from().index()] += stats.enqueued_packets + stats.dropped_packets;
        present += link.packets();
    }
    for (const auto& node : network.nodes()) {
        const auto* const a_switch = dynamic_cast<const Switch*>(node.get());
        if (a_switch == nullptr) continue;
        uint64_t made = 0, consumed = 0;
        if (const ConWeave* const conweave = a_switch->conweave()) {
            made = conweave->stats().made_packets;
            consumed = conweave->stats().consumed_packets + conweave->held();
            present += conweave->held();
        }
        equal("switch " + std::to_string(node->index()), in[node->index()] + made,
              out[node->index()] + a_switch->unrouted_packets() + consumed);
    }
    equal("pool of packets", network.world().packets.in_use(), present);
}

Pauses pauses(const Network& network) {
    Pauses sum;
    uint32_t hosts = 0, switches = 0;
    for (const Link& link : network.links()) {
        const auto time = static_cast<double>(link.paused_time());
        const bool host = link.from().is_destination();
        (host ? sum.host_time : sum.switch_time) += time;
        ++(host ? hosts : switches);
    }
    sum.host_time /= std::max(hosts, 1u);
    sum.switch_time /= std::max(switches, 1u);
    return sum;
}

uint32_t paused_links(const Network& network, Time least) {
    return static_cast<uint32_t>(std::ranges::count_if(network.links(), [&](const Link& link) {
        return link.present_pause() >= least && link.queued_packets() != 0;
    }));
}

QueueSamples::QueueSamples(Network& network, std::vector<const Link*> links, Time interval)
    : network_(network), links_(std::move(links)), interval_(interval) {
    take();
}

void QueueSamples::take() {
    for (const Link* link : links_) bytes_.push_back(link->queued_bytes());
    network_.at(network_.now() + interval_, [this] { take(); });
}

double QueueSamples::mean_bytes() const {
    const auto sum = static_cast<double>(std::accumulate(bytes_.begin(), bytes_.end(), uint64_t{0}));
    return sum / static_cast<double>(std::max<size_t>(bytes_.size(), 1));
}

uint64_t QueueSamples::percentile_bytes(double percent) const {
    if (bytes_.empty()) return 0;
    std::vector<uint64_t> sorted = bytes_;
    const auto rank = static_cast<size_t>(std::ceil(percent / 100 * static_cast<double>(sorted.size())));
    const auto at = sorted.begin() + static_cast<ptrdiff_t>(std::max<size_t>(rank, 1) - 1);
    std::nth_element(sorted.begin(), at, sorted.end());
    return *at;
}

}  // namespace rove::fabric
