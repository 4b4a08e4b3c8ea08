// SPDX-License-Identifier: Apache-2.0
// Measures the speed of the modelled network: packet-hops per second of real time (items_per_second), and microseconds
// of virtual time per second (`virtual_us`). A hop is one packet over one link, with all work of its nodes.
#include <benchmark/benchmark.h>
#include <unistd.h>

#include <fstream>

#include "fabric/flow.h"
#include "fabric/huge_pages.h"
#include "fabric/topology.h"

namespace rove::fabric {
namespace {

// A source and sink without a transport: it returns each packet that arrives to its sender.
class Reflector final : public Node {
  public:
    using Node::Node;
    bool is_destination() const override { return true; }
    void on_transmit(Packet&, Link&) override {}
    void receive(Packet& packet, uint32_t) override {
        std::swap(packet.destination, peer);
        links().front()->enqueue(packet);
    }
    void begin(const Reflector& to, uint32_t packets) {
        peer = to.index();
        for (uint32_t i = 0; i < packets; ++i) {
            Packet& packet = world_.packets.take();
            packet.begin(1090, to.index(), mix(index() * 1000 + i));
            links().front()->enqueue(packet);
        }
    }
    uint32_t peer = 0;
};

void measure(benchmark::State& state, Network& network) {
    constexpr Time kStep = 20 * kMicrosecond;
    network.run_for(20 * kStep);
    const uint64_t before = network.packet_hops();
    const Time start = network.now();
    for (auto _ : state) network.run_for(kStep);
    state.SetItemsProcessed(static_cast<int64_t>(network.packet_hops() - before));
    state.counters["virtual_us"] =
        benchmark::Counter(static_cast<double>((network.now() - start) / kMicrosecond), benchmark::Counter::kIsRate);
}

// Switches and links only. Every host sends to a host in another rack. Argument: racks of 8 hosts, under 4 spines.
void Forwarding(benchmark::State& state) {
    const auto racks = static_cast<uint32_t>(state.range(0));
    constexpr uint32_t kHosts = 8, kPackets = 16;
    Network network;
    std::vector<Switch*> spines;
    for (int i = 0; i < 4; ++i) spines.push_back(&network.add_switch());
    std::vector<Reflector*> hosts;
    for (uint32_t rack = 0; rack < racks; ++rack) {
        Switch& leaf = network.add_switch();
        for (Switch* spine : spines) network.connect(leaf, *spine, {.bits_per_s = 100 * kGbps});
        for (uint32_t i = 0; i < kHosts; ++i) {
            hosts.push_back(&network.add<Reflector>());
            network.connect(*hosts.back(), leaf, {});
        }
    }
    network.route();
    for (size_t i = 0; i < hosts.size(); ++i) hosts[i]->begin(*hosts[(i + kHosts) % hosts.size()], kPackets);
    measure(state, network);
}

// Flows of real rc engines. Argument 0: racks of 10 hosts, half of which send; 1: whether frames are real bytes.
void RcPermutation(benchmark::State& state) {
    Network network(1, state.range(1) != 0 ? Carry::kBytes : Carry::kHeaders);
    LeafSpineConfig config;
    config.leaves = static_cast<uint32_t>(state.range(0));
    config.spines = 4;
    config.uplink.bits_per_s = 100 * kGbps;
    config.rack.hosts = 10;
    config.rack.tor.red = config.spine.red = {1.0, 60'000, 60'000};
    config.rack.tor.pfc = config.spine.pfc = Pfc{};
    const LeafSpine clos = leaf_spine(network, config);
    std::deque<Flow> flows;
    for (const auto& [from, to] : permutation(clos, network.world().new_stream())) {
        flows.emplace_back(network, *from, *to).start();
    }
    measure(state, network);
}

// Returns the resident memory of the process.
double resident_bytes() {
    std::ifstream statm("/proc/self/statm");
    double all = 0, resident = 0;
    statm >> all >> resident;
    return resident * static_cast<double>(sysconf(_SC_PAGESIZE));
}

// Flows of real mp engines over 100 Gb/s: a fat tree of k*k*k/4 hosts, half of which send. Argument: k. `host_bytes` is
// memory.
void MpFatTree(benchmark::State& state) {
    const double before = resident_bytes();
    Network network;
    FatTreeConfig config{.k = static_cast<uint32_t>(state.range(0))};
    config.uplink.bits_per_s = config.rack.access.bits_per_s = 100 * kGbps;
    config.rack.tor.red = config.upper.red = {1.0, 100'000, 100'000};
    config.rack.tor.pfc = config.upper.pfc = Pfc{};
    const std::vector<Host*> hosts = fat_tree(network, config).hosts();
    std::deque<Flow> flows;
    for (const auto& [from, to] : permutation(hosts, network.world().new_stream())) {
        flows.emplace_back(network, *from, *to, FlowConfig{.qp = {.multipath = true}}).start();
    }
    measure(state, network);
    state.counters["host_bytes"] = (resident_bytes() - before) / static_cast<double>(hosts.size());
}

// One rc flow at line rate between two hosts at one switch.
void RcFlow(benchmark::State& state) {
    Network network(1, state.range(0) != 0 ? Carry::kBytes : Carry::kHeaders);
    RackConfig config;
    config.hosts = 2;
    const Rack rack = single_switch(network, config);
    Flow flow(network, *rack.hosts[0], *rack.hosts[1]);
    flow.start();
    measure(state, network);
}

BENCHMARK(Forwarding)->Arg(2)->Arg(32);
BENCHMARK(RcFlow)->ArgName("bytes")->Arg(0)->Arg(1);
BENCHMARK(RcPermutation)->ArgNames({"racks", "bytes"})->Args({2, 0})->Args({32, 0})->Args({2, 1});
BENCHMARK(MpFatTree)->ArgName("k")->Arg(4)->Arg(8)->Arg(12)->Arg(16)->Arg(32);

}  // namespace
}  // namespace rove::fabric

int main(int argc, char** argv) {
    rove::fabric::prefer_huge_pages();
    benchmark::Initialize(&argc, argv);
    if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
    benchmark::RunSpecifiedBenchmarks();
    return 0;
}
