// SPDX-License-Identifier: Apache-2.0
// Proofs that workers stand still. What may only be called then takes one of these, so that it cannot be called
// otherwise. Who can stop workers derives from them: lib/datapath's Worker::Hold and Runtime::Pause, and tests, which
// have one thread.
//
// And the way to change what workers read without stopping them: publish the new by a store with release order, take
// the old out of their sight, and wait for a grace period before its memory is used again (McKenney and Slingwine,
// "Read-copy update", 1998; QSBR: a worker's round is its read-side section).
#pragma once

namespace rove::transport {

// One worker stands still, of which the caller says elsewhere that it is the right one.
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
    // Returns when each worker has ended the round that it was in: none has a pointer any more to what was out of sight
    // before the call. Not from within a round, nor by who holds a worker.
    virtual void wait() = 0;

  protected:
    ~GracePeriod() = default;
};

// Where who changes a table is the only one who reads it.
class NoReaders final : public GracePeriod {
  public:
    void wait() override {}
    static NoReaders& instance() {
        static NoReaders instance;
        return instance;
    }
};

}  // namespace rove::transport
