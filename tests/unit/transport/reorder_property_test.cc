// SPDX-License-Identifier: Apache-2.0
// Random sequences of packets over streams that share an arena, each from its seed, against the model. ROVE_SEEDS=N
// runs seeds 1..N, ROVE_SEED=N only that one.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <deque>

#include "support/random.h"
#include "transport/reorder_model.h"

namespace rove::test {
namespace {

constexpr uint64_t kSeeds = 1000;
constexpr Packet kNone = UINT64_MAX;

uint64_t environment(const char* name) {
    const char* value = std::getenv(name);
    return value != nullptr ? std::strtoull(value, nullptr, 0) : 0;
}

ReorderConfig random_config(Random& random, ReorderConfig::Kind kind) {
    ReorderConfig config{.kind = kind};
    config.block_slots = random.pick(16u, 16u, 16u, 32u, 64u);
    config.cap_slots = config.block_slots * random.pick(1u, 2u, 3u, 5u, 16u, 16u, 64u);
    config.arena_blocks = static_cast<uint32_t>(random.between(64, random.pick(80u, 300u, 2000u)));
    config.static_slots = random.pick(16u, 64u, 64u, 256u);
    EXPECT_EQ(invalid(config), nullptr);
    return config;
}

Slot random_slot(Random& random) {
    return random.pick(Slot::kReceived, Slot::kReceived, Slot::kTail, Slot::kTailWithCompletion);
}

// Both sides of the comparison. Every call checks that they agree.
class Worker {
  public:
    Worker(const ReorderConfig& config, size_t streams, Random& random)
        : config_(config), arena_(model_arena(config)), reorder_(config), random_(random), streams_(streams) {
        for (size_t i = 0; i < streams; ++i) {
            models_.emplace_back(config_, arena_, 0);
            restart(i);
        }
    }

    size_t size() const { return streams_.size(); }
    const ModelStream& model(size_t i) const { return models_[i]; }
    uint64_t packets = 0;

    void restart(size_t i) {
        models_[i].stop();
        std::destroy_at(&models_[i]);
        // More often than not, the sequence is near the wrap.
        const Packet first = (1u << 25) - random_.below(random_.chance(0.3) ? 1u << 24 : 600);
        std::construct_at(&models_[i], config_, arena_, first);
        reorder_.start(streams_[i], psn_of(first));
        check(i);
    }
    void stop(size_t i) {
        models_[i].stop();
        reorder_.stop(streams_[i]);
        ASSERT_EQ(reorder_.usage().blocks,
                  config_.kind == ReorderConfig::Kind::kStatic ? size() - ++stopped_ : arena_.used());
    }

    Arrival arrive(size_t i, Packet packet, Slot slot, bool last, Packet refused) {
        ++packets;
        ModelStream& model = models_[i];
        ReorderStream& stream = streams_[i];
        const Arrival arrival = reorder_.classify(stream, psn_of(packet));
        EXPECT_EQ(arrival, model.classify(packet)) << "packet " << packet << " expected " << model.expected();
        exhausted_ += arrival == Arrival::kExhausted;
        if (arrival == Arrival::kOutOfOrder) {
            model.track(packet, slot, last);
            reorder_.track(stream, psn_of(packet), slot, last);
        } else if (arrival == Arrival::kInOrder) {
            const Tails expected = model.advance(last, refused);
            size_t visited = 0;
            reorder_.advance(stream, last, [&](Psn psn, Slot visited_slot) {
                const bool known = visited < expected.size();
                EXPECT_TRUE(known);
                if (known) {
                    EXPECT_EQ(psn, psn_of(expected[visited].first));
                    EXPECT_EQ(visited_slot, expected[visited].second);
                }
                ++visited;
                return psn != psn_of(refused) || refused == kNone;
            });
            EXPECT_EQ(visited, expected.size());
        }
        check(i);
        return arrival;
    }

    void check(size_t i) {
        const ModelStream& model = models_[i];
        const ReorderStream& stream = streams_[i];
        ASSERT_EQ(stream.expected, psn_of(model.expected()));
        ASSERT_EQ(reorder_.degree(stream), model.degree());
        ASSERT_EQ(reorder_.bytes(stream), model.bytes());
        for (int n = 0; n < 3; ++n) {
            const Packet probe = model.expected() - 10 + random_.below(20 + model.degree());
            ASSERT_EQ(reorder_.is_received(stream, psn_of(probe)), model.is_received(probe)) << probe;
        }
        ASSERT_EQ(reorder_.usage().exhausted, exhausted_);
        if (config_.kind == ReorderConfig::Kind::kEunomia) {
            ASSERT_EQ(reorder_.usage().blocks, arena_.used());
            ASSERT_EQ(reorder_.usage().bytes, arena_.used() * config_.block_slots / 4);
        }
    }

