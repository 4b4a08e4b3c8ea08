// SPDX-License-Identifier: Apache-2.0
// The gate and the rotator. See slots.h.
#include "tent/qos/slots.h"

#include <pthread.h>
#include <sched.h>
#include <sys/prctl.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <ctime>

#include "base/no_signals.h"
#include "base/relaxed.h"
#include "tent/qos/slots_memory.h"

namespace rove::tent {

namespace {

constexpr uint64_t kSecond = 1'000'000'000;
constexpr uint64_t kPatienceNs = 5'000'000;  // interval at which the thread checks whether to stop or to take over
constexpr uint64_t kReapNs =
    50'000'000;  // maximum time for which the bytes of a dead process keep lower priorities out
// A process that wanted something within this time may want it again at any moment.
constexpr int64_t kLatelyNs = 100'000'000;
constexpr uint64_t kKeptNs = 200'000;  // time that the core is kept before it is left to others
// A process whose thread has not run for this long is stopped; it runs every kPatienceNs.
constexpr int64_t kStoppedNs = 100'000'000;
constexpr int32_t kSlots = 3;

void sleep_until(uint64_t ns) {
    const timespec until{.tv_sec = static_cast<time_t>(ns / kSecond), .tv_nsec = static_cast<long>(ns % kSecond)};
    clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, nullptr);
}

// Makes the thread keep to the edges of slots: without timer slack (50 us by default), and ahead of threads that poll.
// Without the permission for SCHED_FIFO it relies on the scheduler, which favours threads that have slept.
void be_punctual() {
    prctl(PR_SET_TIMERSLACK, 1UL);
    const sched_param first{.sched_priority = sched_get_priority_min(SCHED_FIFO)};
    pthread_setschedparam(pthread_self(), SCHED_FIFO, &first);
}

}  // namespace

Status Slots::open(const SlotConfig& config, std::unique_ptr<Slots>* out) {
    out->reset();
    if (config.shm_path.empty()) return {};
    SharedSlots* shared = nullptr;
    ProcessEntry* own = nullptr;
    if (Status joined = join_slots(config, &shared, &own); !joined.ok()) return joined;
    out->reset(new Slots(config, shared, own));
    return {};
}

Slots::Slots(const SlotConfig& config, SharedSlots* shared, ProcessEntry* own)
    : config_(config), shared_(shared), own_(own) {
    const NoSignals guard;
    thread_ = std::thread([this] { run(); });
}

Slots::~Slots() {
    stop_.store(true, kRelaxed);
    thread_.join();
    leave_slots(shared_, own_);
}

bool Slots::can_send(Priority priority, uint64_t now_ns) const {
    const uint8_t level = index(priority);
    if (level <= slot_at(now_ns)) return true;
    if (config_.strict) return false;
    // The acquire load pairs with the release of a process that joins: its entry is then complete.
    const uint32_t used = std::min(shared_->used.load(std::memory_order_acquire), SharedSlots::kProcesses);
    for (uint32_t i = 0; i < used; ++i) {
        const ProcessEntry& process = shared_->processes[i];
        if (process.pid.load(std::memory_order_acquire) == 0 || is_stopped(process, now_ns)) continue;
        for (uint8_t higher = 0; higher < level; ++higher) {
            if (process.pending[higher].load(kRelaxed) > 0) return false;
            // Signed, since another process may have read the clock after this one.
            const auto since = static_cast<int64_t>(now_ns - process.wanted_ns[higher].load(kRelaxed));
            if (since < static_cast<int64_t>(config_.interval_ns)) return false;
        }
    }
    return true;
}

void Slots::yield_core(uint64_t now_ns) {
    uint8_t ours = 0;  // highest priority that this process has in flight
    while (ours + 1 < kPriorities && own_->pending[ours].load(kRelaxed) == 0) ++ours;
    const Need need = others_need(ours, now_ns);
    if (need == Need::kNone) return;
    // In a slot that is closed to this process the core is of no use to it.
    const bool useless = need == Need::kNow && ours > slot_at(now_ns);
    if (!useless && now_ns - left_ns_.load(kRelaxed) < kKeptNs) return;
    const timespec shortest{0, 1};  // about 50 us with the timer slack that most threads have
    nanosleep(&shortest, nullptr);
    left_ns_.store(system_ns(), kRelaxed);
}

