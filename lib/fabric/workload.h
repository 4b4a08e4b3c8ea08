// SPDX-License-Identifier: Apache-2.0
// Many flows, each with queue pairs of its own while it lasts, and how long each took. It must stay until the network
// has run for the last time. Units: bytes, picoseconds.
//
// DESIGN NOTES
// 1. A flow is one WRITE after another of at most WorkloadConfig::piece_bytes, of which some are always posted, and is
//    complete when the sender knows that the last byte has arrived.
// 2. Queue pairs are used again: there are 2000 numbers for each host (Tables), and in a tenth of a second it has more
//    than ten thousand flows. One rests for `rest` after its flow, so that what the network still has of it is gone,
//    and is reset when the next flow takes it. First PSN and source port are drawn for each flow.
// 3. Where flows do not end there would be ever more queue pairs: beyond `most_flows` a flow waits until one has ended.
// 4. Where hosts have several ports (rails), the flows that a host begins take them in turn.
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
    Time took = 0;   // from its start until the sender knows that all has arrived
    Time ideal = 0;  // the same in an empty network, at the rate of the slowest link on its way
    uint32_t sender_qpn = 0, receiver_qpn = 0;  // other flows have had these before, and will
    uint32_t degree = 0;                        // mp: by how many packets one of them came too early, at most

    double slowdown() const { return std::max(1.0, static_cast<double>(took) / static_cast<double>(ideal)); }
};
// Units in a CSV file: nanoseconds.
inline constexpr const char* kFlowCsvHeader = "src,dst,sport,size,start,fct,ideal";
void write_csv(std::ostream& out, const FlowRecord& record);

// What `bytes` take in an empty network until the last has arrived, over all cables of their port. `qp`: that they are
// sent by.
Time one_way_time(const Host& from, const Host& to, uint64_t bytes, const QpConfig& qp);
// With the acknowledgement of the last byte.
Time ideal_time(const Host& from, const Host& to, uint64_t bytes, const QpConfig& qp);

struct WorkloadConfig {
    QpConfig qp;                     // but its source port and PSN, which are drawn
    Time rest = 200 * kMicrosecond;  // of a queue pair between two flows
    uint32_t piece_bytes = 1 << 20;  // at most Network::kScratchBytes
    size_t most_flows = 100'000;     // at a time
    // The last packet of a flow of several is a WRITE of its own, with ROVE_SEND_SYNC: who polls for it may read all.
    bool synchronises = false;
};

class Workload {
  public:
    // `flows` ascend by start, counted from now on.
    Workload(Network& network, std::vector<Host*> hosts, std::vector<FlowSpec> flows, const WorkloadConfig& config);
    ~Workload();

    std::function<void(const FlowRecord&)> on_record;  // a flow has ended

    size_t started() const { return next_; }  // or waits for others to end
    size_t completed() const { return completed_; }
    size_t failed() const { return failed_; }  // by an error of a QP; no record is made of them
    bool done() const { return completed_ + failed_ == flows_.size(); }
    size_t queue_pairs() const;  // made so far
    // Flows that have begun and not ended, as if each ended now; not those that wait.
    void for_each_running(const std::function<void(const FlowRecord&)>& call) const;

  private:
    struct Sender;
    struct IdleQp {
        transport::QueuePair* qp;
        Time since;
    };
    struct End {
        uint32_t next_port = 0;
        std::vector<std::unique_ptr<Sender>> senders;  // all that there are
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
