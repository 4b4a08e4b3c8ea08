// SPDX-License-Identifier: Apache-2.0
// Implements both ends of a run over verbs: the Initiator posts and measures requests, the Responder is their target.
// Units are nanoseconds of `now_ns` and bytes.
#pragma once

#include <cstdint>
#include <vector>

#include "histogram.h"
#include "run.h"
#include "session.h"

namespace rove::testpmd {

class Initiator : public Run {
  public:
    Initiator(const std::vector<Rail>& rails, const Options& options, Connection connection);

    const Plan& plan() const override { return session_.plan(); }
    const Connection& connection() const override { return connection_; }
    bool initiates() const override { return true; }
    void poll(uint64_t now_ns) override;
    void stop() override { stopping_ = true; }
    bool done() const override { return (stopping_ || finished_) && completed_ == posted_; }
    void settle() override;

    void clear() override {
        latency_ = {};
        cleared_ = completed_;
    }
    uint64_t messages() const override { return completed_ - cleared_; }
    uint64_t errors() const override { return errors_; }
    Report report(double seconds) const override;

  private:
    struct Queue {
        uint64_t posted = 0, completed = 0;
        std::vector<uint64_t> begun_ns;  // the time at which each slot's request began
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
    std::vector<ibv_send_wr> requests_;  // one list; a message that is read back takes two
    std::vector<ibv_sge> pieces_;
    Histogram latency_;
    uint64_t started_ns_ = 0;
    uint64_t posted_ = 0, completed_ = 0, failed_ = 0, cleared_ = 0, errors_ = 0;
    double interval_ns_;  // between two requests; 0: no rate
    uint32_t next_ = 0;   // the QP that is polled first
    bool stopping_ = false, finished_ = false;
};

class Responder : public Run {
  public:
    // `theirs` was received on `connection`. The constructor answers it.
    Responder(const std::vector<Rail>& rails, const Options& options, Connection connection,
              const Introduction& theirs);

    const Plan& plan() const override { return session_.plan(); }
    const Connection& connection() const override { return connection_; }
    bool initiates() const override { return false; }
    void poll(uint64_t now_ns) override;
    void settle() override;
    uint64_t messages() const override { return messages_; }  // SENDs that arrived; all messages after settle()
    uint64_t errors() const override { return errors_; }
    Report report(double seconds) const override;

  private:
    void reap();

    Connection connection_;
    Session session_;
    const Plan plan_;
    std::vector<uint64_t> received_;  // indexed by QP
    uint64_t messages_ = 0, errors_ = 0;
};

}  // namespace rove::testpmd
