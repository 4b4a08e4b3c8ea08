// SPDX-License-Identifier: Apache-2.0
#include "fabric/topology.h"

#include <algorithm>
#include <cassert>

namespace rove::fabric {
namespace {

Rack add_rack(Network& network, const RackConfig& config) {
    Rack rack{&network.add_switch(config.tor), {}, {}};
    HostConfig host = config.host;
    host.transport.dcqcn.line_rate_bytes_per_s = config.access.bits_per_s / 8;
    for (uint32_t i = 0; i < config.hosts; ++i) {
        host.transport.seed = network.world().new_stream().next();
        rack.hosts.push_back(&network.add_host(host));
        rack.access.push_back(network.connect(*rack.hosts.back(), *rack.tor, config.access));
    }
    return rack;
}

}  // namespace

Rack single_switch(Network& network, const RackConfig& config) {
    Rack rack = add_rack(network, config);
    network.route();
    return rack;
}

TwoRacks parallel_paths(Network& network, const RackConfig& each, std::span<const PathConfig> paths) {
    TwoRacks made{add_rack(network, each), add_rack(network, each), {}};
    for (const PathConfig& path : paths) {
        const Cable cable = network.connect(*made.left.tor, *made.right.tor, path.link);
        made.paths.push_back(cable);
        if (!path.red) continue;
        made.left.tor->set_red(cable.forward, *path.red);
        made.right.tor->set_red(cable.backward, *path.red);
    }
    network.route();
    return made;
}

LeafSpine leaf_spine(Network& network, const LeafSpineConfig& config) {
    LeafSpine made;
    for (uint32_t i = 0; i < config.spines; ++i) made.spines.push_back(&network.add_switch(config.spine));
    for (uint32_t i = 0; i < config.leaves; ++i) {
        made.racks.push_back(add_rack(network, config.rack));
        auto& uplinks = made.uplinks.emplace_back();
        for (Switch* spine : made.spines) {
            uplinks.push_back(network.connect(*made.racks.back().tor, *spine, config.uplink));
        }
    }
    network.route();
    return made;
}

std::vector<Host*> LeafSpine::hosts() const {
    std::vector<Host*> all;
    for (const Rack& rack : racks) all.insert(all.end(), rack.hosts.begin(), rack.hosts.end());
    return all;
}

std::vector<std::pair<Host*, Host*>> permutation(const LeafSpine& network, Random random) {
    assert(network.racks.size() > 1);
    std::vector<Host*> hosts = network.hosts();
    for (size_t i = hosts.size() - 1; i > 0; --i) std::swap(hosts[i], hosts[random.below(i + 1)]);
    std::vector<std::pair<Host*, Host*>> pairs;
    for (size_t i = 0; i + 1 < hosts.size(); i += 2) pairs.emplace_back(hosts[i], hosts[i + 1]);
    // A pair within a rack exchanges receivers with others whose senders are elsewhere, which leaves those good. One of
    // them has its receiver elsewhere, too: the hosts of a rack, two of them in this pair, cannot be in all pairs.
    const auto rack = [](const Host* host) { return &host->link().to(); };
    for (auto& [sender, receiver] : pairs) {
        while (rack(sender) == rack(receiver)) {
            auto& [other_sender, other_receiver] = pairs[random.below(pairs.size())];
            if (rack(other_sender) != rack(sender)) std::swap(receiver, other_receiver);
        }
    }
    return pairs;
}

}  // namespace rove::fabric
