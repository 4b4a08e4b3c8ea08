// SPDX-License-Identifier: Apache-2.0
// A worker receives bursts, runs the protocol, sends bursts and serves timers, all to completion on one lcore. The
// thread that holds the worker's drive lock is the worker. A dedicated lcore holds the lock all the time and releases
// it at the end of a round when a control call waits for it. With shared progress each thread that drives the worker
// takes the lock for one round.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "base/drive_lock.h"
#include "transport/engine.h"
#include "transport/quiescence.h"

namespace rove::datapath {

class PacketSink;  // the engine's packet sink, which sends to the ports' TX queues
class WorkerCore;  // the part that only the driving thread uses

class Worker {
  public:
    using Engine = transport::Engine<PacketSink>;

    explicit Worker(std::unique_ptr<WorkerCore> core);
    ~Worker();

    // Makes the calling thread the worker during its lifetime. For control calls only. It must not be nested.
    class Hold final : public transport::WorkerQuiesced {
      public:
        explicit Hold(Worker& worker) : worker_(worker) { worker_.lock_.lock(); }
        ~Hold() { worker_.leave(); }

      private:
        Worker& worker_;
    };

    // Makes the calling thread the worker as Hold does, but does not wait. It converts to false if another thread is
    // the worker.
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

    // The functions below must be called while this worker does not run. They change and remove QPs, and are not inline
    // so that verbs need not see PacketSink.
    void set_state(const transport::WorkerQuiesced&, transport::QueuePair& qp, ibv_qp_state state);
    void set_priority(const transport::WorkerQuiesced&, transport::QueuePair& qp, uint8_t priority);
    // Set the first PSN, before RTR and before RTS. `multipath` is true if an RC QP uses mp.
    void start_receiving(const transport::WorkerQuiesced&, transport::QueuePair& qp, uint32_t rq_psn, bool multipath);
    void start_sending(const transport::WorkerQuiesced&, transport::QueuePair& qp, uint32_t sq_psn);
    // Calls Engine::ask_multipath().
    void ask_multipath(const transport::WorkerQuiesced&, transport::QueuePair& qp, const transport::Path& path,
                       uint32_t remote_qpn, uint32_t nonce);
    void remove(const transport::WorkerQuiesced&, transport::QueuePair& qp);
    void flush(const transport::WorkerQuiesced&, transport::QueuePair& qp);

    // Announces that work was posted to `qp`. Any thread may call it. It is lock-free, and a QP is in a list at most
    // once.
    void ring_doorbell(transport::QueuePair& qp);

    uint16_t index() const;  // the number in QueuePair::worker
    unsigned lcore() const;  // DPDK's number of the lcore that it runs on

    // For lib/runtime: the drive lock, and the data that it protects.
    DriveLock& lock() { return lock_; }
    WorkerCore& core(const transport::WorkerQuiesced&) { return *core_; }

  private:
    friend class WorkerCore;  // because frames are handed from worker to worker
    // Releases the drive lock. If the progress thread sleeps, first tells it when there is work to do.
    void leave();

    DriveLock lock_;
    std::unique_ptr<WorkerCore> core_;
};

}  // namespace rove::datapath
