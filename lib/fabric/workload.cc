// SPDX-License-Identifier: Apache-2.0
#include "fabric/workload.h"

#include <algorithm>

#include "rove/verbs.h"

namespace rove::fabric {
namespace {

constexpr uint32_t kPieces = 8;  // posted at a time
// Bytes on the wire around the payload: Ethernet 14 and FCS 4, IP 20, UDP 8, BTH 12, ICRC 4; the RETH, and in mp the
// MPETH.
constexpr uint32_t kRcBytes = 62, kRethBytes = 16, kMpBytes = 62 + 8 + kRethBytes;
constexpr uint32_t kAckBytes = 66, kMpAckBytes = 74;

// Ignores the completions at the receiving end.
struct Nobody final : Consumer {
    void complete(const ibv_wc&) override {}
} nobody;

}  // namespace

void write_csv(std::ostream& out, const FlowRecord& record) {
    out << record.flow.from << ',' << record.flow.to << ',' << record.udp_src << ',' << record.flow.bytes << ','
        << record.flow.start / kNanosecond << ',' << record.took / kNanosecond << ',' << record.ideal / kNanosecond
        << '\n';
}

namespace {

// Returns the links that the packets of a flow with one path take; for many paths the links of one.
std::vector<const Link*> links_between(const Host& from, const Host& to, const QpConfig& qp) {
    const uint64_t hash = flow_hash(from.flow_to(to, qp.udp_src, qp.port));
    std::vector<const Link*> links{&from.link_of(hash, qp.port)};
    uint32_t route = 0;
    while (const auto* const node = dynamic_cast<const Switch*>(&links.back()->to()))
        links.push_back(node->links()[node->next_hop(hash, to.port(qp.port).index(), route)]);
    return links;
}

// Returns the time of one frame of `bytes` over the links.
Time frame_time(const std::vector<const Link*>& links, uint32_t bytes) {
    Time time = 0;
    for (const Link* const link : links) time += link->config().delay + link->duration(bytes);
    return time;
}

}  // namespace

Time one_way_time(const Host& from, const Host& to, uint64_t bytes, const QpConfig& qp) {
    const uint64_t packets = (bytes + qp.mtu - 1) / qp.mtu;
    const uint32_t header = from.counted(qp.multipath ? kMpBytes : kRcBytes, 0, false);
    const auto first = static_cast<uint32_t>(std::min<uint64_t>(bytes, qp.mtu)) + header;
    const std::vector<const Link*> links = links_between(from, to, qp);
    uint64_t slowest = UINT64_MAX;
    for (const Link* const link : links) slowest = std::min(slowest, link->config().bits_per_s);
    slowest *= std::min(from.port(qp.port).links().size(), to.port(qp.port).links().size());
    const uint32_t gap = links.front()->config().gap_bytes;
    const uint64_t rest = bytes + packets * (header + gap) - first - gap;
    return frame_time(links, first) + static_cast<Time>(static_cast<double>(rest) * 8 / static_cast<double>(slowest) *
                                                        static_cast<double>(kSecond));
}

// Cables are the same in both directions.
Time ideal_time(const Host& from, const Host& to, uint64_t bytes, const QpConfig& qp) {
    const uint32_t ack = to.counted(qp.multipath ? kMpAckBytes : kAckBytes, 0, true);
    return one_way_time(from, to, bytes, qp) + frame_time(links_between(from, to, qp), ack);
}

// A queue pair of a sending host and its present flow.
struct Workload::Sender final : Consumer {
    Sender(Workload& workload, Host& host) : workload(workload), host(host) {
        qp = &host.create_qp(workload.config_.qp, *this);
    }

    void begin(const FlowRecord& with, transport::QueuePair& peer) {
        record = with;
        receiver = &peer;
        posted = completed = 0;
        busy = true;
        post();
    }
    void post() {
        const transport::Region& memory = workload.network_.scratch();
        // The counter changes before the post, since a request may complete within the call.
        const uint32_t piece = workload.config_.piece_bytes;
        const uint32_t mtu = workload.config_.qp.mtu;
        const uint32_t end = workload.config_.synchronises && record.flow.bytes > mtu ? mtu : 0;
        while (busy && posted < record.flow.bytes && posted - completed < uint64_t{kPieces} * piece) {
            const uint64_t left = record.flow.bytes - posted;
            const auto bytes = static_cast<uint32_t>(std::min<uint64_t>(left > end ? left - end : end, piece));
            const unsigned flags = IBV_SEND_SIGNALED | (left == end ? ROVE_SEND_SYNC : 0);
            posted += bytes;
            host.post(*qp, {.local = {memory.iova, bytes, memory.key},
                            .remote_addr = memory.iova,
                            .rkey = memory.key,
                            .flags = flags});
        }
    }
    void complete(const ibv_wc& wc) override {
        if (!busy) return;  // flushed requests after a failure
        if (wc.status != IBV_WC_SUCCESS) return workload.finish(*this, false);
        completed += wc.byte_len;
        if (completed == record.flow.bytes) return workload.finish(*this, true);
        post();
    }

