// SPDX-License-Identifier: Apache-2.0
// See clock.h.
#include "tent/engine/clock.h"

#include <rte_cycles.h>
#include <time.h>

#include <algorithm>

namespace rove::tent {

namespace {

constexpr uint64_t kStepTicks = 1 << 21;  // ticks between readings of the system's clock: 0.5 to 2 ms
constexpr uint64_t kReadTicks = 1 << 12;  // a reading that takes longer was interrupted
constexpr unsigned kShift = 32;

// A reading of the system's clock, and the rate at which it ran before.
struct Reading {
    uint64_t ticks = 0, ns = 0;
    uint64_t ns_per_tick = 0;  // shifted left by kShift; 0 while it is not known
    uint64_t told_ns = 0;      // the latest time that was returned before this reading

    uint64_t after(uint64_t passed) const { return std::max(told_ns, ns + (passed * ns_per_tick >> kShift)); }
    uint64_t renew(uint64_t now_ticks);
};

uint64_t Reading::renew(uint64_t now_ticks) {
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    const uint64_t now_ns = static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
    const uint64_t passed = now_ticks - ticks;
    told_ns = after(std::min(passed, kStepTicks));
    const bool interrupted = rte_rdtsc() - now_ticks > kReadTicks;
    if (!interrupted && passed >= kStepTicks) {
        if (ticks != 0)
            ns_per_tick = static_cast<uint64_t>((static_cast<unsigned __int128>(now_ns - ns) << kShift) / passed);
        ticks = now_ticks;
        ns = now_ns;
    }
    return std::max(told_ns, now_ns);
}

}  // namespace

uint64_t monotonic_ns() {
    thread_local Reading last;
    const uint64_t ticks = rte_rdtsc(), passed = ticks - last.ticks;
    if (passed < kStepTicks && last.ns_per_tick != 0) return last.after(passed);
    return last.renew(ticks);
}

}  // namespace rove::tent
