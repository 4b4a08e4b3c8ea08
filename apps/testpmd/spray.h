// SPDX-License-Identifier: Apache-2.0
// The end of a spray that submits: a stream for each thread, the first of them driven by poll().
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
    // Whoever steps a stream or looks at it holds its mutex.
    struct Worker {
        mutable std::mutex mutex;
        std::unique_ptr<SprayStream> stream;
        bool ended = false;  // nothing is under way, and nothing follows
        std::string failure;
        std::thread thread;  // none for the first
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
