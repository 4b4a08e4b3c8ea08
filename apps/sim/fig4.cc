// SPDX-License-Identifier: Apache-2.0
// MP-RDMA Fig. 4: the queue of a bottleneck under standard RED and under DCTCP's, and the fixed point of the model.
#include <cmath>

#include "experiments.h"
#include "fabric/audit.h"
#include "testbed.h"

namespace rove::sim {
namespace {

constexpr uint32_t kConnections = 8;
constexpr uint64_t kRate = 10 * kGbps;
constexpr Time kRtt = 100 * kMicrosecond;
constexpr Time kWarmUp = 100 * kMillisecond, kStep = 10 * kMicrosecond, kEnd = 300 * kMillisecond;
constexpr double kPMax = 0.8, kMin = 20, kMax = 200, kDctcp = 65;  // packets

constexpr uint32_t frame_bytes(uint32_t mtu) {
    return mtu + 86;
}

// Returns the queue, in packets, at which N windows of 2 (1 - F) / F (equation 1) equal the packets in flight, with F
// by equation 5. By equations 2 and 3 that is N W = C d + q. The paper's equation 4 has 2 q there, which counts the
// queue twice. The left side falls with the queue, so bisection finds it.
double fixed_point(uint32_t mtu, double queues) {
    const double cd = static_cast<double>(kRate) * seconds(kRtt) / 8 / (frame_bytes(mtu) + kGapBytes);
    double low = kMin, high = kMax;
    while (high - low > 1e-6) {
        const double q = (low + high) / 2, f = kPMax * (q - kMin) / (kMax - kMin);
        (2 * kConnections * (1 - f) / f > cd + queues * q ? low : high) = q;
    }
    return low;
}

struct Queue {
    double mean, deviation;  // packets
    double utilisation;
    std::vector<std::pair<double, double>> start;  // ms and packets of the first 5 ms that are measured
};

Queue run(uint64_t seed, uint32_t mtu, const Red& red) {
    Network network(seed);
    RackConfig rack{.hosts = kConnections + 1};
    rack.host.transport = mp_rdma(mtu);
    rack.host.transport.paths.vps = 1;
    // A lone packet and its ACK of 74 bytes cross two cables each.
    rack.access = {.bits_per_s = kRate, .delay = kRtt / 4 - (frame_bytes(mtu) + 74 + 2 * kGapBytes) * 400};
    const Rack made = single_switch(network, rack);
    const Link& bottleneck = made.access.back().backward;
    made.tor->set_red(bottleneck, red);

    std::deque<Flow> flows;
    for (uint32_t i = 0; i < kConnections; ++i) {
        const QpConfig qp{.multipath = true, .mtu = mtu};
        flows.emplace_back(network, *made.hosts[i], *made.hosts.back(), FlowConfig{.qp = qp}).start();
    }
    network.run_for(kWarmUp);
    Sampler sampler(network, kStep);
    const size_t queued = sampler.watch([&] { return bottleneck.queued_bytes(); });
    const uint64_t bytes = bottleneck.stats().sent_bytes, packets = bottleneck.stats().sent_packets;
    network.run_until(kEnd);
    check_conservation(network);

    Queue queue{};
    double squares = 0;
    for (size_t row = 0; row < sampler.rows(); ++row) {
        const double length = static_cast<double>(sampler.value(row, queued)) / frame_bytes(mtu);
        queue.mean += length;
        squares += length * length;
        if (row <= 5 * kMillisecond / kStep) queue.start.emplace_back(seconds(row * kStep) * 1000, length);
    }
    const auto rows = static_cast<double>(sampler.rows());
    queue.mean /= rows;
    queue.deviation = std::sqrt(squares / rows - queue.mean * queue.mean);
    const uint64_t wire =
        bottleneck.stats().sent_bytes - bytes + kGapBytes * (bottleneck.stats().sent_packets - packets);
    queue.utilisation = gbps(wire, kEnd - kWarmUp) / 10;
    return queue;
}

}  // namespace

Report fig4(uint64_t seed) {
    Report report;
    report.plot = {"MP-RDMA Fig. 4: queue before the bottleneck", "time, ms", "queue, packets", {}, {}};
    for (const uint32_t mtu : {1392u, kSmallMtu}) {
        const std::string of = mtu == kSmallMtu ? ", 1 KB" : ", 1.5 KB";
        const double frame = frame_bytes(mtu);
        const auto bytes = [&](double packets) { return static_cast<uint64_t>(packets * frame); };
        const Queue red = run(seed, mtu, {kPMax, bytes(kMin), bytes(kMax)});
        const Queue dctcp = run(seed, mtu, {1.0, bytes(kDctcp), bytes(kDctcp)});
        const double theory = fixed_point(mtu, 1), printed = fixed_point(mtu, 2);
        report.measures.insert(report.measures.end(),
                               {{"mean queue, standard RED" + of, "packets", red.mean},
                                {"the model's, equations 1, 2, 3, 5" + of, "packets", theory},
                                {"mean queue by the model's" + of, "", red.mean / theory},
                                {"the model's with equation 4 as it is printed" + of, "packets", printed},
                                {"deviation, standard RED" + of, "packets", red.deviation},
                                {"mean queue, DCTCP" + of, "packets", dctcp.mean},
                                {"deviation, DCTCP" + of, "packets", dctcp.deviation},
                                {"deviation, DCTCP by standard RED" + of, "", dctcp.deviation / red.deviation},
                                {"utilisation, standard RED" + of, "", red.utilisation},
                                {"utilisation, DCTCP" + of, "", dctcp.utilisation}});
        if (mtu == kSmallMtu) continue;
        report.plot.add("standard RED").points = red.start;
        report.plot.add("DCTCP").points = dctcp.start;
        report.plot.add("model").points = {{0, theory}, {5, theory}};
    }
    report.notes = {
        "The paper's number for the queue is a fixed point of its model, with packets as they are on the wire. Its "
        "equation 4 does not follow from 1 to 3: windows fill the path and the queue, N W = C d + q, but it sets q = N "
        "W "
        "- C R with R = d + q / C, and has the queue twice.",
        "The text has no number for the deviations: \"much larger\" is read as twice.",
        "Packets are the unit of K, as in the equations. Measured every 10 us from 0.1 to 0.3 s.",
    };
    return report;
}

}  // namespace rove::sim