  private:
    ReorderConfig config_;
    ModelArena arena_;
    Reorder reorder_;
    Random& random_;
    std::vector<ReorderStream> streams_;
    std::deque<ModelStream> models_;
    uint64_t exhausted_ = 0;
    size_t stopped_ = 0;
};

// Any packet at any time: mostly packets of an honest peer, and others.
void chaos(Random& random, ReorderConfig::Kind kind, uint64_t& packets) {
    const ReorderConfig config = random_config(random, kind);
    Worker worker(config, random.between(1, 12), random);
    const uint32_t spread = random.pick(4u, 20u, 100u, 300u, 3u * config.cap_slots);
    const double in_order = random.pick(0.2, 0.5, 0.8), last = random.pick(0.0, 0.01, 0.2);
    for (int step = 0; step < 2000 && !::testing::Test::HasFailure(); ++step) {
        const size_t i = random.below(worker.size());
        if (random.chance(0.002)) worker.restart(i);
        const Packet expected = worker.model(i).expected();
        Packet packet = expected;
        if (!random.chance(in_order)) packet = expected + 1 + random.below(spread);
        if (random.chance(0.03)) packet = expected - 1 - random.below(random.pick(3u, 1000u, 1u << 23));
        if (random.chance(0.01)) packet = expected + 1 + random.below((1u << 23) - 1);
        const Packet refused = random.chance(0.05) ? expected + 1 + random.below(spread) : kNone;
        worker.arrive(i, packet, random_slot(random), random.chance(last), refused);
    }
    for (size_t i = 0; i < worker.size(); ++i) worker.stop(i);
    packets += worker.packets;
}

// Whole transfers whose packets overtake each other by up to `degree`, one in `loss` lost: everything arrives in the
// end, in order, and the memory is freed.
void transfers(Random& random, ReorderConfig::Kind kind, uint64_t& packets) {
    const ReorderConfig config = random_config(random, kind);
    Worker worker(config, random.between(1, 8), random);
    const auto degree = static_cast<uint32_t>(random.pick(2u, 8u, 32u, 200u, 500u));
    const double loss = random.pick(0.0, 0.001, 0.05);
    std::vector<std::pair<uint64_t, std::pair<size_t, Packet>>> order;
    std::vector<Packet> ends;
    for (size_t i = 0; i < worker.size(); ++i) {
        const Packet first = worker.model(i).expected();
        const uint64_t length = random.between(1, 600);
        for (uint64_t n = 0; n < length; ++n) order.push_back({n + random.below(degree), {i, first + n}});
        ends.push_back(first + length);
    }
    while (!order.empty() && !::testing::Test::HasFailure()) {
        std::stable_sort(order.begin(), order.end(), [](auto& a, auto& b) { return a.first < b.first; });
        decltype(order) again;
        for (const auto& [time, at] : order) {
            const auto [i, packet] = at;
            const bool refused =
                random.chance(loss) || worker.arrive(i, packet, packet % 5 == 0 ? Slot::kTail : Slot::kReceived,
                                                     packet + 1 == ends[i], kNone) >= Arrival::kBeyond;
            if (refused) again.push_back({packet + random.below(degree), at});
        }
        order.swap(again);
    }
    for (size_t i = 0; i < worker.size(); ++i) {
        EXPECT_EQ(worker.model(i).expected(), ends[i]);
        EXPECT_EQ(worker.model(i).blocks(), 0u);
    }
    packets += worker.packets;
}

class RandomReorder : public ::testing::TestWithParam<ReorderConfig::Kind> {};

TEST_P(RandomReorder, EU1_EU3_EU5_behaves_like_a_set_of_packets) {
    const uint64_t only = environment("ROVE_SEED"), seeds = environment("ROVE_SEEDS");
    const uint64_t first = only != 0 ? only : 1;
    const uint64_t last = only != 0 ? only : seeds != 0 ? seeds : kSeeds;
    uint64_t packets = 0;
    for (uint64_t seed = first; seed <= last; ++seed) {
        Random random(seed);
        chaos(random, GetParam(), packets);
        transfers(random, GetParam(), packets);
        if (!HasFailure()) continue;
        std::printf("repeat with: ROVE_SEED=%llu transport_reorder_test\n", static_cast<unsigned long long>(seed));
        return;
    }
    std::printf("seeds %llu..%llu, %llu packets\n", static_cast<unsigned long long>(first),
                static_cast<unsigned long long>(last), static_cast<unsigned long long>(packets));
}

INSTANTIATE_TEST_SUITE_P(Reorder, RandomReorder,
                         ::testing::Values(ReorderConfig::Kind::kEunomia, ReorderConfig::Kind::kStatic),
                         [](const auto& info) {
                             return info.param == ReorderConfig::Kind::kStatic ? "static" : "eunomia";
                         });

}  // namespace
}  // namespace rove::test
