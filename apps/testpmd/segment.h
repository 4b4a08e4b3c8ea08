// SPDX-License-Identifier: Apache-2.0
// Owns what each end of a spray needs: an engine, and memory that is registered with it.
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
    // This memory is not allocated by the engine, which could serve its own memory through shared memory instead of the
    // ports.
    std::vector<uint8_t> memory_;
    tent::TransferEngine engine_;
};

// Throws a Failure if the engine does not start with its configuration on the open ports, so that the program reports
// it before the first run.
void try_engine(const Options& options);

// Throws a Failure with the status's message unless it is OK.
void require(const tent::Status& status, const char* what);

}  // namespace rove::testpmd
