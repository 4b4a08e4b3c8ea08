// SPDX-License-Identifier: Apache-2.0
// A workload of one connection that keeps WRITEs in flight. It must outlive the last run of the network. Units: bytes,
// picoseconds.
#pragma once

#include "fabric/network.h"

namespace rove::fabric {

struct FlowConfig {
    uint32_t message_bytes = 64 << 10;  // at most Network::kScratchBytes
    uint32_t in_flight = 8;             // the maximum of messages that are posted and not completed
    uint64_t messages = UINT64_MAX;     // the flow ends after this number
    // The rate at which messages arrive, as a Poisson process. A message that arrives while in_flight are posted waits.
    // With 0 there is always a message.
    double bits_per_s = 0;
    double synchronise = 0;  // the fraction of messages that have ROVE_SEND_SYNC, spread evenly
    QpConfig qp;
};

class Flow final : Consumer {
  public:
    Flow(Network& network, Host& from, Host& to, const FlowConfig& config = {});

    void start();
    // Posts no further message. Posted ones complete.
    void stop() { config_.messages = posted_; }
    std::function<void(Flow&)> on_end;     // called when all messages have completed or one has failed
    std::function<void(Time)> on_message;  // called when a message completes, with the time since its post

    uint64_t completed_bytes() const { return completed_ * config_.message_bytes; }
    bool ended() const { return end_ != 0; }
    ibv_wc_status status() const { return status_; }  // status of the message that failed, otherwise success
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
    std::deque<Time> posted_at_;  // posting times of messages that have not completed
    ibv_wc_status status_ = IBV_WC_SUCCESS;
    Time start_ = 0, end_ = 0;
};

}  // namespace rove::fabric
