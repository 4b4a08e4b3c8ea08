// SPDX-License-Identifier: Apache-2.0
// The datapath of a process: EAL, ports, workers and the tables that they share. Units: nanoseconds, bytes.
#pragma once

#include <atomic>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <tuple>
#include <vector>

#include "port/event_loop.h"
#include "port/factory/port_claim.h"
#include "runtime/clock.h"
#include "runtime/config.h"
#include "runtime/rdma_interface.h"
#include "runtime/watch.h"
#include "runtime/worker.h"
#include "transport/memory.h"
#include "transport/qp_table.h"
#include "transport/quiescence.h"
#include "transport/time_wait.h"

struct rte_mempool;

namespace rove::datapath {

class ProgressThread;
class Capture;
class LinkObserver;
class Port;

// The layer above the datapath. Workers call it, but rarely: only for armed CQs and asynchronous events. It must not
// block, and must not call back into the datapath.
class Listener {
  public:
    virtual ~Listener() = default;
    virtual void notify(transport::CompletionQueue& cq) = 0;
    virtual void event(ibv_event_type event, transport::QueuePair& qp) = 0;
    virtual void event(ibv_event_type event, transport::CompletionQueue& cq) = 0;
    virtual void event(ibv_event_type event, transport::SharedRecvQueue& srq) = 0;
    // Reports PORT_ACTIVE, PORT_ERR or GID_CHANGE.
    virtual void port_event(ibv_event_type event, const RdmaInterface& interface) = 0;
};

class Runtime {
  public:
    // Initialises EAL in a thread of its own, so that the caller's affinity stays as it is, opens the ports and starts
    // the workers. On failure returns null and stores the reason in `*error` (file, key, value, allowed values). The
    // runtime is never destroyed: see stop().
    static Runtime* start(const Config& config, Listener& listener, std::string* error);
    // Returns false once EAL has been started, even if that failed, because it can be started only once per process. A
    // start that fails earlier, for example for lack of descriptors, may be tried again.
    static bool may_start();
    ~Runtime();  // only of a runtime that did not start

    // Stops the datapath at process exit: sends what the peers still wait for, closes the ports and removes EAL's
    // files. Application threads may be inside any call, and may make more calls until the process has ended. Therefore
    // everything stays in memory, but no packets are processed any more. Control calls still take effect and return.
    void stop();

    // Disables the datapath in a child that inherited it. The child must not use it, because the ports' rings and the
    // packet pool are shared with the parent, and the workers' locks may be held forever.
    void after_fork_in_child();
    bool in_forked_child() const { return in_forked_child_; }

    const std::vector<std::unique_ptr<RdmaInterface>>& interfaces() const { return interfaces_; }
    transport::QueuePairTable& queue_pairs() { return queue_pairs_; }
    transport::MemoryTable& memory() { return memory_; }
    // Returns true on EAL's main thread, which later is the progress thread. While drivers probe their hardware on it,
    // calls come from DPDK and not from the program.
    static bool on_eal_thread();
    // Makes sure that faults in unmapped memory reach our handlers (fault_guard.h). Called for each registration.
    static void guard_memory();

    // Returns the worker for a new QP of this interface, for QueuePair::worker. It chooses the workers that have a TX
    // queue of their own in turn.
    uint16_t choose_worker(const RdmaInterface& interface);
    Worker& worker_of(const transport::QueuePair& qp) { return *workers_[qp.worker]; }

    // Stops all workers during its lifetime, to change data that workers read and that cannot be replaced while they
    // run.
    class Pause final : public transport::AllWorkersQuiesced {
      public:
        explicit Pause(Runtime& runtime);
        ~Pause();

      private:
        Runtime& runtime_;
    };

    // Ends when each worker has ended its current round. A thread that is in a round or holds a worker must not wait
    // for it.
    transport::GracePeriod& grace_period() { return grace_period_; }

    // Called by ibv_post_send after it has published the request in qp.sq. Rings the doorbell that has the QP's
    // priority and, with shared progress, drives the worker if no other thread does.
    void post(transport::QueuePair& qp);
    // Called by ibv_poll_cq if its CQ is empty, and every so often if it is not. With shared progress, drives the first
    // worker for one round.
    void progress();
    // Makes one round of each worker, with dedicated progress too, so that all earlier posts have been sent.
    void run_one_round();
    // Returns true if threads that want to make progress wait for a core. Then it is better to yield than to spin.
    bool is_oversubscribed() const { return yielding_.load(std::memory_order_relaxed) >= cores_; }
    // Yields the core to other threads.
    void yield();
    // Makes the progress thread drive from now on, with shared progress: the program is about to sleep in a call that
    // rove does not see.
    void hand_over();
    // Returns true if a thread of the program that sleeps has to receive frames itself, and can do so with a Watch.
    bool can_watch() const { return config_.progress == Progress::kShared && all_ring_ && !in_forked_child_; }

