// SPDX-License-Identifier: Apache-2.0
// One end of a run, independent of the API that moves the data. Times are in nanoseconds of `now_ns`.
#pragma once

#include <cstdint>

#include "exchange.h"
#include "prompt/table.h"

namespace rove::testpmd {

using datapath::Report;
using prompt::difference;
using prompt::to_text;

class Run {
  public:
    virtual ~Run() = default;

    virtual const Plan& plan() const = 0;
    virtual const Connection& connection() const = 0;
    virtual bool initiates() const = 0;

    // Makes progress without blocking. Throws a Failure if a request fails.
    virtual void poll(uint64_t now_ns) = 0;
    // Stops new requests. done() becomes true when those in flight have completed.
    virtual void stop() {}
    virtual bool done() const { return false; }
    // Receives the other end's account after the run, and adds its errors to ours.
    virtual void settle() = 0;

    // Restarts all counts except errors.
    virtual void clear() {}
    virtual uint64_t messages() const = 0;
    virtual uint64_t errors() const = 0;
    // Reports further results: latency and priorities.
    virtual Report report(double seconds) const = 0;
};

}  // namespace rove::testpmd
