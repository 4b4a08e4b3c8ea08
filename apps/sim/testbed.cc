// SPDX-License-Identifier: Apache-2.0
#include "testbed.h"

#include "fabric/audit.h"

namespace rove::sim {
namespace {

constexpr uint64_t kHostGbps = 40;
constexpr uint32_t kBdpBytes = kHostGbps * kGbps / 8 * kBaseRtt / kSecond;  // 60 KB

// The round trip of a lone packet crosses three cables each way; data and ACK are also transmitted three times each.
constexpr Time kCableDelay = (kBaseRtt - 3 * (kMtu + 150) * 200) / 6;

bool letter = false;

}  // namespace

void use_published_rules() {
    letter = true;
}

transport::Config mp_rdma(uint32_t mtu) {
    transport::Config config;
    config.paths.control = transport::PathsConfig::Control::kMpRdma;
    config.adapts_window = false;
    config.paths.initial_window = kBdpBytes / mtu;
    config.paths.max_window = 256;
    config.paths.infer_losses = false;
    config.paths.explore = false;
    config.reorder = transport::kEunomiaSizes;
    config.reorder.kind = transport::ReorderConfig::Kind::kStatic;
    config.ordering = transport::Ordering::kOptimistic;
    config.batch_acks = false;
    config.paths.count_acks = letter;
    if (letter) config.paths.recovery = transport::PathsConfig::Recovery::kGoBackN;
    return config;
}

transport::Config irn() {
    transport::Config config = mp_rdma();
    config.paths.control = transport::PathsConfig::Control::kFixed;
    config.paths.count_acks = false;
    config.paths.recovery = transport::PathsConfig::Recovery::kSelectiveRepeat;
    config.paths.first_vp = 0;
    config.paths.vps = 1;
    config.paths.infer_losses = true;  // on one path BX-1 acts like IRN's NACK
    config.paths.learn_patience = false;
    config.paths.min_rto_ns = 320'000;  // IRN section 3.1: RTO_high
    config.paths.low_rto_ns = 100'000;
    config.paths.repeat_early = false;
    config.reorder.static_slots = config.paths.max_window;
    return config;
}

Testbed::Testbed(uint64_t seed, const transport::Config& transport, const std::vector<uint64_t>& path_gbps,
                 uint32_t ring_packets)
    : network(seed) {
    RackConfig rack{.hosts = 5};
    rack.host.transport = transport;
    rack.host.ring_packets = ring_packets;
    rack.access = {.bits_per_s = kHostGbps * kGbps, .delay = kCableDelay};
    rack.tor.red = kRed;
    rack.tor.pfc = Pfc{};
    std::vector<PathConfig> paths;
    for (const uint64_t rate : path_gbps) paths.push_back({{.bits_per_s = rate * kGbps, .delay = kCableDelay}, {}});
    racks = parallel_paths(network, rack, paths);
}

double goodput(Network& network, const std::deque<Flow>& flows, Time time) {
    const auto bytes = [&] {
        uint64_t sum = 0;
        for (const Flow& flow : flows) sum += flow.completed_bytes();
        return sum;
    };
    const uint64_t before = bytes();
    network.run_for(time);
    check_conservation(network);
    return gbps(bytes() - before, time);
}

}  // namespace rove::sim
