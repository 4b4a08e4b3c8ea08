// SPDX-License-Identifier: Apache-2.0
// Thousands of random worlds, each from its seed. ROVE_SEED=N runs one, with ROVE_SEEDS=M that many from there on (or
// from 1), and ROVE_TRACE=1 prints their packets. tests/sim/soak runs them without end.
#include <cstdio>
#include <cstdlib>

#include "world.h"

namespace rove::test {
namespace {

constexpr uint64_t kSeeds = 3000, kMultipathSeeds = 2000;

uint64_t environment(const char* name) {
    const char* value = std::getenv(name);
    return value != nullptr ? std::strtoull(value, nullptr, 0) : 0;
}

void print(const std::vector<Observed>& trace) {
    for (const Observed& p : trace) {
        const wire::Headers& h = p.headers;
        std::printf("%12.3f us  host %u  qp %06x  op %02x  psn %8u %s payload %5u  ", static_cast<double>(p.time) / 1e3,
                    p.from, h.bth.dest_qpn, h.bth.opcode, h.bth.psn, h.bth.ack_req ? "A" : " ", p.payload_bytes);
        if (wire::opcode_info(h.bth.opcode).extensions & wire::kHasAeth)
            std::printf("aeth %02x %u", h.aeth.syndrome, h.aeth.msn);
        if (wire::opcode_info(h.bth.opcode).extensions & wire::kHasReth) std::printf("reth length %u", h.reth.length);
        const uint16_t extensions = wire::opcode_info(h.bth.opcode).extensions;
        if (extensions & wire::kHasMpeth)
            std::printf(" path %04x msn %u ipsn %u%s%s%s", h.vp, h.mp.msn, h.mp.ipsn,
                        h.mp.response() ? " response" : "", h.mp.retx() ? " again" : "", h.mp.last() ? " last" : "");
        if (extensions & wire::kHasMpaeth)
            std::printf(" path %04x kind %d %02x aack %u room %u more %u%s", h.mp_ack.entry.vp,
                        static_cast<int>(h.mp_ack.entry.kind), h.mp_ack.syndrome, h.mp_ack.aack_psn, h.mp_ack.room,
                        h.mp_ack.more, h.mp_ack.entry.response ? " response" : "");
        std::printf("\n");
    }
}

void run_worlds(uint64_t seeds_by_default, bool multipath) {
    const uint64_t only = environment("ROVE_SEED"), many = environment("ROVE_SEEDS");
    const bool trace = environment("ROVE_TRACE") != 0;
    const uint64_t first = only != 0 ? only : 1;
    const uint64_t end = first + (many != 0 ? many : only != 0 ? 1 : seeds_by_default);
    int failed = 0, parts = 0;
    for (uint64_t seed = first; seed != end && failed < 10; ++seed) {
        SCOPED_TRACE("seed " + std::to_string(seed));
        World world(seed, multipath);
        world.network().keep_trace = trace;
        world.run();
        if (trace) print(world.network().trace);
        const auto* result = ::testing::UnitTest::GetInstance()->current_test_info()->result();
        if (result->total_part_count() == parts) continue;
        parts = result->total_part_count();
        ++failed;
        std::printf("repeat with: ROVE_SEED=%llu worlds_test --gtest_filter=%s\n",
                    static_cast<unsigned long long>(seed), multipath ? "*many_paths" : "*promises");
        std::fflush(stdout);
    }
}

TEST(RandomWorlds, keep_what_verbs_promises) {
    run_worlds(kSeeds, false);
}

TEST(RandomWorlds, keep_it_over_many_paths) {
    run_worlds(kMultipathSeeds, true);
}

}  // namespace
}  // namespace rove::test
