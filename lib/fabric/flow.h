// SPDX-License-Identifier: Apache-2.0
// A workload: one connection that keeps WRITEs in flight, and what became of them. It must live until the network has
// run for the last time. Units: bytes, picoseconds.
#pragma once

#include "fabric/network.h"

namespace rove::fabric {

struct FlowConfig {
    uint32_t message_bytes = 64 << 10;  // at most Network::kScratchBytes
    uint32_t in_flight = 8;             // messages posted and not completed
    uint64_t messages = UINT64_MAX;     // the flow ends after so many
    // At which messages come to be sent, a Poisson process; what comes while in_flight are on their way waits. 0: there
    // is always one.
    double bits_per_s = 0;
    double synchronise = 0;  // the part of the messages that has ROVE_SEND_SYNC, spread evenly
    QpConfig qp;
};

class Flow final : Consumer {
  public:
    Flow(Network& network, Host& from, Host& to, const FlowConfig& config = {});

    void start();
    // Posts no more; what is posted completes.
    void stop() { config_.messages = posted_; }
    std::function<void(Flow&)> on_end;     // all messages have completed, or one has failed
    std::function<void(Time)> on_message;  // one has completed, so long after it was posted

    uint64_t completed_bytes() const { return completed_ * config_.message_bytes; }
    bool ended() const { return end_ != 0; }
    ibv_wc_status status() const { return status_; }  // of the message that failed; success as long as none did
    Time started_at() const { return start_; }
    Time ended_at() const { return end_; }

    transport::QueuePair& sender() { return from_qp_; }
    transport::QueuePair& receiver() { return to_qp_; }

  private:
    void complete(const ibv_wc& wc) override;
    void post();
    void arrive();

    Network& network_;
    Host& from_;
    FlowConfig config_;
    transport::QueuePair& from_qp_;
    transport::QueuePair& to_qp_;
    Random random_;
    uint64_t arrived_ = 0, posted_ = 0, completed_ = 0;
    std::deque<Time> posted_at_;  // of those that have not completed
    ibv_wc_status status_ = IBV_WC_SUCCESS;
    Time start_ = 0, end_ = 0;
};

}  // namespace rove::fabric
