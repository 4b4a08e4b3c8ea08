// SPDX-License-Identifier: Apache-2.0
// Compares queues with theory: waiting times of M/M/1 and M/D/1, and Little's law. Also compares traces with recorded
// hashes, so that no change goes unnoticed.
#include <algorithm>
#include <cmath>

#include "fabric/audit.h"
#include "fabric/flow.h"
#include "fabric/probe.h"
#include "fabric/topology.h"

namespace rove::fabric {
namespace {

// A link at which packets arrive as a Poisson process, and their waiting times.
struct PoissonQueue {
    // The load is the load of the link, including gaps. Packet sizes are exponential with the given mean, or constant.
    PoissonQueue(double load, uint32_t mean_bytes, bool exponential, uint64_t seed)
        : random(seed, 1), mean_bytes(mean_bytes), exponential(exponential) {
        link = &network.connect(a, b, {.bits_per_s = kRate, .delay = kMicrosecond}).forward;
        service = static_cast<double>(wire_time(mean_bytes, kRate));
        gap = service / load;
    }
    double draw_exponential(double mean) { return -mean * std::log(1 - random.uniform()); }
    void arrive() {
        uint32_t bytes = mean_bytes;
        // The gap on the wire belongs to the service time, so it is subtracted. A negative result becomes 1 byte.
        if (exponential) {
            const double all = draw_exponential(mean_bytes + kGapBytes);
            bytes = static_cast<uint32_t>(std::max(1.0, std::round(all - kGapBytes)));
        }
        sent.push_back(network.now());
        sizes.push_back(bytes);
        a.send(b, bytes, sent.size() - 1);
        next += draw_exponential(gap);
        network.at(static_cast<Time>(next), [this] { arrive(); });
    }
    void run(uint32_t packets) {
        arrive();
        network.run_until(static_cast<Time>(packets * gap));
    }
    // Returns the waiting times before transmission, for the packets that have arrived.
    std::vector<double> waits() const {
        std::vector<double> all;
        for (const Probe::Arrival& arrival : b.arrivals) {
            const Time sending = wire_time(sizes[arrival.id], kRate);
            all.push_back(static_cast<double>(arrival.time - kMicrosecond - sending - sent[arrival.id]));
        }
        return all;
    }

