// SPDX-License-Identifier: Apache-2.0
// The start and end of the datapath, and the part that application threads have in its progress.
#include "runtime/runtime.h"

#include <pthread.h>
#include <rte_launch.h>
#include <rte_mbuf.h>
#include <rte_pause.h>
#include <sched.h>
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <functional>
#include <semaphore>
#include <system_error>
#include <thread>

#include "link/neighbour.h"
#include "port/ethdev/ethdev.h"
#include "port/factory/open_port.h"
#include "port/memif/link_port.h"
#include "port/port.h"
#include "port/port_name.h"
#include "runtime/capture.h"
#include "runtime/eal.h"
#include "runtime/fault_guard.h"
#include "runtime/interrupts.h"
#include "runtime/progress_thread.h"
#include "runtime/runtime_folder.h"
#include "runtime/telemetry.h"
#include "runtime/worker_core.h"

namespace rove::datapath {

namespace {

thread_local bool is_eal_thread = false;

constexpr uint32_t kFailuresBeforeYield = 8;  // tries; the driving thread may be preempted on our core
// Rounds without any packet, about 40 us, after which we yield the core, maybe to the peer. This is longer than a round
// trip to a running peer, so a ping-pong never pays for the system call.
constexpr uint32_t kEmptyRoundsBeforeYield = 1024;
constexpr uint32_t kPostTries = 256;          // about 3 us, several rounds of the driving thread
constexpr uint64_t kLetGoNs = 500'000'000;    // a preempted holder of a worker gets the core back within it
constexpr uint64_t kLingerNs = 50'000'000;    // a peer that shares our core gets several time slices to read
constexpr uint64_t kRestartNs = 500'000'000;  // time for the handshake of a started memif client
constexpr uint64_t kLinkNs = 5'000'000'000;   // time to negotiate a link: 0.5 s emulated, 2 to 4 s over copper

std::atomic_flag eal_used = ATOMIC_FLAG_INIT;

uint32_t allowed_cores() {
    cpu_set_t allowed;
    if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return std::max(std::thread::hardware_concurrency(), 1u);
    return static_cast<uint32_t>(CPU_COUNT(&allowed));
}

// Measures how long a dedicated worker has been idle. It counts rounds besides time, so time off the core does not
// count.
struct Idleness {
    static constexpr uint32_t kRounds = 10'000;  // about 1 ms

    bool lasts(uint64_t now_ns) const { return rounds >= kRounds && now_ns - since_ns >= ProgressThread::kRestNs; }

