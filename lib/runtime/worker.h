// SPDX-License-Identifier: Apache-2.0
// An lcore worker: RX burst, protocol, TX burst and timers run to completion on it.
// "Whoever holds the worker's drive lock is the worker": a dedicated lcore holds it all the time and gives it up at the
// end of a round when a control call asks for it; with shared progress every driver takes it for a round.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "base/drive_lock.h"
#include "transport/engine.h"
#include "transport/quiescence.h"

namespace rove::datapath {

class PacketSink;  // the engine's sink: mbufs of this worker to its ports' TX queues
class WorkerCore;  // what only the driving thread touches

class Worker {
  public:
    using Engine = transport::Engine<PacketSink>;

    explicit Worker(std::unique_ptr<WorkerCore> core);
    ~Worker();

    // Makes the calling thread the worker while it lives. Control calls only; must not nest.
    class Hold final : public transport::WorkerQuiesced {
      public:
        explicit Hold(Worker& worker) : worker_(worker) { worker_.lock_.lock(); }
        ~Hold() { worker_.leave(); }

      private:
        Worker& worker_;
    };

    // The same for whoever would make a round, and does without if somebody else is the worker: then it is false.
    class Drive final : public transport::WorkerQuiesced {
      public:
        explicit Drive(Worker& worker) : worker_(worker.lock_.try_lock() ? &worker : nullptr) {}
        ~Drive() {
            if (worker_ != nullptr) worker_->leave();
        }
        explicit operator bool() const { return worker_ != nullptr; }

      private:
        Worker* const worker_;
    };

    // While this worker stands still. Non-inline so that verbs needs not see PacketSink: state changes and removal go
    // through these.
    void set_state(const transport::WorkerQuiesced&, transport::QueuePair& qp, ibv_qp_state state);
    void set_priority(const transport::WorkerQuiesced&, transport::QueuePair& qp, uint8_t priority);
    // Before RTR and RTS: where the PSNs start; and whether an RC QP speaks mp.
    void start_receiving(const transport::WorkerQuiesced&, transport::QueuePair& qp, uint32_t rq_psn, bool multipath);
    void start_sending(const transport::WorkerQuiesced&, transport::QueuePair& qp, uint32_t sq_psn);
    // Engine::ask_multipath().
    void ask_multipath(const transport::WorkerQuiesced&, transport::QueuePair& qp, const transport::Path& path,
                       uint32_t remote_qpn, uint32_t nonce);
    void remove(const transport::WorkerQuiesced&, transport::QueuePair& qp);
    void flush(const transport::WorkerQuiesced&, transport::QueuePair& qp);

    // Any thread: work was posted to `qp`. Lock-free; a QP is in a list at most once.
    void ring_doorbell(transport::QueuePair& qp);

    uint16_t index() const;  // as in QueuePair::worker
    unsigned lcore() const;  // DPDK's number of where it runs

    // Of lib/datapath: the drive lock, and what it protects.
    DriveLock& lock() { return lock_; }
    WorkerCore& core(const transport::WorkerQuiesced&) { return *core_; }

  private:
    friend class WorkerCore;  // frames go from worker to worker
    // Gives up the drive lock. What is left to do, and when, is told to the background thread if that sleeps.
    void leave();

    DriveLock lock_;
    std::unique_ptr<WorkerCore> core_;
};

}  // namespace rove::datapath