    Workload& workload;
    Host& host;
    transport::QueuePair* qp;
    transport::QueuePair* receiver = nullptr;
    FlowRecord record;
    uint64_t posted = 0, completed = 0;  // bytes
    bool busy = false;
    Time free_since = 0;
};

Workload::Workload(Network& network, std::vector<Host*> hosts, std::vector<FlowSpec> flows,
                   const WorkloadConfig& config)
    : network_(network),
      hosts_(std::move(hosts)),
      flows_(std::move(flows)),
      config_(config),
      random_(network.world().new_stream()),
      begin_(network.now()),
      ends_(hosts_.size()) {
    if (!flows_.empty()) network_.at(begin_ + flows_.front().start, [this] { start_due(); });
}

Workload::~Workload() = default;

size_t Workload::queue_pairs() const {
    size_t all = receivers_;
    for (const End& end : ends_) all += end.senders.size();
    return all;
}

void Workload::start_due() {
    while (next_ != flows_.size() && begin_ + flows_[next_].start <= network_.now())
        waiting_.push_back(flows_[next_++]);
    start_waiting();
    if (next_ != flows_.size()) network_.at(begin_ + flows_[next_].start, [this] { start_due(); });
}

void Workload::start_waiting() {
    while (!waiting_.empty() && next_ - waiting_.size() - completed_ - failed_ < config_.most_flows) {
        const FlowSpec flow = waiting_.front();
        waiting_.pop_front();
        start(flow);
    }
}

void Workload::start(const FlowSpec& flow) {
    Host &from = *hosts_[flow.from], &to = *hosts_[flow.to];
    Sender& sender = take_sender(flow.from);
    transport::QueuePair& receiver = take_receiver(flow.to);
    QpConfig qp = config_.qp;
    qp.udp_src = static_cast<uint16_t>(transport::kFirstVp + random_.below(transport::kVps));
    qp.psn = static_cast<uint32_t>(random_.below(transport::Psn::kMask + 1));
    qp.port = ends_[flow.from].next_port++ % std::min(from.ports(), to.ports());
    from.connect(*sender.qp, qp, to, receiver);
    to.connect(receiver, qp, from, *sender.qp);
    sender.begin({.flow = flow,
                  .udp_src = qp.udp_src,
                  .ideal = ideal_time(from, to, flow.bytes, qp),
                  .sender_qpn = sender.qp->qpn,
                  .receiver_qpn = receiver.qpn},
                 receiver);
}

void Workload::for_each_running(const std::function<void(const FlowRecord&)>& call) const {
    for (const End& end : ends_) {
        for (const auto& sender : end.senders) {
            if (!sender->busy) continue;
            FlowRecord record = sender->record;
            record.took = network_.now() - begin_ - record.flow.start;
            call(record);
        }
    }
}

Workload::Sender& Workload::take_sender(uint32_t host) {
    End& end = ends_[host];
    if (!end.free_senders.empty() && end.free_senders.front()->free_since + config_.rest <= network_.now()) {
        Sender& sender = *end.free_senders.front();
        end.free_senders.pop_front();
        hosts_[host]->reset(*sender.qp);
        return sender;
    }
    return *end.senders.emplace_back(std::make_unique<Sender>(*this, *hosts_[host]));
}

transport::QueuePair& Workload::take_receiver(uint32_t host) {
    End& end = ends_[host];
    if (!end.free_receivers.empty() && end.free_receivers.front().since + config_.rest <= network_.now()) {
        transport::QueuePair& qp = *end.free_receivers.front().qp;
        end.free_receivers.pop_front();
        hosts_[host]->reset(qp);
        return qp;
    }
    ++receivers_;
    return hosts_[host]->create_qp(config_.qp, nobody);
}

void Workload::finish(Sender& sender, bool success) {
    sender.busy = false;
    sender.free_since = network_.now();
    ends_[sender.record.flow.from].free_senders.push_back(&sender);
    ends_[sender.record.flow.to].free_receivers.push_back({sender.receiver, network_.now()});
    ++(success ? completed_ : failed_);
    start_waiting();
    if (!success) return;
    if (const transport::Mp* const mp = sender.receiver->mp()) sender.record.degree = mp->requests_in_degree;
    sender.record.took = network_.now() - begin_ - sender.record.flow.start;
    if (on_record) on_record(sender.record);
}

}  // namespace rove::fabric