    uint64_t since_ns = 0;
    uint32_t rounds = 0;  // without any frame since then
};

// Makes rounds of a dedicated lcore until it has been idle for long, or another thread has to run: one that was woken,
// one that waited for the grace period, or one that waits with a control call, which goes first.
void make_rounds(Worker& worker, const Worker::Drive& drive, const ProgressThread& background, bool may_rest,
                 Idleness* idleness) {
    WorkerCore& core = worker.core(drive);
    bool goes_on = true;
    while (goes_on) {
        const bool moved = core.round() != 0;
        const uint64_t now_ns = core.received_ns();
        if (moved || idleness->rounds == 0) *idleness = {.since_ns = now_ns};
        ++idleness->rounds;
        const bool answered = worker.lock().end_round();
        goes_on = !core.consume_woke_waiter() && !answered && !worker.lock().wanted() && !background.stopped() &&
                  !(may_rest && idleness->lasts(now_ns));
    }
}

// The thread that waits for the worker may have no core but this one, and would otherwise get it only at the end of our
// time slice, after milliseconds. So we yield at once, which costs 0.2 us if no thread wants the core.
int poll_until_stopped(void* argument) {
    const auto& [runtime, background, index] =
        *static_cast<const std::tuple<Runtime*, ProgressThread*, size_t>*>(argument);
    Worker& worker = *runtime->workers()[index];
    // With several workers, each would sleep on the doorbells of the others' queues.
    const bool may_rest = runtime->all_ring() && runtime->workers().size() == 1;
    Idleness idleness;
    while (!background->stopped()) {
        if (const Worker::Drive drive(worker); drive) make_rounds(worker, drive, *background, may_rest, &idleness);
        if (may_rest && idleness.lasts(runtime->now_ns())) {
            background->rest();
            idleness = {};
        }
        sched_yield();
    }
    return 0;
}

// Connects the links of ports with the first worker. All QPs of such a port belong to it, because the port has one
// queue.
class RuntimeLinkObserver final : public LinkObserver {
  public:
    // The TX targets below `outlets` belong to ports.
    RuntimeLinkObserver(Runtime& runtime, uint16_t outlets) : runtime_(runtime), outlets_(outlets) {}
    std::optional<uint16_t> new_outlet() override {
        const std::lock_guard lock(mutex_);
        if (!free_.empty()) {
            const uint16_t outlet = free_.back();
            free_.pop_back();
            return outlet;
        }
        if (outlets_ == UINT16_MAX) return std::nullopt;
        return outlets_++;
    }
    void free_outlet(uint16_t outlet) override {
        const std::lock_guard lock(mutex_);
        free_.push_back(outlet);
    }
    void attach(Port& port, const LinkRings& link) override {
        Worker& worker = *runtime_.workers().front();
        const Worker::Hold hold(worker);
        worker.core(hold).add_link(port, link);
    }
    void detach(Port& port, const LinkRings& link) override {
        Worker& worker = *runtime_.workers().front();
        const Worker::Hold hold(worker);
        worker.core(hold).remove_link(port, link);
    }
    void ports_changed() override { runtime_.ports_changed(); }

