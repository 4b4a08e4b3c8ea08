// SPDX-License-Identifier: Apache-2.0
// The routes of Network: equal next hops to every destination, or explicit paths.
#include <map>
#include <stdexcept>

#include "fabric/network.h"
#include "fabric/shortest_paths.h"

namespace rove::fabric {
namespace {

constexpr uint32_t kFar = UINT32_MAX;

// A cable with one dead direction is not used in either.
bool usable(const Link& link) {
    return link.up() && link.reverse().up();
}

}  // namespace

void Network::route() {
    tell_leaves();
    if (!reroute()) throw std::invalid_argument("fabric: a node without a way to another");
    double rate = 0;
    for (const Link& link : links_) rate += static_cast<double>(link.config().bits_per_s);
    world_.events.expect(rate);
}

void Network::tell_leaves() {
    leaf_of_.assign(nodes_.size(), UINT32_MAX);
    for (const auto& node : nodes_) {
        if (node->is_destination() && !node->links().empty())
            leaf_of_[node->index()] = node->links().front()->to().index();
    }
    for (Switch* const at : switches()) {
        if (at != nullptr) at->set_leaves(leaf_of_);
    }
}

void Network::route_by_paths(uint32_t paths) {
    paths_per_pair_ = paths;
    path_seed_ = world_.new_stream().next();
    for (Switch* const at : switches()) {
        if (at != nullptr) at->use_paths(path_table_);
    }
    route();
}

bool Network::reroute() {
    return paths_per_pair_ == 0 ? route_equal_hops() : route_paths();
}

// Returns the switch of each node number, or null for a host.
std::vector<Switch*> Network::switches() const {
    std::vector<Switch*> found;
    for (const auto& node : nodes_) found.push_back(dynamic_cast<Switch*>(node.get()));
    return found;
}

bool Network::route_equal_hops() {
    const size_t count = nodes_.size();
    const std::vector<Switch*> by_node = switches();
    for (Switch* const at : by_node) {
        if (at != nullptr) at->clear_routes(count);
    }
    // All paths to a node with one cable lead to the switch at its other end, so the result for one node holds for the
    // next.
    bool complete = true;
    const Node* root = nullptr;
    std::vector<uint32_t> distances;
    std::vector<std::vector<uint32_t>> ports(count);
    for (const auto& destination : nodes_) {
        if (!destination->is_destination()) continue;
        const auto& cables = destination->links();
        const bool one_way = cables.size() == 1 && !cables.front()->to().is_destination() && usable(*cables.front());
        const Node& target = one_way ? cables.front()->to() : *destination;
        if (root != &target) {
            root = &target;
            distances = distances_to(target);
            for (const auto& node : nodes_) ports[node->index()] = next_hops(*node, distances);
        }
        for (const auto& node : nodes_) {
            Switch* const at = by_node[node->index()];
            complete &= distances[node->index()] != kFar;
            if (at == nullptr) continue;
            if (at == &target) {
                for (uint32_t port = 0; port < at->links().size(); ++port) {
                    if (&at->links()[port]->to() == destination.get()) at->set_route(destination->index(), {port});
                }
            } else {
                at->set_route(destination->index(), ports[node->index()]);
            }
        }
    }
    return complete;
}

// Searches breadth first from the destination. Cables have two directions, so distances do too.
std::vector<uint32_t> Network::distances_to(const Node& destination) const {
    std::vector<uint32_t> distances(nodes_.size(), kFar);
    distances[destination.index()] = 0;
    std::vector<const Node*> found{&destination};
    for (size_t i = 0; i < found.size(); ++i) {
        const Node& node = *found[i];
        for (const Link* link : node.links()) {
            uint32_t& next = distances[link->to().index()];
            if (next != kFar || !usable(*link)) continue;
            next = distances[node.index()] + 1;
            if (!link->to().is_destination()) found.push_back(&link->to());
        }
    }
    return distances;
}

std::vector<uint32_t> Network::next_hops(const Node& node, const std::vector<uint32_t>& distances) {
    std::vector<uint32_t> ports;
    for (uint32_t port = 0; port < node.links().size(); ++port) {
        const Link& link = *node.links()[port];
        const uint32_t next = distances[link.to().index()];
        if (next != kFar && next + 1 == distances[node.index()] && usable(link)) ports.push_back(port);
    }
    return ports;
}

bool Network::route_paths() {
    const size_t count = nodes_.size();
    const std::vector<Switch*> by_node = switches();
    Graph graph(count);
    std::vector<std::vector<uint32_t>> hosts(count);           // indexed by switch
    std::vector<uint32_t> switches_at(count);                  // indexed by host
    std::vector<std::map<uint32_t, uint32_t>> port_to(count);  // indexed by switch, then by neighbour
    for (const auto& node : nodes_) {
        if (by_node[node->index()] == nullptr) continue;
        by_node[node->index()]->clear_routes(count);
        for (uint32_t port = 0; port < node->links().size(); ++port) {
            const Link& link = *node->links()[port];
            const uint32_t next = link.to().index();
            if (!usable(link) || !port_to[node->index()].emplace(next, port).second) continue;
            (by_node[next] == nullptr ? hosts : graph)[node->index()].push_back(next);
            if (by_node[next] == nullptr && ++switches_at[next] == 2)
                throw std::invalid_argument(
                    "fabric: a port with cables to two switches has no paths, but equal next hops");
        }
    }
    if (path_table_.empty()) path_table_.push_back(Switch::kEndOfPath);  // index 0 means "no path"
    bool complete = true;
    for (uint32_t from = 0; from < count; ++from) {
        if (by_node[from] == nullptr) continue;
        for (const uint32_t host : hosts[from]) by_node[from]->set_paths(host, {port_to[from].at(host)}, {0});
        for (uint32_t to = 0; to < count; ++to) {
            if (to == from || hosts[to].empty()) continue;
            std::vector<uint32_t> ports, rest;
            const Random random(path_seed_, uint64_t{from} * count + to);
            for (const std::vector<uint32_t>& path : k_shortest_paths(graph, from, to, paths_per_pair_, random)) {
                ports.push_back(port_to[from].at(path[1]));
                rest.push_back(path.size() == 2 ? 0 : static_cast<uint32_t>(path_table_.size()));
                if (path.size() == 2) continue;
                for (size_t i = 1; i + 1 < path.size(); ++i) path_table_.push_back(port_to[path[i]].at(path[i + 1]));
                path_table_.push_back(Switch::kEndOfPath);
            }
            complete &= !ports.empty();
            for (const uint32_t host : hosts[to]) by_node[from]->set_paths(host, ports, rest);
        }
    }
    return complete;
}

}  // namespace rove::fabric
