// SPDX-License-Identifier: Apache-2.0
// The two ends of a run: Initiator posts requests and measures; Responder is the target. Neither blocks in poll().
// Units: nanoseconds of `now_ns`, bytes.
#pragma once

#include <cstdint>
#include <vector>

#include "histogram.h"
#include "session.h"

namespace rove::testpmd {

class Initiator {
  public:
    Initiator(const std::vector<Rail>& rails, const Options& options, Connection connection);

    // Reaps completions and posts what may be posted. Throws a Failure when a request fails.
    void poll(uint64_t now_ns);
    // From now on nothing is posted; done() when all has come back.
    void stop() { stopping_ = true; }
    bool done() const { return (stopping_ || finished_) && completed_ == posted_; }
    // After done(): what the target says it got. Its errors are added to ours.
    void settle();

    const Session& session() const { return session_; }
    const Connection& connection() const { return connection_; }
    const Histogram& latency() const { return latency_; }
    uint64_t completed() const { return completed_; }
    uint64_t errors() const { return errors_; }

    void clear() {
        latency_ = {};
        cleared_ = completed_;
    }
    uint64_t since_cleared() const { return completed_ - cleared_; }

  private:
    struct Queue {
        uint64_t posted = 0, completed = 0;
        std::vector<uint64_t> begun_ns;  // by slot
    };
    void reap(uint64_t now_ns);
    uint32_t room(const Queue& queue, uint64_t now_ns) const;
    void post(uint32_t q, uint32_t count, uint64_t now_ns);
    void check(uint32_t q, uint64_t message);

    const Options& options_;
    Connection connection_;
    Session session_;
    const Plan plan_;
    std::vector<Queue> queues_;
    std::vector<ibv_send_wr> requests_;  // of a list; two for a message that is read back
    std::vector<ibv_sge> pieces_;
    Histogram latency_;
    uint64_t started_ns_ = 0;
    uint64_t posted_ = 0, completed_ = 0, cleared_ = 0, errors_ = 0;
    double interval_ns_;  // between two requests; 0: no rate
    uint32_t next_ = 0;   // QP to look at first
    bool stopping_ = false, finished_ = false;
};

class Responder {
  public:
    // `theirs` was received on `connection`; answers it.
    Responder(const std::vector<Rail>& rails, const Options& options, Connection connection,
              const Introduction& theirs);

    void poll();
    // Its account was received and answered.
    void settle();

    const Session& session() const { return session_; }
    const Connection& connection() const { return connection_; }
    uint64_t messages() const { return messages_; }  // that it saw: SENDs; after settle() all
    uint64_t errors() const { return errors_; }

  private:
    Connection connection_;
    Session session_;
    const Plan plan_;
    std::vector<uint64_t> received_;  // of a QP
    uint64_t messages_ = 0, errors_ = 0;
};

}  // namespace rove::testpmd
