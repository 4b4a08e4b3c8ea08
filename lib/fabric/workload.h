// SPDX-License-Identifier: Apache-2.0
// Many flows, each with queue pairs of its own for its duration, and their completion times. A workload must outlive
// the last run of the network. Units: bytes, picoseconds.
//
// DESIGN NOTES
// 1. A flow is a series of WRITEs of at most WorkloadConfig::piece_bytes, several of which are always posted. It is
//    complete when the sender knows that the last byte has arrived.
// 2. Queue pairs are reused: there are 2000 numbers for each host (Tables), and a host has more than ten thousand flows
//    in a tenth of a second. A queue pair rests for `rest` after its flow, so that the network holds no packet of it
//    any more, and is reset for the next flow. The first PSN and the source port are drawn for each flow.
// 3. If flows did not end, the number of queue pairs would grow without bound. Beyond `most_flows` a flow therefore
//    waits until another has ended.
// 4. Where hosts have several ports (rails), a host's flows use them in turn.
#pragma once

#include <deque>
#include <memory>
#include <ostream>

#include "fabric/arrivals.h"
#include "fabric/network.h"

namespace rove::fabric {

struct FlowRecord {
    FlowSpec flow;
    uint16_t udp_src = 0;
    Time took = 0;                              // from its start until the sender knows that all bytes have arrived
    Time ideal = 0;                             // time in an empty network, at the rate of the slowest link on its path
    uint32_t sender_qpn = 0, receiver_qpn = 0;  // other flows use these numbers before and after
    uint32_t degree = 0;                        // mp: the largest number of packets by which a packet arrived early

    double slowdown() const { return std::max(1.0, static_cast<double>(took) / static_cast<double>(ideal)); }
};
// Times in the CSV file are in nanoseconds.
inline constexpr const char* kFlowCsvHeader = "src,dst,sport,size,start,fct,ideal";
void write_csv(std::ostream& out, const FlowRecord& record);

// Returns the time that `bytes` take to arrive in an empty network, over all cables of their port, when sent by a queue
// pair like `qp`.
Time one_way_time(const Host& from, const Host& to, uint64_t bytes, const QpConfig& qp);
// Adds the acknowledgement of the last byte to one_way_time().
Time ideal_time(const Host& from, const Host& to, uint64_t bytes, const QpConfig& qp);

struct WorkloadConfig {
    QpConfig qp;                     // its source port and PSN are drawn for each flow
    Time rest = 200 * kMicrosecond;  // time of a queue pair between two flows
    uint32_t piece_bytes = 1 << 20;  // at most Network::kScratchBytes
    size_t most_flows = 100'000;     // at a time
    // The last packet of a flow with several packets is a WRITE of its own with ROVE_SEND_SYNC, so that a receiver that
    // polls for it may then read everything.
    bool synchronises = false;
};

class Workload {
  public:
    // Runs `flows`, which are in ascending order of their start, counted from now.
    Workload(Network& network, std::vector<Host*> hosts, std::vector<FlowSpec> flows, const WorkloadConfig& config);
    ~Workload();

    std::function<void(const FlowRecord&)> on_record;  // called when a flow ends

    size_t started() const { return next_; }  // including flows that wait for others to end
    size_t completed() const { return completed_; }
    size_t failed() const { return failed_; }  // ended by an error of a queue pair; these have no record
    bool done() const { return completed_ + failed_ == flows_.size(); }
    size_t queue_pairs() const;  // the number made until now
    // Calls `call` for each flow that has begun and not ended, as if it ended now. Waiting flows are left out.
    void for_each_running(const std::function<void(const FlowRecord&)>& call) const;

  private:
    struct Sender;
    struct IdleQp {
        transport::QueuePair* qp;
        Time since;
    };
    struct End {
        uint32_t next_port = 0;
        std::vector<std::unique_ptr<Sender>> senders;  // all senders
        std::deque<Sender*> free_senders;
        std::deque<IdleQp> free_receivers;
    };

    void start_due();
    void start_waiting();
    void start(const FlowSpec& flow);
    Sender& take_sender(uint32_t host);
    transport::QueuePair& take_receiver(uint32_t host);
    void finish(Sender& sender, bool success);

    Network& network_;
    std::vector<Host*> hosts_;
    std::vector<FlowSpec> flows_;
    WorkloadConfig config_;
    Random random_;
    Time begin_;
    std::vector<End> ends_;
    std::deque<FlowSpec> waiting_;
    size_t next_ = 0, completed_ = 0, failed_ = 0, receivers_ = 0;
};

}  // namespace rove::fabric
