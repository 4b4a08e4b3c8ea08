// SPDX-License-Identifier: Apache-2.0
// Runs the initiator of a spray: one stream for each thread. poll() drives the first.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "run.h"
#include "segment.h"
#include "spray_stream.h"

namespace rove::datapath {
class Runtime;
}

namespace rove::testpmd {

class Spray : public Run {
  public:
    Spray(datapath::Runtime& runtime, const Options& options, Connection connection);
    ~Spray() override;

    const Plan& plan() const override { return plan_; }
    const Connection& connection() const override { return connection_; }
    bool initiates() const override { return true; }
    void poll(uint64_t now_ns) override;
    void stop() override { stopping_ = true; }
    bool done() const override;
    void settle() override;

    void clear() override;
    uint64_t messages() const override;
    uint64_t errors() const override { return counts().wrong; }
    Report report(double seconds) const override;

  private:
    // A stream and its thread. The mutex guards the stream.
    struct Worker {
        mutable std::mutex mutex;
        std::unique_ptr<SprayStream> stream;
        bool ended = false;  // nothing is in flight, and nothing follows
        std::string failure;
        std::thread thread;  // unused by the first worker
    };
    bool step(Worker& worker, uint64_t now_ns);
    SprayStream::Counts counts() const;

    datapath::Runtime& runtime_;
    const Plan plan_;
    Connection connection_;
    Segment segment_;
    std::vector<std::unique_ptr<Worker>> workers_;
    std::atomic<bool> stopping_{false}, gone_{false};
};

}  // namespace rove::testpmd
