// SPDX-License-Identifier: Apache-2.0
// The datapath of a process: EAL, ports, workers, and the tables they share. lib/verbs sees only this file, device.h
// and worker.h. Units: nanoseconds, bytes.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "datapath/config.h"
#include "datapath/device.h"
#include "datapath/worker.h"
#include "transport/memory.h"
#include "transport/queue_pair.h"

namespace rove::datapath {

// What workers tell the layer above. Called on a worker, rarely (armed CQs and asynchronous events only): must not block
// and must not call back into the datapath.
class Listener {
  public:
    virtual ~Listener() = default;
    virtual void notify(transport::CompletionQueue& cq) = 0;
    virtual void event(ibv_event_type event, transport::QueuePair& qp) = 0;
    virtual void event(ibv_event_type event, transport::CompletionQueue& cq) = 0;
    virtual void event(ibv_event_type event, transport::SharedRecvQueue& srq) = 0;
    virtual void port_event(ibv_event_type event, const Device& device) = 0;    // PORT_ACTIVE, PORT_ERR
};

class Runtime {
  public:
    // Reads the configuration, initialises EAL in a thread of its own (the caller's affinity stays as it is), opens the
    // ports and starts the workers. On failure returns null and says why in `*error` (file, key, value, what is allowed).
    static std::unique_ptr<Runtime> start(const Config& config, Listener& listener, std::string* error);
    ~Runtime();

    const std::vector<std::unique_ptr<Device>>& devices() const { return devices_; }
    transport::QueuePairTable& queue_pairs() { return queue_pairs_; }
    transport::MemoryTable& memory() { return memory_; }

    // The worker that shall own a new QP of this device.
    Worker& choose_worker(const Device& device);
    Worker& worker_of(const transport::QueuePair& qp) { return *workers_[qp.worker]; }

    // No worker runs while this lives. For control calls that touch what workers read (QP table, keys, CQ resize).
    class Pause {
      public:
        explicit Pause(Runtime& runtime);
        ~Pause();
        Pause(const Pause&) = delete;
        Pause& operator=(const Pause&) = delete;

      private:
        Runtime& runtime_;
    };

    // ibv_post_send, after publishing to qp.sq: hands the work to the worker through the ring of the QP's priority and, with
    // shared progress, drives the worker if nobody else does.
    void post(transport::QueuePair& qp);
    // ibv_poll_cq found its CQ empty (or every so often when not): with shared progress, drives the workers once.
    void progress();
    // The application is about to sleep (armed a CQ, reads a channel): with shared progress the background thread takes over now.
    void hand_over();

    uint64_t now_ns() const;

  private:
    Runtime() = default;
    std::vector<std::unique_ptr<Device>> devices_;
    std::vector<std::unique_ptr<Worker>> workers_;
    transport::QueuePairTable queue_pairs_;
    transport::MemoryTable memory_;
};

}  // namespace rove::datapath