    Network network;
    Probe& a = network.add<Probe>();
    Probe& b = network.add<Probe>();
    Link* link;
    Random random;
    uint32_t mean_bytes;
    bool exponential;
    double service, gap, next = 0;
    std::vector<Time> sent;
    std::vector<uint32_t> sizes;
};

double mean(const std::vector<double>& values) {
    double sum = 0;
    for (const double value : values) sum += value;
    return sum / static_cast<double>(values.size());
}

TEST(Waiting, is_that_of_a_queue_with_exponential_service) {
    // W = rho / (1 - rho) service times; P(wait > t) = rho exp(-(1 - rho) t / service). With a mean of 4000 bytes, one
    // packet in 200 would have been shorter than the gap.
    for (const double load : {0.5, 0.7, 0.9}) {
        PoissonQueue queue(load, 4000, true, 11);
        queue.run(100'000);
        const std::vector<double> waits = queue.waits();
        const double theory = load / (1 - load) * queue.service;
        EXPECT_NEAR(mean(waits), theory, (load > 0.8 ? 0.1 : 0.03) * theory) << load;
        for (const double services : {0.0, 1.0, 3.0}) {
            const double expected = load * std::exp(-(1 - load) * services);
            const auto longer =
                std::ranges::count_if(waits, [&](double wait) { return wait > services * queue.service; });
            EXPECT_NEAR(static_cast<double>(longer) / static_cast<double>(waits.size()), expected, 0.02) << load;
        }
    }
}

TEST(Waiting, is_half_of_that_with_constant_service) {
    // Pollaczek-Khinchine: W = rho / (2 (1 - rho)) service times.
    for (const double load : {0.5, 0.7, 0.9}) {
        PoissonQueue queue(load, 1000, false, 12);
        queue.run(100'000);
        const double theory = load / (2 * (1 - load)) * queue.service;
        EXPECT_NEAR(mean(queue.waits()), theory, (load > 0.8 ? 0.08 : 0.03) * theory) << load;
    }
}

TEST(Waiting, agrees_with_what_the_link_counts_and_with_the_law_of_little) {
    PoissonQueue queue(0.8, 1000, false, 13);
    Network& network = queue.network;
    uint64_t samples = 0, sampled = 0;
    std::function<void()> sample = [&] {
        ++samples;
        sampled += queue.link->queued_packets();
        network.at(network.now() + 777 * kNanosecond, sample);
    };
    sample();
    QueueSamples queue_bytes(network, {queue.link}, kMicrosecond);
    queue.run(100'000);
    // The sum over the packets equals the sum that the link counts.
    const std::vector<double> waits = queue.waits();
    const double counted = static_cast<double>(queue.link->waited());
    double of_packets = mean(waits) * static_cast<double>(waits.size());
    EXPECT_NEAR(of_packets, counted, 1e-3 * counted) << "those that are under way are in one of them only";
    // L = lambda W: the mean number of packets in the queue is the rate times the waiting time.
    const double length = static_cast<double>(sampled) / static_cast<double>(samples);
    EXPECT_NEAR(length, counted / static_cast<double>(network.now()), 0.02 * length);
    EXPECT_NEAR(queue_bytes.mean_bytes() / 1000, length, 0.03 * length);
    // For M/D/1 at 0.8, the queue before the link is empty with P(0) + P(1) = (1 - rho) e^rho = 44.5 % of the time.
    EXPECT_EQ(queue_bytes.percentile_bytes(43), 0u);
    EXPECT_EQ(queue_bytes.percentile_bytes(46), 1000u);
    check_conservation(network);
}

// A hash of all trace events on all links, in their order.
class TraceHash {
  public:
    explicit TraceHash(Network& network) {
        network.world().trace = [this, &network](TraceEvent what, const Link& link, const Packet& packet) {
            for (const uint64_t value : {network.now(), static_cast<uint64_t>(what), uint64_t{link.from().index()},
                                         uint64_t{link.to().index()}, uint64_t{packet.bytes}}) {
                hash_ = mix(hash_ ^ value) + 0x9E3779B97F4A7C15;
            }
        };
    }
    uint64_t value() const { return hash_; }

  private:
    uint64_t hash_ = 0;
};

// With `large`, the scheduler takes the network for a large one, and prefetches coming events.
uint64_t permutation_hash(uint64_t seed, bool multipath, Carry carry, Balancer balancer = Balancer::kEcmp,
                          bool large = false) {
    Network network(seed, carry);
    LeafSpineConfig config{.leaves = 4, .spines = 2, .rack = {.hosts = 4}};
    config.rack.tor.red = config.spine.red = {1.0, 30'000, 30'000};
    config.rack.tor.pfc = config.spine.pfc = Pfc{};
    config.rack.tor.balancer = config.spine.balancer = balancer;
    const LeafSpine clos = leaf_spine(network, config);
    if (large) network.world().events.expect(1e15);
    const TraceHash hash(network);
    std::deque<Flow> flows;
    for (const auto& [from, to] : permutation(clos, network.world().new_stream()))
        flows.emplace_back(network, *from, *to, FlowConfig{.qp = {.multipath = multipath}}).start();
    network.run_until(500 * kMicrosecond);
    check_conservation(network);
    return hash.value();
}

// A change of the network's behaviour changes these numbers, intended or not. After an intended change, check the
// figures of apps/sim again, and then put the new numbers here.
TEST(GoldenTrace, of_switches_and_links) {
    Network network(5);
    std::vector<Switch*> spines;
    for (int i = 0; i < 3; ++i)
        spines.push_back(&network.add_switch({.buffer_bytes = 200'000, .alpha = 1, .red = {0.5, 5000, 50'000}}));
    std::vector<Probe*> probes;
    for (int leaf = 0; leaf < 3; ++leaf) {
        Switch& tor = network.add_switch({.red = {0.5, 5000, 50'000}, .pfc = Pfc{20'000, 10'000}});
        for (Switch* spine : spines) network.connect(tor, *spine, {.bits_per_s = 20 * kGbps, .loss = 0.01});
        for (int i = 0; i < 4; ++i) {
            probes.push_back(&network.add<Probe>());
            network.connect(*probes.back(), tor, {});
        }
    }
    network.route();
    const TraceHash hash(network);
    Random random(2, 2);
    for (int i = 0; i < 400; ++i) {
        for (Probe* from : probes) {
            const uint64_t id = random.next();
            const auto bytes = static_cast<uint32_t>(64 + random.below(1000));
            from->send(*probes[random.below(probes.size())], bytes, id);
        }
    }
    network.run_until(kMillisecond);
    check_conservation(network);
    EXPECT_EQ(hash.value(), 0xD073BB39F6E1A315);
}

TEST(GoldenTrace, of_the_engine_by_mode) {
    EXPECT_EQ(permutation_hash(1, false, Carry::kHeaders), 0xF15C6FDF94B951FD);
    EXPECT_EQ(permutation_hash(2, false, Carry::kHeaders), 0x728F9F859C336F29);
    EXPECT_EQ(permutation_hash(1, true, Carry::kHeaders), 0xE0E0D5B0B3802FE3);
    EXPECT_EQ(permutation_hash(2, true, Carry::kHeaders), 0x2F492DD24C37F4F7);
    EXPECT_EQ(permutation_hash(1, true, Carry::kHeaders, Balancer::kDrill), 0x7452FA223635129D);
}

TEST(GoldenTrace, is_the_same_where_events_are_foreseen) {
    for (const Balancer balancer : {Balancer::kEcmp, Balancer::kDrill}) {
        EXPECT_EQ(permutation_hash(1, true, Carry::kHeaders, balancer, true),
                  permutation_hash(1, true, Carry::kHeaders, balancer));
    }
}

TEST(GoldenTrace, is_the_same_with_real_bytes) {
    EXPECT_EQ(permutation_hash(1, false, Carry::kBytes), permutation_hash(1, false, Carry::kHeaders));
    EXPECT_EQ(permutation_hash(1, true, Carry::kBytes), permutation_hash(1, true, Carry::kHeaders));
}

}  // namespace
}  // namespace rove::fabric
