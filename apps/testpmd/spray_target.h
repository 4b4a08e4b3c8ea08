// SPDX-License-Identifier: Apache-2.0
// Runs the target of a spray: its engine answers, and it drives the ports.
#pragma once

#include "run.h"
#include "runtime/runtime.h"
#include "segment.h"

namespace rove::testpmd {

class SprayTarget : public Run {
  public:
    // `plan` was received on `connection`. The constructor answers it.
    SprayTarget(datapath::Runtime& runtime, const Options& options, Connection connection, const Plan& plan);

    const Plan& plan() const override { return plan_; }
    const Connection& connection() const override { return connection_; }
    bool initiates() const override { return false; }
    void poll(uint64_t) override { runtime_.progress(); }
    void settle() override;
    uint64_t messages() const override { return account_.messages; }
    uint64_t errors() const override { return account_.errors; }
    Report report(double seconds) const override;

  private:
    datapath::Runtime& runtime_;
    Connection connection_;
    const Plan plan_;
    Segment segment_;
    Account account_;  // received from the initiator
};

}  // namespace rove::testpmd
