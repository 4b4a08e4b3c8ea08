// SPDX-License-Identifier: Apache-2.0
// An end of a spray: an engine, and memory that is registered with it.
#pragma once

#include <cstdint>
#include <rove/tent.hpp>
#include <vector>

#include "exchange.h"

namespace rove::testpmd {

class Segment {
  public:
    // Throws a Failure if the engine does not start.
    Segment(const Options& options, const Connection& connection, size_t bytes);

    tent::TransferEngine& engine() { return engine_; }
    uint8_t* memory() { return memory_.data(); }

  private:
    std::vector<uint8_t>
        memory_;  // not the engine's own, which could go by shared memory: ports are what is driven here
    tent::TransferEngine engine_;
};

// Throws a Failure if the engine does not start with its configuration on the ports that are open, so that a program
// need not wait for a run to learn it.
void try_engine(const Options& options);

// Throws what the engine says, if it is not that all is well.
void require(const tent::Status& status, const char* what);

}  // namespace rove::testpmd
