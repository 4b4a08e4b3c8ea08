// SPDX-License-Identifier: Apache-2.0
#include "fabric/topology.h"

#include <algorithm>
#include <cassert>
#include <stdexcept>

namespace rove::fabric {

Host& add_host(Network& network, HostConfig host, const LinkConfig& access) {
    host.transport.dcqcn.line_rate_bytes_per_s = access.bits_per_s / 8;
    host.transport.seed = network.world().new_stream().next();
    return network.add_host(host);
}

namespace {

// Adds one rack, or with separate ports one rack for each of them.
std::vector<Rack> add_racks(Network& network, const RackConfig& config) {
    const Ports& ports = config.ports;
    std::vector<Rack> racks(ports.separate ? ports.count : 1);
    for (Rack& rack : racks) rack.tor = &network.add_switch(config.tor);
    for (uint32_t i = 0; i < config.hosts; ++i) {
        Host& host = add_host(network, config.host, config.access);
        racks.front().hosts.push_back(&host);
        for (uint32_t port = 0; port < ports.count; ++port) {
            Node& from = port == 0 || ports.bonded ? static_cast<Node&>(host) : network.add_port(host);
            Rack& rack = racks[port % racks.size()];
            rack.access.push_back(network.connect(from, *rack.tor, config.access));
        }
    }
    return racks;
}

Rack add_rack(Network& network, const RackConfig& config) {
    if (config.ports.separate) throw std::invalid_argument("fabric: separate ports are a leaf-spine network's");
    return add_racks(network, config).front();
}

std::vector<Host*> all_of(const std::vector<Rack>& racks) {
    std::vector<Host*> all;
    for (const Rack& rack : racks) all.insert(all.end(), rack.hosts.begin(), rack.hosts.end());
    return all;
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
        for (Rack& rack : add_racks(network, config.rack)) {
            auto& uplinks = made.uplinks.emplace_back();
            for (Switch* spine : made.spines) uplinks.push_back(network.connect(*rack.tor, *spine, config.uplink));
            made.racks.push_back(std::move(rack));
        }
    }
    network.route();
    return made;
}

std::vector<Host*> LeafSpine::hosts() const {
    return all_of(racks);
}

std::vector<Cable> LeafSpine::trunks() const {
    std::vector<Cable> all;
    for (const auto& of_leaf : uplinks) {
        for (const Cable& cable : of_leaf) all.push_back(cable);
    }
    return all;
}

FatTree fat_tree(Network& network, const FatTreeConfig& config) {
    const uint32_t half = config.k / 2;
    if (config.k == 0 || config.k % 2 != 0) throw std::invalid_argument("fabric: a fat tree's k is even: 2, 4, ...");
    FatTree made;
    RackConfig rack = config.rack;
    if (rack.hosts == 0) rack.hosts = half;
    for (uint32_t i = 0; i < half * half; ++i) made.core.push_back(&network.add_switch(config.upper));
    for (uint32_t pod = 0; pod < config.k; ++pod) {
        std::vector<Switch*> aggregation;
        for (uint32_t i = 0; i < half; ++i) {
            aggregation.push_back(&network.add_switch(config.upper));
            for (uint32_t j = 0; j < half; ++j)
                made.core_links.push_back(network.connect(*aggregation[i], *made.core[i * half + j], config.uplink));
        }
        for (uint32_t i = 0; i < half; ++i) {
            made.racks.push_back(add_rack(network, rack));
            for (Switch* const up : aggregation)
                made.edge_uplinks.push_back(network.connect(*made.racks.back().tor, *up, config.uplink));
        }
        made.aggregation.insert(made.aggregation.end(), aggregation.begin(), aggregation.end());
    }
    network.route();
    return made;
}

std::vector<Host*> FatTree::hosts() const {
    return all_of(racks);
}

std::vector<std::pair<Host*, Host*>> permutation(std::vector<Host*> hosts, Random random) {
    const auto rack = [](const Host* host) { return &host->link().to(); };
    assert(std::ranges::any_of(hosts, [&](const Host* host) { return rack(host) != rack(hosts.front()); }));
    for (size_t i = hosts.size() - 1; i > 0; --i) std::swap(hosts[i], hosts[random.below(i + 1)]);
    std::vector<std::pair<Host*, Host*>> pairs;
    for (size_t i = 0; i + 1 < hosts.size(); i += 2) pairs.emplace_back(hosts[i], hosts[i + 1]);
    // A pair within a rack swaps receivers with a pair whose sender is in another rack, which leaves that pair valid. A
    // pair with its receiver elsewhere exists as well, since the hosts of a rack, two of which are in this pair, cannot
    // be in all pairs.
    for (auto& [sender, receiver] : pairs) {
        while (rack(sender) == rack(receiver)) {
            auto& [other_sender, other_receiver] = pairs[random.below(pairs.size())];
            if (rack(other_sender) != rack(sender)) std::swap(receiver, other_receiver);
        }
    }
    return pairs;
}

}  // namespace rove::fabric
