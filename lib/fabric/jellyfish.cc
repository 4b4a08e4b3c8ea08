// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <set>
#include <stdexcept>

#include "fabric/topology.h"

namespace rove::fabric {
namespace {

// A random graph in which each node has a given number of edges and two nodes share one at most. Nodes with free ports
// are joined at random; if that ends too early, one edge is replaced by two (section 3 of the paper).
class RandomGraph {
  public:
    RandomGraph(std::vector<uint32_t> degrees, Random random) : free_(std::move(degrees)), random_(random) {
        while (join() || split()) {
        }
    }
    const std::set<std::pair<uint32_t, uint32_t>>& edges() const { return edges_; }

    bool connected() const {
        std::vector<uint32_t> group(free_.size());
        for (uint32_t i = 0; i < group.size(); ++i) group[i] = i;
        for (const auto& [a, b] : edges_) {
            const uint32_t from = group[a], to = group[b];
            std::ranges::replace(group, from, to);
        }
        return std::ranges::all_of(group, [&](uint32_t one) { return one == group.front(); });
    }

  private:
    bool joined(uint32_t a, uint32_t b) const { return edges_.contains(std::minmax(a, b)); }
    void add(uint32_t a, uint32_t b) {
        edges_.insert(std::minmax(a, b));
        --free_[a];
        --free_[b];
    }
    // Adds one edge between two nodes with free ports. Returns false if there are no such nodes.
    bool join() {
        std::vector<std::pair<uint32_t, uint32_t>> possible;
        for (uint32_t a = 0; a < free_.size(); ++a) {
            for (uint32_t b = a + 1; b < free_.size() && free_[a] != 0; ++b) {
                if (free_[b] != 0 && !joined(a, b)) possible.emplace_back(a, b);
            }
        }
        if (possible.empty()) return false;
        const auto [a, b] = possible[random_.below(possible.size())];
        add(a, b);
        return true;
    }
    // Inserts a node with two free ports into an edge. Returns false if that is not possible.
    bool split() {
        for (uint32_t node = 0; node < free_.size(); ++node) {
            if (free_[node] < 2) continue;
            std::vector<std::pair<uint32_t, uint32_t>> possible;
            for (const auto& [a, b] : edges_) {
                if (a != node && b != node && !joined(a, node) && !joined(b, node)) possible.emplace_back(a, b);
            }
            if (possible.empty()) continue;
            const auto [a, b] = possible[random_.below(possible.size())];
            edges_.erase({a, b});
            ++free_[a];
            ++free_[b];
            add(a, node);
            add(b, node);
            return true;
        }
        return false;
    }

    std::vector<uint32_t> free_;
    Random random_;
    std::set<std::pair<uint32_t, uint32_t>> edges_;
};

}  // namespace

Jellyfish jellyfish(Network& network, const JellyfishConfig& config, Random random) {
    std::vector<uint32_t> degrees(config.switches, config.ports);
    for (uint32_t host = 0; host < config.hosts; ++host) {
        if (config.switches == 0 || degrees[host % config.switches]-- == 0)
            throw std::invalid_argument("fabric: a Jellyfish of more hosts than ports");
    }
    // A random graph may be disconnected; with more ports that is rarer.
    constexpr int kDraws = 100;
    std::set<std::pair<uint32_t, uint32_t>> edges;
    for (int i = 0; i < kDraws && edges.empty(); ++i) {
        const RandomGraph graph(degrees, Random(random.next(), 0));
        if (graph.connected()) edges = graph.edges();
    }
    if (edges.empty() && config.switches > 1)
        throw std::invalid_argument("fabric: a Jellyfish without ports for a connected graph");

    Jellyfish made;
    for (uint32_t i = 0; i < config.switches; ++i) made.switches.push_back(&network.add_switch(config.a_switch));
    for (uint32_t i = 0; i < config.hosts; ++i) {
        made.all_hosts.push_back(&add_host(network, config.host, config.access));
        network.connect(*made.all_hosts.back(), *made.switches[i % config.switches], config.access);
    }
    for (const auto& [a, b] : edges)
        made.trunks.push_back(network.connect(*made.switches[a], *made.switches[b], config.trunk));
    if (config.paths == 0) {
        network.route();
    } else {
        network.route_by_paths(config.paths);
    }
    return made;
}

}  // namespace rove::fabric
