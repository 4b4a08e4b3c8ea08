// SPDX-License-Identifier: Apache-2.0
// Completion times of flows, as evaluations show them. Units: bytes, microseconds.
#pragma once

#include "experiment.h"
#include "fabric/workload.h"

namespace rove::sim {

class CompletionTimes {
  public:
    // Of flows that begin before `from` nothing is kept: the network was still filling.
    explicit CompletionTimes(fabric::Time from = 0) : from_(from) {}

    void add(const fabric::FlowRecord& record);
    size_t count() const { return all_.size(); }
    // Of flows of [least, most) bytes; 0 when there are none.
    double mean_us(uint64_t least = 0, uint64_t most = UINT64_MAX) const;
    double mean_slowdown(uint64_t least = 0, uint64_t most = UINT64_MAX) const;
    // `part`: 0.99 for the 99th percentile.
    double slowdown(double part, uint64_t least = 0, uint64_t most = UINT64_MAX) const;
    // Puts into `values`, under the prefix: mean slowdown, its 95th, 99th and 99.9th percentile, the mean time, and how
    // many flows these are of.
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
