// SPDX-License-Identifier: Apache-2.0
// Measures the distance of two cores: in every interval, the round trip of a cache line between them.
//
//     core_distance [--cores A B] [--interval-ms MS]
//
// Prints lines "MONOTONIC_SECONDS ROUND_TRIP_NS" until it is ended. A hypervisor may move virtual cores while programs
// run: on the project's machine the round trip changes between 140 and 570 ns every few seconds, and all joint work of
// two cores then takes up to three times as long. bench/run compares only runs made at the same distance. It takes
// about 0.2 % of both cores, at real-time priority so that busy programs do not delay it.
#include <pthread.h>
#include <sched.h>
#include <time.h>

#include <CLI/CLI.hpp>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <stdexcept>
#include <thread>
#include <vector>

namespace {

constexpr uint32_t kRoundTrips = 64;         // per probe: 10-40 us
constexpr int64_t kPartnerWaitNs = 200'000;  // a probe ends without a result if the other core is later than this
constexpr int64_t kNsPerSecond = 1'000'000'000;

struct alignas(128) Line {  // 128: adjacent-line prefetch pairs cache lines
    std::atomic<uint64_t> value{0};
};
Line ping, pong;

int64_t now_ns() {
    timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * kNsPerSecond + t.tv_nsec;
}

void sleep_until(int64_t ns) {
    const timespec t{ns / kNsPerSecond, ns % kNsPerSecond};
    clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, nullptr);
}

void pin(int core) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(core, &set);
    if (pthread_setaffinity_np(pthread_self(), sizeof set, &set) != 0) throw std::runtime_error("no such core");
    const sched_param first{1};
    if (pthread_setschedparam(pthread_self(), SCHED_FIFO, &first) != 0)
        std::fprintf(stderr, "core_distance: no real-time priority, probes will be late\n");
}

bool wait_for(const Line& line, uint64_t value, int64_t deadline_ns) {
    // The load pairs with the stores of probe().
    for (uint32_t spins = 1; line.value.load(std::memory_order_acquire) != value; ++spins)
        if (spins % 1024 == 0 && now_ns() > deadline_ns) return false;
    return true;
}

// Both cores start probe k at the same time. The values of a probe differ from the values of an abandoned one.
void probe(bool first, int64_t at_ns, uint64_t k) {
    sleep_until(at_ns);
    const int64_t deadline = at_ns + kPartnerWaitNs;
    const uint64_t base = k * (kRoundTrips + 2);
    Line& mine = first ? ping : pong;
    const Line& other = first ? pong : ping;
    mine.value.store(base, std::memory_order_release);
    if (!wait_for(other, base, deadline)) return;
    const int64_t start = now_ns();
    for (uint64_t v = base + 1; v <= base + kRoundTrips; ++v) {
        if (first) mine.value.store(v, std::memory_order_release);
        if (!wait_for(other, v, deadline)) return;
        if (!first) mine.value.store(v, std::memory_order_release);
    }
    const int64_t end = now_ns();
    if (first)
        std::printf("%.3f %.0f\n", static_cast<double>(end) / kNsPerSecond,
                    static_cast<double>(end - start) / kRoundTrips);
}

}  // namespace

int main(int argc, char** argv) try {
    std::vector<int> cores{0, 1};
    int64_t interval_ms = 20;
    CLI::App app("Round trip of a cache line between two cores, over time");
    app.add_option("--cores", cores, "the two cores")->expected(2);
    app.add_option("--interval-ms", interval_ms, "from probe to probe")->check(CLI::Range(1, 10000));
    CLI11_PARSE(app, argc, argv);

    std::setvbuf(stdout, nullptr, _IOLBF, 0);
    const int64_t start = now_ns() + 10'000'000;  // both threads run at that time
    const auto run = [&](bool first) {
        pin(cores[first ? 0 : 1]);
        for (uint64_t k = 1;; ++k) probe(first, start + static_cast<int64_t>(k) * interval_ms * 1'000'000, k);
    };
    std::thread second(run, false);
    run(true);
} catch (const std::exception& error) {
    std::fprintf(stderr, "core_distance: %s\n", error.what());
    return 1;
}