  private:
    Runtime& runtime_;
    std::mutex mutex_;
    uint16_t outlets_;
    std::vector<uint16_t> free_;
};

}  // namespace

Runtime::Runtime(const Config& config, Listener& listener)
    : config_(config),
      listener_(listener),
      grace_period_(*this),
      queue_pairs_(Secret::random(), grace_period_),
      memory_(Secret::random(), grace_period_),
      cores_(allowed_cores()),
      progress_thread_(std::make_unique<ProgressThread>(*this)) {}

bool Runtime::may_start() {
    return !eal_used.test();
}

bool Runtime::on_eal_thread() {
    return is_eal_thread;
}

Runtime* Runtime::start(const Config& config, Listener& listener, std::string* error) {
    if (!may_start()) {
        *error = config.file + ": DPDK's EAL was already started in this process, and starts only once";
        return nullptr;
    }
    std::unique_ptr<Runtime> runtime(new Runtime(config, listener));
    // This thread, and those that EAL starts from it, must not receive the application's signals.
    sigset_t all, before;
    sigfillset(&all);
    // SIGSEGV and SIGBUS stay unblocked for faults of the thread itself, and SIGSYS because a sandbox may answer a
    // system call with it.
    for (const int signal : {SIGSEGV, SIGBUS, SIGSYS}) sigdelset(&all, signal);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    std::binary_semaphore opened(0);
    const auto run = [&opened, error, self = runtime.get()] {
        is_eal_thread = true;
        pthread_setname_np(pthread_self(), "rove");
        *error = self->open();
        const bool ok = error->empty();
        if (ok) self->launch();
        opened.release();
        if (ok) self->progress_thread_->run();
        self->close();
    };
    try {
        runtime->eal_thread_ = std::thread(run);
    } catch (const std::system_error& failure) {
        pthread_sigmask(SIG_SETMASK, &before, nullptr);
        *error = config.file + ": no thread for a start: " + failure.code().message();
        return nullptr;
    }
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    opened.acquire();
    if (error->empty()) return runtime.release();
    runtime->eal_thread_.join();
    return nullptr;
}

Runtime::~Runtime() = default;

void Runtime::stop() {
    progress_thread_->stop();
    eal_thread_.join();
}

void Runtime::after_fork_in_child() {
    in_forked_child_ = true;
    claims_.clear();  // they belong to the parent and must not outlive it
    for (const auto& port : ports_) port->after_fork_in_child();
    event_loop_.after_fork_in_child();
    watchers_.after_fork_in_child();
    leave_runtime_folder_in_child();
}

std::string Runtime::open() {
    std::string error;
    if (!event_loop_.is_open() || !has_descriptors(config_))
        return config_.file + ": no descriptors for a start: ulimit -n";
    for (const DeviceConfig& config : config_.devices) {
        std::optional<PortClaim> claim = PortClaim::take(config, &error);
        if (!claim) return config_.file + ": " + error;
        claims_.push_back(std::move(*claim));
    }
    const HugepageInitLock turn;
    if (!prepare_eal(config_, &error)) return error;
    eal_used.test_and_set();
    if (!start_eal(config_, &error)) return error;
    eal_started_ = true;
    clock_.start();
    const WorkerCore::Shared shared{clock_,     config_.transport, queue_pairs_,     memory_,
                                    time_wait_, listener_,         *progress_thread_};
    const uint32_t mbufs = pool_mbufs(config_);
    const uint32_t buffer_bytes = std::max(frame_room_bytes(largest_mtu(config_)), least_buffer_bytes(config_.devices));
    for (uint16_t index = 0; index < config_.workers; ++index) {
        const std::string name = "rove-" + std::to_string(index);
        pools_.push_back(rte_pktmbuf_pool_create(name.c_str(), mbufs, kPoolCacheMbufs, 0,
                                                 static_cast<uint16_t>(buffer_bytes + RTE_PKTMBUF_HEADROOM),
                                                 SOCKET_ID_ANY));
        if (pools_.back() == nullptr)
            return config_.file + ": no memory for " + std::to_string(mbufs) +
                   " packets a worker; allowed: more by EAL's -m";
        // With shared progress, the driving thread is EAL's main lcore, 0. Dedicated workers have lcores 1, 2, ..., the
        // numbers that eal_arguments() assigns.
        const unsigned lcore = config_.progress == Progress::kShared ? 0 : index + 1u;
        auto core = std::make_unique<WorkerCore>(shared, index, lcore, pools_.back());
        if (!core->init()) return config_.file + ": no memory for the rings of a worker; allowed: more by EAL's -m";
        workers_.push_back(std::make_unique<Worker>(std::move(core)));
    }
    for (const auto& worker : workers_) worker->core(Worker::Hold(*worker)).set_siblings(&workers_);
    link_user_ = std::make_unique<RuntimeLinkObserver>(*this, static_cast<uint16_t>(config_.devices.size()));
    for (DeviceConfig& config : config_.devices) {
        const PortEnvironment environment{event_loop_, *link_user_,  pools_.front(), frame_room_bytes(config.mtu),
                                          false,       grace_period_};
        std::unique_ptr<Port> port =
            open_port(static_cast<uint16_t>(ports_.size()), config, environment, pools_, &error);
        if (port == nullptr) return config_.file + ": " + error;
        ports_.push_back(std::move(port));
        all_ring_ &= ports_.back()->rings();
        interfaces_.push_back(std::make_unique<RdmaInterface>(
            *this, config, RdmaInterface::name_of(config, interfaces_.size()), *ports_.back()));
        for (const auto& worker : workers_)
            worker->core(Worker::Hold(*worker)).add_interface(*interfaces_.back(), *ports_.back(), config.impair);
    }
    return {};
}

bool Runtime::needs_polling() const {
    return std::any_of(ports_.begin(), ports_.end(), [](const auto& port) { return port->needs_polling(); });
}

void Runtime::launch() {
    for (const PortClaim& claim : claims_)
        if (claim.file() >= 0) event_loop_.add(claim.file(), [&claim] { claim.forget_questions(); });
    guard_interrupts([this](const std::function<void()>& callback) {
        {
            const std::lock_guard control(port_control_);
            const Pause pause(*this);
            callback();
        }
        ports_changed();
    });
    for (const auto& port : ports_) {
        const std::lock_guard control(port_control_);
        port->start();
        restarted_ns_.push_back(now_ns());
    }
    wait_for_links();
    start_telemetry(*this);
    if (config_.progress == Progress::kShared) return;
    for (size_t index = 0; index < workers_.size(); ++index) {
        lcore_arguments_.emplace_back(this, progress_thread_.get(), index);
        rte_eal_remote_launch(poll_until_stopped, &lcore_arguments_.back(), workers_[index]->lcore());
    }
}

// Programs check the port right after opening the device, and exit if it is down.
void Runtime::wait_for_links() {
    const auto is_down = [](const auto& port) { return port->negotiates_link() && !port->ready(); };
    for (const uint64_t until_ns = now_ns() + kLinkNs;
         std::any_of(ports_.begin(), ports_.end(), is_down) && now_ns() < until_ns;
         std::this_thread::sleep_for(std::chrono::milliseconds(10))) {
        const std::lock_guard control(port_control_);
        for (const auto& port : ports_) port->poll_link();
    }
    for (size_t i = 0; i < ports_.size(); ++i)
        if (is_down(ports_[i]))
            std::fprintf(stderr, "rove: port '%s' (%s) has no link after %lu s, and is down until it has one\n",
                         config_.devices[i].port.c_str(), interfaces_[i]->name().c_str(), kLinkNs / 1'000'000'000);
}

// Waits until no thread is inside a worker. Returns false if one stays: a thread that runs exit() in a signal handler,
// if the signal interrupted a round or a control call.
bool Runtime::wait_workers_idle() {
    for (const auto& worker : workers_) {
        for (const uint64_t until_ns = now_ns() + kLetGoNs; worker->lock().held();) {
            if (now_ns() > until_ns) return false;
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
    }
    return true;
}

// A program exits as soon as its own last completion is in. An ACK for the peer may still be in a ring that both share,
// and the ring ends with us, whereas a NIC would have sent the ACK. So the ports stay open until the peer had time to
// read it.
void Runtime::drain_before_exit() {
    const auto sent = [](const std::unique_ptr<Worker>& worker) {
        return worker->core(Worker::Hold(*worker)).engine().counters()[transport::Counter::kTxPackets] != 0;
    };
    run_one_round();  // work that was posted last may still wait for a round
    if (std::none_of(workers_.begin(), workers_.end(), sent)) return;
    for (const uint64_t until_ns = now_ns() + kLingerNs; now_ns() < until_ns;) {
        run_one_round();
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
}

void Runtime::close() {
    if (!eal_started_) return;
    rte_eal_mp_wait_lcore();
    for (const auto& worker : workers_) worker->lock().block_drivers();
    // If a thread stays inside, nothing may be touched, and the peers see the same as after a kill.
    if (wait_workers_idle()) {
        drain_before_exit();
        stop_telemetry();
        silence_interrupts();
        const std::lock_guard control(port_control_);
        // A thread that was already past the check ends its round before this, or begins it later and finds that no
        // port is ready.
        const Pause pause(*this);
        for (const auto& worker : workers_) worker->core(pause).set_capture(nullptr);
        capture_.reset();
        for (const auto& port : ports_) port->close();
    }
    // EAL's memory stays until the process ends, because EAL's own threads cannot be stopped and may still use it.
    remove_runtime_folder();
}

uint16_t Runtime::choose_worker(const RdmaInterface& interface) {
    return static_cast<uint16_t>(next_worker_.fetch_add(1, std::memory_order_relaxed) %
                                 std::min<size_t>(workers_.size(), interface.queues()));
}

Runtime::Pause::Pause(Runtime& runtime) : runtime_(runtime) {
    for (const auto& worker : runtime_.workers_) worker->lock().lock();
}

Runtime::Pause::~Pause() {
    for (const auto& worker : runtime_.workers_) worker->lock().unlock();
}

// The thread in a round may share our core, so spinning alone would last until its time slice ends.
void Runtime::Rounds::wait() {
    constexpr uint32_t kSpinsBeforeYield = 64;  // about 1 us
    std::vector<uint32_t> asked;
    for (const auto& worker : runtime_.workers_) asked.push_back(worker->lock().ask());
    for (size_t i = 0; i < asked.size(); ++i) {
        for (uint32_t spins = 0; !runtime_.workers_[i]->lock().has_ended(asked[i]);) {
            if (++spins % kSpinsBeforeYield == 0) sched_yield();
            rte_pause();
        }
    }
}

void Runtime::post(transport::QueuePair& qp) {
    Worker& worker = *workers_[qp.worker];
    if (config_.progress == Progress::kDedicated) {
        worker.ring_doorbell(qp);
        progress_thread_->look_again();
        return;
    }
    progress_thread_->on_application_call();
    if (const Worker::Drive drive(worker); drive) [[likely]] {
        worker.core(drive).send_posted(qp);
        return;
    }
    worker.ring_doorbell(qp);
    // The driving thread may have checked the doorbells before ours rang. It consumes ours in its next round, or we do
    // so after it. If neither happens soon, the progress thread is woken. If there are more threads than cores, the
    // driving thread may not be running.
    const bool crowded = is_oversubscribed();
    if (crowded) yield();
    for (uint32_t tries = 0; tries < (crowded ? 1 : kPostTries); ++tries) {
        if (!qp.doorbell.load(std::memory_order_relaxed)) return;
        if (const Worker::Drive drive(worker); drive) {
            worker.core(drive).send_posted(qp);
            return;
        }
        rte_pause();
    }
    progress_thread_->request_drive();
}

void Runtime::progress() {
    if (config_.progress == Progress::kDedicated) return;
    thread_local uint32_t failures = 0, empty_rounds = 0;
    progress_thread_->on_application_call();
    Worker& worker = *workers_.front();
    uint32_t moved = 0;
    {
        const Worker::Drive drive(worker);
        if (!drive) {
            if (++failures < kFailuresBeforeYield && !is_oversubscribed()) return rte_pause();
            failures = 0;
            yield();
            return;
        }
        moved = worker.core(drive).round();
    }
    failures = 0;
    empty_rounds = moved == 0 ? empty_rounds + 1 : 0;
    if (empty_rounds == kEmptyRoundsBeforeYield || (moved == 0 && is_oversubscribed())) {
        empty_rounds = 0;
        yield();
    }
}

void Runtime::run_one_round() {
    for (const auto& worker : workers_) {
        const Worker::Hold hold(*worker);
        worker->core(hold).round();
    }
}

void Runtime::yield() {
    yielding_.fetch_add(1, std::memory_order_relaxed);
    sched_yield();
    yielding_.fetch_sub(1, std::memory_order_relaxed);
}

void Runtime::hand_over() {
    if (config_.progress == Progress::kShared) progress_thread_->hand_over();
}

void Runtime::solicit(RdmaInterface& interface, const wire::Gid& neighbour) {
    Worker& worker = *workers_.front();
    const Worker::Hold hold(worker);
    worker.core(hold).solicit(interface, neighbour);
}

void Runtime::wait_for_neighbour(RdmaInterface& interface, const wire::Gid& neighbour, int timeout_ms) {
    if (config_.progress == Progress::kDedicated) {
        interface.neighbours().wait(neighbour, timeout_ms);
        return;
    }
    // A neighbour that stays silent for longer may lack a core that we would keep busy.
    constexpr uint64_t kBusyNs = 2'000'000;
    const uint64_t begun_ns = now_ns(), until_ns = begun_ns + static_cast<uint64_t>(timeout_ms) * 1'000'000;
    do {
        progress();
        const bool naps = now_ns() - begun_ns >= kBusyNs;
        if (interface.neighbours().wait(neighbour, naps ? 1 : 0)) return;
        sched_yield();
    } while (now_ns() < until_ns);
}

std::string Runtime::impair(const RdmaInterface& interface, std::optional<uint32_t> path, std::string_view changes) {
    for (const auto& worker : workers_) {
        const Worker::Hold hold(*worker);
        // All workers accept or refuse the same changes.
        if (std::string wrong = worker->core(hold).impair(interface.port(), path, changes); !wrong.empty())
            return wrong;
    }
    return {};
}

std::vector<PathState> Runtime::impaired_paths(const RdmaInterface& interface) const {
    std::vector<PathState> states;
    for (const auto& worker : workers_) {
        const Worker::Hold hold(*worker);
        const Impairment* impairment = worker->core(hold).impairment(interface.port());
        if (impairment == nullptr) continue;
        states.resize(impairment->paths().size());
        for (size_t i = 0; i < states.size(); ++i) states[i].add(impairment->paths()[i].state());
    }
    return states;
}

std::string Runtime::capture(const std::string& file) {
    if (capture_ != nullptr) return "a capture is already being written";
    std::vector<std::string> names;
    for (const auto& interface : interfaces_) names.push_back(interface->name());
    std::string error;
    capture_ = Capture::start(file, names, &error);
    const Pause pause(*this);
    for (const auto& worker : workers_) worker->core(pause).set_capture(capture_.get());
    return error;
}

void Runtime::set_port(const RdmaInterface& interface, bool up) {
    const auto owner =
        std::find_if(ports_.begin(), ports_.end(), [&](const auto& port) { return port->id() == interface.port(); });
    Port& port = **owner;
    {
        const std::lock_guard control(port_control_);
        port.hold(!up);
    }
    if (up) return ports_changed();  // housekeeping starts it
    { const Pause barrier(*this); }  // no worker is inside the port any more
    const std::lock_guard control(port_control_);
    port.stop();
}

void Runtime::set_mode(transport::Mode mode) {
    const Pause pause(*this);
    config_.transport.mode = mode;
    for (const auto& worker : workers_) worker->core(pause).engine().set_mode(mode);
}

void Runtime::ports_changed() {
    event_loop_.ring();  // the thread that sleeps has not unmasked the doorbells of a new link
    progress_thread_->schedule_port_check();
}

void Runtime::guard_memory() {
    FaultGuard::install();
}

void Runtime::housekeeping() {
    if (memory_.in_use()) guard_memory();  // the program may have set a handler of its own
    for (size_t i = 0; i < ports_.size(); ++i) {
        Port& port = *ports_[i];
        RdmaInterface& interface = *interfaces_[i];
        if (port.wants_restart(now_ns() - restarted_ns_[i] >= kRestartNs)) {
            { const Pause barrier(*this); }  // workers skip a port that is not ready; now none is inside it
            const std::lock_guard control(port_control_);
            port.restart();
            restarted_ns_[i] = now_ns();
        }
        if (const auto addresses = port.take_addresses()) {
            const bool changed = [&] {
                const Pause pause(*this);
                return interface.set_addresses(*addresses);
            }();
            if (changed) listener_.port_event(IBV_EVENT_GID_CHANGE, interface);
        }
        const bool link_changed = [&] {
            const std::lock_guard control(port_control_);
            return port.poll_link();
        }();
        if (link_changed) {
            event_loop_.ring();
            if (port.has_carrier())
                listener_.port_event(port.ready() ? IBV_EVENT_PORT_ACTIVE : IBV_EVENT_PORT_ERR, interface);
            if (port.ready() && !port.resolves_neighbours()) {
                const Worker::Hold hold(*workers_.front());
                workers_.front()->core(hold).announce(interface);
            }
        }
    }
}

}  // namespace rove::datapath
