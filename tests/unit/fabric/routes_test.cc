// SPDX-License-Identifier: Apache-2.0
// Tests topologies and their routes: fat trees, Jellyfish, and files. Also tests routes after cables fail.
#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <set>
#include <sstream>

#include "fabric/audit.h"
#include "fabric/failures.h"
#include "fabric/flow.h"
#include "fabric/probe.h"
#include "fabric/shortest_paths.h"
#include "fabric/topology.h"
#include "fabric/topology_file.h"

namespace rove::fabric {
namespace {

// Returns the distance of each node from `from`, in cables, indexed by node.
std::vector<uint32_t> distances(const Network& network, const Node& from) {
    std::vector<uint32_t> found(network.nodes().size(), UINT32_MAX);
    found[from.index()] = 0;
    std::deque<const Node*> queue{&from};
    for (; !queue.empty(); queue.pop_front()) {
        for (const Link* link : queue.front()->links()) {
            if (found[link->to().index()] != UINT32_MAX) continue;
            found[link->to().index()] = found[queue.front()->index()] + 1;
            queue.push_back(&link->to());
        }
    }
    return found;
}

// Runs two WRITEs from each host to the host `step` places after it, and expects all to succeed.
void exchange(Network& network, const std::vector<Host*>& hosts, size_t step, bool multipath = false) {
    std::deque<Flow> flows;
    for (size_t i = 0; i < hosts.size(); ++i) {
        const FlowConfig config{.message_bytes = 4096,
                                .messages = 2,
                                .qp = {.multipath = multipath, .udp_src = static_cast<uint16_t>(0xC000 + 7 * i)}};
        flows.emplace_back(network, *hosts[i], *hosts[(i + step) % hosts.size()], config).start();
    }
    network.run_for(20 * kMillisecond);
    for (const Flow& flow : flows) {
        EXPECT_TRUE(flow.ended());
        EXPECT_EQ(flow.status(), IBV_WC_SUCCESS);
    }
    check_conservation(network);
}

TEST(FatTreeTest, has_the_shape_of_the_paper) {
    for (const uint32_t k : {2u, 4u, 6u}) {
        Network network;
        const FatTree tree = fat_tree(network, {.k = k});
        EXPECT_EQ(tree.hosts().size(), k * k * k / 4);
        EXPECT_EQ(tree.racks.size(), k * k / 2);
        EXPECT_EQ(tree.aggregation.size(), k * k / 2);
        EXPECT_EQ(tree.core.size(), k * k / 4);
        for (const Rack& rack : tree.racks) EXPECT_EQ(rack.tor->links().size(), k);
        for (const Switch* one : tree.aggregation) EXPECT_EQ(one->links().size(), k);
        for (const Switch* one : tree.core) EXPECT_EQ(one->links().size(), k);
        const auto far = distances(network, *tree.hosts().front());
        for (size_t i = 1; i < tree.hosts().size(); ++i) {
            const size_t half = k / 2, pod = half * half;
            EXPECT_EQ(far[tree.hosts()[i]->index()], i < half ? 2 : i < pod ? 4 : 6);
        }
    }
    Network network;
    EXPECT_THROW(fat_tree(network, {.k = 5}), std::invalid_argument);
    EXPECT_THROW(fat_tree(network, {.k = 0}), std::invalid_argument);
}

TEST(FatTreeTest, all_cores_carry_what_crosses_pods_and_everything_arrives) {
    Network network;
    FatTreeConfig config{.k = 4};
    config.rack.tor.balancer = config.upper.balancer = Balancer::kSpray;
    const FatTree tree = fat_tree(network, config);
    exchange(network, tree.hosts(), 4, true);
    for (const Cable& cable : tree.core_links) EXPECT_GT(cable.forward.stats().delivered_packets, 0u);
}

TEST(KShortestPaths, are_those_of_a_small_graph) {
    // A square with a diagonal: 0-1, 1-3, 0-2, 2-3, 0-3.
    const Graph graph{{1, 2, 3}, {0, 3}, {0, 3}, {0, 1, 2}};
    const auto paths = k_shortest_paths(graph, 0, 3, 5, Random(1, 1));
    ASSERT_EQ(paths.size(), 3u);
    EXPECT_EQ(paths[0], (std::vector<uint32_t>{0, 3}));
    EXPECT_EQ(std::set(paths.begin() + 1, paths.end()), (std::set<std::vector<uint32_t>>{{0, 1, 3}, {0, 2, 3}}));
    EXPECT_EQ(k_shortest_paths(graph, 0, 3, 2, Random(1, 1)).size(), 2u);
    EXPECT_TRUE(k_shortest_paths(graph, 0, 3, 0, Random(1, 1)).empty());
    EXPECT_TRUE(k_shortest_paths({{}, {}}, 0, 1, 3, Random(1, 1)).empty());
}

// Returns the lengths of all paths without loops, shortest first, by exhaustive search.
std::vector<size_t> all_lengths(const Graph& graph, std::vector<uint32_t> begin, uint32_t to) {
    if (begin.back() == to) return {begin.size()};
    std::vector<size_t> lengths;
    for (const uint32_t next : graph[begin.back()]) {
        if (std::ranges::find(begin, next) != begin.end()) continue;
        begin.push_back(next);
        const auto more = all_lengths(graph, begin, to);
        lengths.insert(lengths.end(), more.begin(), more.end());
        begin.pop_back();
    }
    std::ranges::sort(lengths);
    return lengths;
}

TEST(KShortestPaths, are_the_shortest_of_random_graphs) {
    Random random(4, 4);
    for (int trial = 0; trial < 60; ++trial) {
        Graph graph(7);
        for (uint32_t a = 0; a < graph.size(); ++a) {
            for (uint32_t b = a + 1; b < graph.size(); ++b) {
                if (!random.chance(0.4)) continue;
                graph[a].push_back(b);
                graph[b].push_back(a);
            }
        }
        const std::vector<size_t> expected = all_lengths(graph, {0}, 6);
        const auto paths = k_shortest_paths(graph, 0, 6, 8, Random(static_cast<uint64_t>(trial), 0));
        ASSERT_EQ(paths.size(), std::min<size_t>(8, expected.size()));
        EXPECT_EQ(std::set(paths.begin(), paths.end()).size(), paths.size()) << "one of them twice";
        for (size_t i = 0; i < paths.size(); ++i) {
            EXPECT_EQ(paths[i].size(), expected[i]);
            EXPECT_EQ(std::set(paths[i].begin(), paths[i].end()).size(), paths[i].size()) << "a loop";
            EXPECT_EQ(paths[i].front(), 0u);
            EXPECT_EQ(paths[i].back(), 6u);
            for (size_t hop = 1; hop < paths[i].size(); ++hop)
                EXPECT_NE(std::ranges::find(graph[paths[i][hop - 1]], paths[i][hop]), graph[paths[i][hop - 1]].end());
        }
    }
}

TEST(JellyfishTest, is_regular_connected_and_random_by_its_seed) {
    std::set<std::vector<std::pair<uint32_t, uint32_t>>> graphs;
    for (const uint64_t seed : {1, 2, 1}) {
        Network network;
        const JellyfishConfig config{.switches = 20, .ports = 6, .hosts = 30};
        const Jellyfish made = jellyfish(network, config, Random(seed, 0));
        EXPECT_EQ(made.hosts().size(), 30u);
        uint32_t free = 0;
        for (const Switch* one : made.switches) {
            EXPECT_LE(one->links().size(), 6u);
            free += 6 - static_cast<uint32_t>(one->links().size());
        }
        EXPECT_LE(free, 1u) << "of 90 ports for trunks";
        std::vector<std::pair<uint32_t, uint32_t>> graph;
        for (const Cable& cable : made.trunks)
            graph.emplace_back(cable.forward.from().index(), cable.forward.to().index());
        EXPECT_EQ(std::set(graph.begin(), graph.end()).size(), graph.size()) << "two cables between two switches";
        const auto far = distances(network, *made.switches[0]);
        EXPECT_EQ(std::ranges::count(far, UINT32_MAX), 0);
        graphs.insert(graph);
    }
    EXPECT_EQ(graphs.size(), 2u);
    Network network;
    EXPECT_THROW(jellyfish(network, {.switches = 3, .ports = 2, .hosts = 7}, Random(1, 1)), std::invalid_argument);
    EXPECT_THROW(jellyfish(network, {.switches = 3, .ports = 2, .hosts = 6}, Random(1, 1)), std::invalid_argument);
}

// Returns the paths of packets from one host to another, as lists of switches.
std::set<std::vector<uint32_t>> ways(Network& network, Host& from, Host& to, uint32_t flows) {
    std::map<uint64_t, std::vector<uint32_t>> by_packet;
    network.world().trace = [&](TraceEvent what, const Link& link, const Packet& packet) {
        if (what == TraceEvent::kDelivered && packet.destination == to.index() && !packet.control)
            by_packet[packet.flow_hash].push_back(link.to().index());
    };
    for (uint32_t i = 0; i < flows; ++i) {
        const FlowConfig config{
            .message_bytes = 512, .messages = 1, .qp = {.udp_src = static_cast<uint16_t>(0xC000 + i)}};
        Flow flow(network, from, to, config);
        flow.start();
        network.run_for(kMillisecond);
        EXPECT_EQ(flow.status(), IBV_WC_SUCCESS);
        EXPECT_TRUE(flow.ended());
    }
    network.world().trace = nullptr;
    std::set<std::vector<uint32_t>> found;
    for (const auto& [hash, way] : by_packet) found.insert(way);
    return found;
}

TEST(JellyfishTest, flows_use_k_paths_without_loops) {
    Network network(3);
    const Jellyfish made = jellyfish(network, {.switches = 12, .ports = 6, .hosts = 24, .paths = 5}, Random(2, 0));
    const auto hosts = made.hosts();
    size_t longest = 0;
    for (const size_t to : {1u, 5u, 11u}) {
        const auto found = ways(network, *hosts[0], *hosts[to], 100);
        EXPECT_EQ(found.size(), 5u) << "of five paths each misses a hundred flows once in 10^9";
        for (const auto& way : found) {
            EXPECT_EQ(way.back(), hosts[to]->index());
            EXPECT_EQ(std::set(way.begin(), way.end()).size(), way.size()) << "a loop";
            longest = std::max(longest, way.size());
        }
    }
    EXPECT_GT(longest, distances(network, *hosts[0])[hosts[1]->index()]) << "some are longer than the shortest";
    EXPECT_EQ(ways(network, *hosts[0], *hosts[12], 10).size(), 1u) << "at the same switch";
    exchange(network, hosts, 1);
}

TEST(JellyfishTest, any_balancer_chooses_among_the_paths) {
    for (const Balancer balancer : {Balancer::kSpray, Balancer::kPowerOfTwo, Balancer::kDrill}) {
        Network network(3);
        JellyfishConfig config{.switches = 12, .ports = 6, .hosts = 24, .paths = 4};
        config.a_switch.balancer = balancer;
        const Jellyfish made = jellyfish(network, config, Random(2, 0));
        exchange(network, made.hosts(), 1, true);
    }
}

TEST(TopologyFile, reads_what_ns3_reads) {
    std::istringstream file(
        "5 2 5\n3 4\n0 3 100Gbps 1000ns 0\n1 3 100Gbps 0.001ms 0.000000\n2 4 40Gbps 1us 0.5\n"
        "3 4 400Gbps 2us 0\n4 3 0.4Tbps 500ns 0\n");
    Network network;
    const Imported made = read_topology(network, file, "net.txt", {});
    EXPECT_EQ(made.hosts().size(), 3u);
    EXPECT_EQ(made.switches.size(), 2u);
    EXPECT_EQ(made.access.size(), 3u);
    ASSERT_EQ(made.trunks.size(), 2u);
    EXPECT_EQ(made.access[0].forward.config().bits_per_s, 100 * kGbps);
    EXPECT_EQ(made.access[1].forward.config().delay, kMicrosecond);
    EXPECT_EQ(made.access[2].backward.config().loss, 0.5);
    EXPECT_EQ(made.trunks[1].forward.config().bits_per_s, 400 * kGbps);
    EXPECT_EQ(made.trunks[1].forward.config().delay, 500 * kNanosecond);
    EXPECT_EQ(made.hosts()[2]->index(), 2u) << "nodes keep their numbers";
    exchange(network, {made.hosts()[0], made.hosts()[1]}, 1);
}

TEST(TopologyFile, errors_name_file_line_and_what_is_allowed) {
    const auto error = [](const std::string& text) -> std::string {
        std::istringstream file(text);
        Network network;
        try {
            read_topology(network, file, "net.txt", {});
        } catch (const std::invalid_argument& bad) {
            return bad.what();
        }
        return "none";
    };
    EXPECT_EQ(error(""), "net.txt:1: the file ends where the number of nodes is expected");
    EXPECT_EQ(error("x"), "net.txt:1: the number of nodes 'x': a number from 2 to 1048576");
    EXPECT_EQ(error("3 9 1"), "net.txt:1: the number of switches '9': a number from 0 to 3");
    EXPECT_EQ(error("3 1 2\n3\n"), "net.txt:2: a switch '3': a number from 0 to 2");
    EXPECT_EQ(error("3 2 2\n2 2\n"), "net.txt:2: switch 2 is there already");
    EXPECT_EQ(error("3 1 2\n2\n0 5 1Gbps 1us 0\n"), "net.txt:3: a link's node '5': a number from 0 to 2");
    EXPECT_EQ(error("3 1 2\n2\n0 0 1Gbps 1us 0\n"), "net.txt:3: a link from node 0 to itself");
    EXPECT_EQ(error("3 1 2\n2\n0 2 1Gb/s 1us 0\n"),
              "net.txt:3: a link's rate '1Gb/s': a number with bps, Kbps, Mbps, Gbps, Tbps; from 0 to 100Tbps");
    EXPECT_EQ(error("3 1 2\n2\n0 2 0bps 1us 0\n"), "net.txt:3: a link's rate is 0");
    EXPECT_EQ(error("3 1 2\n2\n0 2 1Gbps 1 0\n"),
              "net.txt:3: a link's delay '1': a number with ps, ns, us, ms, s; from 0 to 100s");
    EXPECT_EQ(error("3 1 2\n2\n0 2 1Gbps -1us 0\n"),
              "net.txt:3: a link's delay '-1us': a number with ps, ns, us, ms, s; from 0 to 100s");
    EXPECT_EQ(error("3 1 2\n2\n0 2 1Gbps 1us 1.5\n"), "net.txt:3: a link's loss '1.5': a number; from 0 to 1");
    EXPECT_EQ(error("3 1 2\n2\n0 2 1Gbps 1us nan\n"), "net.txt:3: a link's loss 'nan': a number; from 0 to 1");
    EXPECT_EQ(error("3 1 2\n2\n0 2 1Gbps 1us 0\n0 2 1Gbps 1us 0\n"),
              "net.txt:4: node 0 is a host, and has a link already: hosts have one");
    EXPECT_EQ(error("3 1 2\n2\n0 2 1Gbps 1us 0\n1 2 1Gbps\n"),
              "net.txt:5: the file ends where a link's delay is expected");
    EXPECT_EQ(error("3 1 1\n2\n0 2 1Gbps 1us 0\n"), "net.txt:3: node 1 has no link");
    EXPECT_EQ(error("4 2 2\n2 3\n0 2 1Gbps 1us 0\n1 3 1Gbps 1us 0\n"), "net.txt:4: the nodes are not all connected");
    EXPECT_EQ(error("3 1 2\n2\n0 2 1Gbps 1us 0\n1 2 1Gbps 1us 0\n"), "none");
}

TEST(FailuresTest, draws_a_part_at_random) {
    Network network;
    const LeafSpine clos = leaf_spine(network, {.leaves = 5, .spines = 4});
    const std::vector<Cable> all = clos.trunks();
    Random random(1, 1);
    std::map<const Link*, uint64_t> often;
    for (int i = 0; i < 2000; ++i) {
        std::set<const Link*> drawn;
        for (const Cable& cable : draw(all, 0.1, random)) drawn.insert(&cable.forward);
        ASSERT_EQ(drawn.size(), 2u) << "one of them twice";
        for (const Link* link : drawn) ++often[link];
    }
    double chi = 0;
    for (const Cable& cable : all) {
        const double off = static_cast<double>(often[&cable.forward]) - 200;
        chi += off * off / 200;
    }
    EXPECT_LT(chi, 43.8) << "nineteen degrees of freedom, once in a thousand";
    EXPECT_TRUE(draw(all, 0, random).empty());
    EXPECT_EQ(draw(all, 1, random).size(), 20u);
}

struct Rerouting : ::testing::Test {
    Rerouting() {
        clos = leaf_spine(network, {.leaves = 2, .spines = 2, .rack = {.hosts = 1}});
        a = clos.racks[0].hosts[0];
        b = clos.racks[1].hosts[0];
    }
    Network network;
    LeafSpine clos;
    Host *a, *b;
};

TEST_F(Rerouting, flows_leave_a_dead_path_when_the_reaction_time_is_over) {
    Failures failures(network, 100 * kMicrosecond);
    // A flow on the first path. It stalls until the routes are updated, and then continues on the second path.
    const uint16_t port = network.source_port_via(clos.uplinks[0][0].forward, *a, *b);
    Flow flow(network, *a, *b, {.messages = 200, .qp = {.timeout = 1, .udp_src = port}});
    flow.start();
    const LinkStats& first = clos.uplinks[0][0].forward.stats();
    const LinkStats& second = clos.uplinks[0][1].forward.stats();
    network.run_until(200 * kMicrosecond);
    EXPECT_GT(first.delivered_packets, 0u);
    EXPECT_EQ(second.delivered_packets, 0u);
    failures.fail({{clos.uplinks[0][0]}});
    network.run_until(299 * kMicrosecond);
    EXPECT_EQ(failures.reroutes(), 0u);
    EXPECT_EQ(second.enqueued_packets, 0u);
    network.run_until(20 * kMillisecond);
    EXPECT_EQ(failures.reroutes(), 1u);
    EXPECT_TRUE(failures.complete());
    EXPECT_GT(second.delivered_packets, 0u);
    EXPECT_TRUE(flow.ended());
    EXPECT_EQ(flow.status(), IBV_WC_SUCCESS);
    EXPECT_EQ(network.source_port_via(clos.uplinks[0][1].forward, *a, *b), 0xC000) << "every port goes that way";
    check_conservation(network);
    // The flow returns to the first path.
    const uint64_t before = first.delivered_packets;
    failures.restore({{clos.uplinks[0][0]}});
    network.run_for(kMillisecond);
    Flow again(network, *a, *b, {.messages = 2, .qp = {.udp_src = port}});
    again.start();
    network.run_for(kMillisecond);
    EXPECT_TRUE(again.ended());
    EXPECT_GT(first.delivered_packets, before);
}

TEST_F(Rerouting, the_spine_too_goes_round_a_dead_link) {
    // The cable from the first spine to b's leaf fails, so a's leaf must stop using that spine.
    Failures failures(network, 10 * kMicrosecond);
    failures.fail({{clos.uplinks[1][0]}});
    network.run_for(20 * kMicrosecond);
    exchange(network, {a, b}, 1);
    EXPECT_EQ(clos.uplinks[0][0].forward.stats().enqueued_packets, 0u);
}

TEST_F(Rerouting, without_any_way_packets_are_dropped_and_counted) {
    Failures failures(network, 10 * kMicrosecond);
    failures.fail(clos.uplinks[0]);
    network.run_for(20 * kMicrosecond);
    EXPECT_FALSE(failures.complete());
    Flow flow(network, *a, *b, {.messages = 1, .qp = {.timeout = 1, .retry_cnt = 1}});
    flow.start();
    network.run_for(kSecond);
    EXPECT_EQ(flow.status(), IBV_WC_RETRY_EXC_ERR);
    EXPECT_GT(clos.racks[0].tor->unrouted_packets(), 0u);
    check_conservation(network);
}

TEST(FailuresTest, queues_before_dead_ports_are_emptied) {
    Network network;
    Switch& left = network.add_switch({.pfc = Pfc{}});
    Switch& right = network.add_switch();
    Probe& a = network.add<Probe>();
    Probe& b = network.add<Probe>();
    network.connect(a, left, {.bits_per_s = 100 * kGbps});
    network.connect(b, right, {});
    const Cable trunk = network.connect(left, right, {.bits_per_s = kGbps / 100});
    network.route();
    for (int i = 0; i < 200; ++i) a.send(b, 1000);
    network.run_for(50 * kMicrosecond);
    EXPECT_GT(trunk.forward.queued_packets(), 50u);
    Failures failures(network, 10 * kMicrosecond);
    failures.fail({{trunk}});
    network.run_for(100 * kMicrosecond);
    EXPECT_EQ(trunk.forward.queued_packets(), 0u);
    EXPECT_GT(trunk.forward.stats().drained_packets, 50u);
    EXPECT_EQ(left.used_bytes(), 0u);
    EXPECT_EQ(trunk.forward.stats().drained_packets + trunk.forward.stats().cut_packets + left.unrouted_packets(),
              200u);
    check_conservation(network);
}

TEST(FailuresTest, repeat_fails_another_part_at_each_interval) {
    Network network;
    const LeafSpine clos = leaf_spine(network, {.leaves = 5, .spines = 4});
    const std::vector<Cable> all = clos.trunks();
    Failures failures(network, 10 * kMicrosecond);
    failures.repeat(all, 0.1, kMillisecond, Random(1, 1));
    std::set<std::vector<bool>> seen;
    for (int i = 0; i < 10; ++i) {
        network.run_for(kMillisecond);
        std::vector<bool> up;
        for (const Cable& cable : all) up.push_back(cable.forward.up());
        EXPECT_EQ(std::ranges::count(up, false), 2);
        seen.insert(up);
    }
    EXPECT_GT(seen.size(), 5u);
    EXPECT_GE(failures.reroutes(), 10u);
}

}  // namespace
}  // namespace rove::fabric