Slots::Need Slots::others_need(uint8_t ours, uint64_t now_ns) const {
    Need need = Need::kNone;
    const int core = sched_getcpu();
    const uint32_t used = std::min(shared_->used.load(std::memory_order_acquire), SharedSlots::kProcesses);
    for (uint32_t i = 0; i < used; ++i) {
        const ProcessEntry& process = shared_->processes[i];
        if (&process == own_ || process.pid.load(std::memory_order_acquire) == 0 || process.core.load(kRelaxed) != core)
            continue;
        if (is_stopped(process, now_ns)) continue;
        for (uint8_t higher = 0; higher < ours; ++higher) {
            if (process.pending[higher].load(kRelaxed) > 0) return Need::kNow;
            if (static_cast<int64_t>(now_ns - process.wanted_ns[higher].load(kRelaxed)) < kLatelyNs)
                need = Need::kLately;
        }
    }
    return need;
}

void Slots::add_pending(Priority priority, uint64_t bytes, uint64_t now_ns) {
    own_->pending[index(priority)].fetch_add(bytes, kRelaxed);
    touch(priority, now_ns);
}

void Slots::remove_pending(Priority priority, uint64_t bytes, uint64_t now_ns) {
    touch(priority, now_ns);
    own_->pending[index(priority)].fetch_sub(bytes, kRelaxed);
}

void Slots::touch(Priority priority, uint64_t now_ns) {
    if (priority == Priority::kLow) return;
    own_->wanted_ns[index(priority)].store(now_ns, kRelaxed);
    own_->core.store(sched_getcpu(), kRelaxed);
}

bool Slots::is_stopped(const ProcessEntry& process, uint64_t now_ns) const {
    // Signed, since its thread may have read the clock after this one.
    return &process != own_ && static_cast<int64_t>(now_ns - process.ran_ns.load(kRelaxed)) > kStoppedNs;
}

uint32_t Slots::current_slot() const {
    return slot_at(system_ns());
}

uint64_t Slots::rotations() const {
    return shared_->rotations.load(kRelaxed);
}
uint64_t Slots::takeovers() const {
    return shared_->takeovers.load(kRelaxed);
}

void Slots::run() {
    pthread_setname_np(pthread_self(), "tent-slots");
    be_punctual();
    while (!stop_.load(kRelaxed)) {
        own_->ran_ns.store(system_ns(), kRelaxed);
        const int result = pthread_mutex_trylock(&shared_->global_mutex);
        if (result == EOWNERDEAD) {
            // The rotator died. The mutex is the only thing that it held, and all that it wrote last is complete.
            pthread_mutex_consistent(&shared_->global_mutex);
            shared_->takeovers.fetch_add(1, kRelaxed);
        } else if (result != 0) {  // EBUSY: there is a rotator
            sleep_until(system_ns() + kPatienceNs);
            continue;
        }
        rotating_.store(true, kRelaxed);
        rotate();
        rotating_.store(false, kRelaxed);
        pthread_mutex_unlock(&shared_->global_mutex);
    }
}

void Slots::rotate() {
    uint64_t reaped_ns = 0, begun = 0;
    while (!stop_.load(kRelaxed)) {
        uint64_t now = system_ns();
        own_->ran_ns.store(now, kRelaxed);
        const uint64_t slot = now / config_.interval_ns;
        if (slot != begun) {
            shared_->current_slot.store(static_cast<int32_t>(slot % kSlots), kRelaxed);
            shared_->rotations.fetch_add(1, kRelaxed);
            begun = slot;
        }
        if (now - reaped_ns >= kReapNs) {
            free_dead_processes(*shared_);
            reaped_ns = now = system_ns();
        }
        sleep_until(std::min((slot + 1) * config_.interval_ns, now + kPatienceNs));
    }
}

}  // namespace rove::tent
