// SPDX-License-Identifier: Apache-2.0
// Proofs that workers are quiesced. A function that requires this takes one of these objects, so that it cannot be
// called otherwise. The ways to quiesce workers derive from them: Worker::Hold and Runtime::Pause in lib/runtime, and
// tests, which have one thread.
//
// Also the way to change shared data without stopping workers: publish the new version by a store with release order,
// unlink the old one, and wait for a grace period before its memory is reused (McKenney and Slingwine, "Read-copy
// update", 1998; QSBR: a worker's round is its read-side section).
#pragma once

namespace rove::transport {

// One worker is quiesced. The caller names it elsewhere.
class WorkerQuiesced {
  public:
    WorkerQuiesced(const WorkerQuiesced&) = delete;
    WorkerQuiesced& operator=(const WorkerQuiesced&) = delete;

  protected:
    WorkerQuiesced() = default;
    ~WorkerQuiesced() = default;
};

// No worker runs.
class AllWorkersQuiesced : public WorkerQuiesced {
  protected:
    AllWorkersQuiesced() = default;
    ~AllWorkersQuiesced() = default;
};

class GracePeriod {
  public:
    // Returns when each worker has ended the round that it was in, after which none has a pointer to data that was
    // unlinked before the call. Must not be called within a round, or by a thread that holds a worker.
    virtual void wait() = 0;

  protected:
    ~GracePeriod() = default;
};

// For tables whose only reader is the thread that changes them.
class NoReaders final : public GracePeriod {
  public:
    void wait() override {}
    static NoReaders& instance() {
        static NoReaders instance;
        return instance;
    }
};

}  // namespace rove::transport
