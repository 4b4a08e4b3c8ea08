// SPDX-License-Identifier: Apache-2.0
// The datapath of a process: EAL, ports, workers, and the tables they share. lib/verbs sees only this file,
// rdma_interface.h and worker.h. Units: nanoseconds, bytes.
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

// What workers tell the layer above. Called on a worker, rarely (armed CQs and asynchronous events only): must not
// block and must not call back into the datapath.
class Listener {
  public:
    virtual ~Listener() = default;
    virtual void notify(transport::CompletionQueue& cq) = 0;
    virtual void event(ibv_event_type event, transport::QueuePair& qp) = 0;
    virtual void event(ibv_event_type event, transport::CompletionQueue& cq) = 0;
    virtual void event(ibv_event_type event, transport::SharedRecvQueue& srq) = 0;
    // PORT_ACTIVE, PORT_ERR, GID_CHANGE.
    virtual void port_event(ibv_event_type event, const RdmaInterface& interface) = 0;
};

class Runtime {
  public:
    // Reads the configuration, initialises EAL in a thread of its own (the caller's affinity stays as it is), opens the
    // ports and starts the workers. On failure returns null and says why in `*error` (file, key, value, what is
    // allowed). Never destroyed: see stop().
    static Runtime* start(const Config& config, Listener& listener, std::string* error);
    // Returns false once EAL has been started, whether with success or not: that can be tried once in a process. A
    // start that fails before that, because there are no descriptors for it, say, may be tried again.
    static bool may_start();
    ~Runtime();  // of one that did not start

    // At process exit: sends what the peers still wait for, then closes the ports and removes EAL's files. Application
    // threads may be inside of any call, and make more until the process has ended: everything stays in memory, but
    // nothing moves any more. Control calls still change what they are told to, and end.
    void stop();

    // In a child that inherited the datapath. It must not be used from then on: the ports' rings and the packet pool
    // are shared with the parent, and the workers' locks may be held for ever.
    void after_fork_in_child();
    bool in_forked_child() const { return in_forked_child_; }

    const std::vector<std::unique_ptr<RdmaInterface>>& interfaces() const { return interfaces_; }
    transport::QueuePairTable& queue_pairs() { return queue_pairs_; }
    transport::MemoryTable& memory() { return memory_; }
    // Returns true on EAL's main thread, which is the background thread later. While drivers look for their hardware on
    // it, DPDK asks and not the program.
    static bool on_eal_thread();
    // At each registration: the faults of memory that has gone come to us (fault_guard.h).
    static void guard_memory();

    // The worker that shall own a new QP of this interface, for QueuePair::worker: each in turn that has a TX queue of
    // its own.
    uint16_t choose_worker(const RdmaInterface& interface);
    Worker& worker_of(const transport::QueuePair& qp) { return *workers_[qp.worker]; }

    // No worker runs while this lives. For what workers read and what cannot be changed under their eyes.
    class Pause final : public transport::AllWorkersQuiesced {
      public:
        explicit Pause(Runtime& runtime);
        ~Pause();

      private:
        Runtime& runtime_;
    };

    // Ends when each worker has ended the round that it is in now. Must not be waited for on a worker, or by who holds
    // one.
    transport::GracePeriod& grace_period() { return grace_period_; }

    // ibv_post_send, after publishing to qp.sq: hands the work to the worker through the ring of the QP's priority and,
    // with shared progress, drives the worker if nobody else does.
    void post(transport::QueuePair& qp);
    // ibv_poll_cq found its CQ empty (or every so often when not): with shared progress, drives the workers once.
    void progress();
    // A round of each worker, whoever drives it: what was posted before has gone out.
    void run_one_round();
    // Whether threads that want to make progress wait for a core: then it is better to give up one's own than to spin.
    bool is_oversubscribed() const { return yielding_.load(std::memory_order_relaxed) >= cores_; }
    // Gives up the core to whoever else wants it.
    void yield();
    // Makes the background thread drive from now on, with shared progress: the program is about to sleep in a call that
    // rove does not see.
    void hand_over();
    // Returns true if a thread of the program that sleeps has to receive frames itself, and can: by a Watch.
    bool can_watch() const { return config_.progress == Progress::kShared && all_ring_ && !in_forked_child_; }

