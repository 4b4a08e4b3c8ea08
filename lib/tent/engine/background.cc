// SPDX-License-Identifier: Apache-2.0
// See background.h.
#include "tent/engine/background.h"

#include <linux/futex.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <vector>

#include "base/no_signals.h"
#include "tent/engine/clock.h"
#include "tent/engine/shard.h"

namespace rove::tent {

namespace {

// How long completions may wait when the program stops driving. Each end of a nap takes the core from a program that
// does: at 500 us that cost it a tenth of its throughput where cores are few.
constexpr uint64_t kWatchNapNs = 4'000'000;
constexpr uint64_t kFirstNapNs = 20'000;  // the shortest sleep that is worth its two system calls
constexpr uint64_t kLastNapNs = 500'000;  // tasks are unfinished and nothing moves
constexpr uint64_t kTidyNs = 100'000'000;
// between two calls, on the average: longer, and the program does not drive
constexpr uint64_t kDrivingNs = 125'000;

}  // namespace

void Background::start(std::function<void()> tidy) {
    tidy_ = std::move(tidy);
    const NoSignals guard;
    thread_ = std::thread([this] { run(); });
}

void Background::stop() {
    if (!thread_.joinable()) return;
    stop_.store(true);
    wake();
    thread_.join();
}

void Background::wake() {
    if (asleep_.load(std::memory_order_seq_cst) == 0) return;
    if (core_.unfinished() == 0 && !stop_.load()) return;  // for example, when the submitter copied the memory itself
    if (asleep_.exchange(0, std::memory_order_seq_cst) != 0)
        syscall(SYS_futex, reinterpret_cast<uint32_t*>(&asleep_), FUTEX_WAKE_PRIVATE, 1, nullptr, nullptr, 0);
}

void Background::nap(uint64_t ns, bool until_woken) {
    const timespec time{static_cast<time_t>(ns / 1'000'000'000), static_cast<long>(ns % 1'000'000'000)};
    syscall(SYS_futex, reinterpret_cast<uint32_t*>(&asleep_), FUTEX_WAIT_PRIVATE, until_woken ? 1 : 0, &time, nullptr,
            0);
}

// Makes a round, unless the program drives the shard.
void Background::look_after(Shard& shard, Look& look, uint64_t now_ns) {
    const bool has_begun = look.had_nothing && shard.unfinished() != 0;
    if (now_ns < look.due_ns && !has_begun) return;
    const uint64_t seen = shard.drives();
    look.is_driven = (seen - look.drives) * kDrivingNs >= now_ns - look.looked_ns;
    look.drives = seen;
    look.looked_ns = now_ns;
    look.had_nothing = false;
    uint64_t deadline_ns = kNever;
    const bool moved = !look.is_driven && shard.background_round(&deadline_ns);
    if (look.is_driven) {
        look.nap_ns = kFirstNapNs;
        look.due_ns = now_ns + kWatchNapNs;
    } else if (shard.unfinished() == 0) {
        look.had_nothing = true;
        look.nap_ns = kFirstNapNs;
        look.due_ns = std::min(deadline_ns, now_ns + kTidyNs);
    } else {
        look.nap_ns = moved ? kFirstNapNs : std::min(look.nap_ns * 2, kLastNapNs);
        look.due_ns = now_ns + look.nap_ns;
    }
}

void Background::run() {
    prctl(PR_SET_NAME, "rove-tent");
    prctl(PR_SET_TIMERSLACK, 1);  // ns; the default of 50 us would double our shorter naps
    uint64_t tidied_ns = monotonic_ns();
    std::vector<Look> looks(core_.shards().size());
    const auto forget = [&](uint64_t now_ns) {
        for (size_t i = 0; i < looks.size(); ++i)
            looks[i] = {.drives = core_.shard(i).drives(), .looked_ns = now_ns, .nap_ns = kFirstNapNs};
    };
    forget(tidied_ns);
    while (!stop_.load()) {
        uint64_t now_ns = monotonic_ns();
        if (now_ns - tidied_ns >= kTidyNs) {
            tidied_ns = now_ns;
            tidy_();
        }
        uint64_t until_ns = now_ns + kTidyNs;
        bool is_driven = false;  // a program that drives does not have to wake us at every request
        for (size_t i = 0; i < looks.size(); ++i) {
            look_after(core_.shard(i), looks[i], now_ns);
            until_ns = std::min(until_ns, looks[i].due_ns);
            is_driven |= looks[i].is_driven;
        }
        now_ns = monotonic_ns();
        if (is_driven || core_.unfinished() != 0) {
            if (until_ns > now_ns) nap(until_ns - now_ns, false);
            continue;
        }
        asleep_.store(1, std::memory_order_seq_cst);
        if (core_.unfinished() == 0 && until_ns > now_ns && !stop_.load()) nap(until_ns - now_ns, true);
        asleep_.store(0, std::memory_order_seq_cst);
        // The submitter has posted its requests, too. This thread may have taken its core, so it gets time to show that
        // it drives.
        forget(monotonic_ns());
        if (core_.unfinished() != 0) nap(kFirstNapNs, false);
    }
}

}  // namespace rove::tent
