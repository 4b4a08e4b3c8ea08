// SPDX-License-Identifier: Apache-2.0
// One end of a run: what the application needs to know of it, whoever moves the bytes. Units: nanoseconds of `now_ns`.
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

    // Does what can be done now, without blocking. Throws a Failure when a request fails.
    virtual void poll(uint64_t now_ns) = 0;
    // From now on nothing new begins; done() when all that was under way has come back.
    virtual void stop() {}
    virtual bool done() const { return false; }
    // After the end: the other end's account is taken, and its errors are added to ours.
    virtual void settle() = 0;

    // Counts from here on, but of errors.
    virtual void clear() {}
    virtual uint64_t messages() const = 0;
    virtual uint64_t errors() const = 0;
    // What else there is to say: latency, priorities.
    virtual Report report(double seconds) const = 0;
};

}  // namespace rove::testpmd