    // Changes what befalls the frames that `interface` receives: on one path, or on all and those of none. `changes`
    // are "key=value,..." of the keys of [[device.impair.path]]. Returns "", or what is wrong with them. Any thread.
    std::string impair(const RdmaInterface& interface, std::optional<uint32_t> path, std::string_view changes);

    // The paths of `interface`, then what is of no path; empty if nothing befalls its frames.
    std::vector<PathState> impaired_paths(const RdmaInterface& interface) const;

    // From now on, what all ports send and receive is written to `file`, as pcapng. Once. Returns "", or what is wrong.
    std::string capture(const std::string& file);

    // Stops the port of `interface` as if its cable were pulled, or starts it again. Any thread but a worker.
    void set_port(const RdmaInterface& interface, bool up);

    // What RC QPs that are connected from now on shall speak, as [transport] mode says at the start. Any thread but a
    // worker.
    void set_mode(transport::Mode mode);

    uint64_t now_ns() const { return clock_.now_ns(); }

    // Of lib/datapath.
    const Config& config() const { return config_; }
    const std::vector<std::unique_ptr<Worker>>& workers() const { return workers_; }
    // Asks who `neighbour` is; waits for the answer, driving the workers meanwhile if that is ours to do.
    void solicit(RdmaInterface& interface, const wire::Gid& neighbour);
    void wait_for_neighbour(RdmaInterface& interface, const wire::Gid& neighbour, int timeout_ms);
    // Every kHousekeepingNs or so, on EAL's main thread: link states and restarts.
    void housekeeping();
    void ports_changed();  // any thread: do so soon
    // Whether that has to be done now and then, because a port does not tell when its link changes.
    bool needs_polling() const;
    // True if frames from every port ring the poller's doorbells.
    bool all_ring() const { return all_ring_; }
    EventLoop& poller() { return event_loop_; }
    Watchers& watchers() { return watchers_; }
    ProgressThread& background() { return *progress_thread_; }
    // Held by the interrupt thread in a driver's callback and by a restart of a port: both change the driver's state.
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
    std::string open();  // "" or what went wrong; on EAL's main thread, as are the others
    void launch();
    void wait_for_links();
    bool wait_workers_idle();
    void drain_before_exit();
    void close();

    Config config_;  // transport.mode: changed while no worker runs
    Listener& listener_;
    Clock clock_;
    bool in_forked_child_ = false;
    bool eal_started_ = false;
    std::vector<PortClaim> claims_;    // as ports_
    std::vector<rte_mempool*> pools_;  // one a worker
    EventLoop event_loop_;
    Watchers watchers_;
    std::vector<std::unique_ptr<Port>> ports_;  // as interfaces_
    bool all_ring_ = true;
    std::unique_ptr<LinkObserver> link_user_;  // for those with links
    std::vector<uint64_t> restarted_ns_;       // as ports_
    std::unique_ptr<Capture> capture_;
    std::vector<std::unique_ptr<RdmaInterface>> interfaces_;
    std::vector<std::unique_ptr<Worker>> workers_;
    Rounds grace_period_;
    transport::QueuePairTable queue_pairs_;
    transport::MemoryTable memory_;
    transport::TimeWaitTable time_wait_;
    std::atomic<size_t> next_worker_{0};
    const uint32_t cores_;               // that this process may use
    std::atomic<uint32_t> yielding_{0};  // threads inside of yield(). Relaxed: a hint
    std::list<std::tuple<Runtime*, ProgressThread*, size_t>> lcore_arguments_;
    std::mutex port_control_;
    std::unique_ptr<ProgressThread> progress_thread_;
    std::thread eal_thread_;
};

}  // namespace rove::datapath
