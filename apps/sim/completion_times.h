// SPDX-License-Identifier: Apache-2.0
// Completion times of flows and their statistics. Units: bytes, microseconds.
#pragma once

#include "experiment.h"
#include "fabric/workload.h"

namespace rove::sim {

class CompletionTimes {
  public:
    // Ignores flows that begin before `from`, while the network is still filling.
    explicit CompletionTimes(fabric::Time from = 0) : from_(from) {}

    void add(const fabric::FlowRecord& record);
    size_t count() const { return all_.size(); }
    // These cover flows of [least, most) bytes, and return 0 without any.
    double mean_us(uint64_t least = 0, uint64_t most = UINT64_MAX) const;
    double mean_slowdown(uint64_t least = 0, uint64_t most = UINT64_MAX) const;
    // Returns a quantile of the slowdown; `part` is 0.99 for the 99th percentile.
    double slowdown(double part, uint64_t least = 0, uint64_t most = UINT64_MAX) const;
    // Adds to `values`, under the prefix: the mean slowdown, its 95th, 99th and 99.9th percentile, the mean time, and
    // the number of flows.
    void tell(Values& values, const std::string& prefix, uint64_t least = 0, uint64_t most = UINT64_MAX) const;

  private:
    struct One {
        uint64_t bytes;
        double us, slowdown;
    };
    std::vector<double> slowdowns(uint64_t least, uint64_t most) const;

    fabric::Time from_;
    std::vector<One> all_;
};

}  // namespace rove::sim