    // Changes the fault injection for frames that `interface` receives: for one path, or for all paths and frames of no
    // path. `changes` are "key=value,..." with the keys of [[device.impair.path]]. Returns "", or a description of the
    // error. Any thread may call it.
    std::string impair(const RdmaInterface& interface, std::optional<uint32_t> path, std::string_view changes);

    // Returns the state of the paths of `interface`, then the state for frames of no path. Returns nothing if there is
    // no fault injection.
    std::vector<PathState> impaired_paths(const RdmaInterface& interface) const;

    // Writes the frames that all ports send and receive from now on to `file`, as pcapng. May be called once. Returns
    // "", or the reason for a failure.
    std::string capture(const std::string& file);

    // Stops the port of `interface` as if its cable were pulled, or starts it again. Must not be called on a worker.
    void set_port(const RdmaInterface& interface, bool up);

    // Sets the mode of RC QPs that are connected from now on, as [transport] mode does at the start. Must not be called
    // on a worker.
    void set_mode(transport::Mode mode);

    uint64_t now_ns() const { return clock_.now_ns(); }

    // For lib/runtime.
    const Config& config() const { return config_; }
    const std::vector<std::unique_ptr<Worker>>& workers() const { return workers_; }
    // Sends a question for the MAC of `neighbour`. The second function waits for the answer, and drives the worker
    // meanwhile with shared progress.
    void solicit(RdmaInterface& interface, const wire::Gid& neighbour);
    void wait_for_neighbour(RdmaInterface& interface, const wire::Gid& neighbour, int timeout_ms);
    // Checks link states and restarts ports. Runs about every kHousekeepingNs on EAL's main thread.
    void housekeeping();
    void ports_changed();  // any thread: runs housekeeping() soon
    // Returns true if housekeeping has to poll, because a port does not report changes of its link.
    bool needs_polling() const;
    // Returns true if frames from every port ring the event loop's doorbells.
    bool all_ring() const { return all_ring_; }
    EventLoop& poller() { return event_loop_; }
    Watchers& watchers() { return watchers_; }
    ProgressThread& background() { return *progress_thread_; }
    // Held by the interrupt thread in a driver's callback, and while a port is restarted: both change the driver's
    // state.
    std::mutex& port_control() { return port_control_; }

  private:
    class Rounds final : public transport::GracePeriod {
      public:
        explicit Rounds(Runtime& runtime) : runtime_(runtime) {}
        void wait() override;

      private:
        Runtime& runtime_;
    };

    Runtime(const Config& config, Listener& listener);
    std::string open();  // on EAL's main thread, as the functions below; returns "" or the error
    void launch();
    void wait_for_links();
    bool wait_workers_idle();
    void drain_before_exit();
    void close();

    Config config_;  // transport.mode changes while no worker runs
    Listener& listener_;
    Clock clock_;
    bool in_forked_child_ = false;
    bool eal_started_ = false;
    std::vector<PortClaim> claims_;    // same order as ports_
    std::vector<rte_mempool*> pools_;  // one per worker
    EventLoop event_loop_;
    Watchers watchers_;
    std::vector<std::unique_ptr<Port>> ports_;  // same order as interfaces_
    bool all_ring_ = true;
    std::unique_ptr<LinkObserver> link_user_;  // for ports with links
    std::vector<uint64_t> restarted_ns_;       // same order as ports_
    std::unique_ptr<Capture> capture_;
    std::vector<std::unique_ptr<RdmaInterface>> interfaces_;
    std::vector<std::unique_ptr<Worker>> workers_;
    Rounds grace_period_;
    transport::QueuePairTable queue_pairs_;
    transport::MemoryTable memory_;
    transport::TimeWaitTable time_wait_;
    std::atomic<size_t> next_worker_{0};
    const uint32_t cores_;               // cores that this process may use
    std::atomic<uint32_t> yielding_{0};  // threads inside yield(); relaxed, as a hint
    std::list<std::tuple<Runtime*, ProgressThread*, size_t>> lcore_arguments_;
    std::mutex port_control_;
    std::unique_ptr<ProgressThread> progress_thread_;
    std::thread eal_thread_;
};

}  // namespace rove::datapath
