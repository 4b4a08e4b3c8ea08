// SPDX-License-Identifier: Apache-2.0
#include "fabric/ring.h"

#include <algorithm>
#include <stdexcept>

namespace rove::fabric {

// A host with the queue pairs to its successor and from its predecessor.
struct Ring::Member final : Consumer {
    Member(Ring& ring, uint32_t place, Host& host) : ring(ring), place(place), host(host) {}

    void begin_step() {
        started.push_back(ring.network_.now());
        send();
    }
    // Posts the steps that have begun, as far as the send queue has room.
    void send() {
        constexpr uint64_t kPiece = Network::kScratchBytes;
        const transport::Region& memory = ring.network_.scratch();
        while (posted != started.size()) {
            const auto bytes = static_cast<uint32_t>(std::min(ring.chunk_bytes_ - posted_bytes, kPiece));
            const bool last = posted_bytes + bytes == ring.chunk_bytes_;
            const Request write{.opcode = last ? IBV_WR_RDMA_WRITE_WITH_IMM : IBV_WR_RDMA_WRITE,
                                .wr_id = last,
                                .local = {memory.iova, bytes, memory.key},
                                .remote_addr = memory.iova,
                                .rkey = memory.key};
            // The counters change before the post, since a request may complete within the call.
            const uint64_t before = posted_bytes;
            posted_bytes = last ? 0 : posted_bytes + bytes;
            posted += last;
            if (host.post(*to_next, write)) continue;
            posted_bytes = before;
            posted -= last;
            return;
        }
    }
    void complete(const ibv_wc& wc) override {
        if (wc.status != IBV_WC_SUCCESS) {
            ring.failed_ = true;
        } else if (wc.opcode == IBV_WC_RECV_RDMA_WITH_IMM) {
            arrived();
        } else {
            if (wc.wr_id != 0) sent();
            send();
        }
    }
    void arrived() {
        ring.last_arrival_ = ring.network_.now();
        host.post_receive(*from_previous);
        if (++received != ring.steps()) begin_step();
    }
    void sent() {
        const Time start = started[completed++];
        ++ring.records_;
        const auto next = static_cast<uint32_t>((place + 1) % ring.members_.size());
        const FlowSpec flow{.from = place, .to = next, .bytes = ring.chunk_bytes_, .start = start - ring.begin_};
        if (ring.on_record)
            ring.on_record({.flow = flow, .udp_src = qp.udp_src, .took = ring.network_.now() - start, .ideal = ideal});
    }

    Ring& ring;
    uint32_t place;
    Host& host;
    QpConfig qp{};   // to the successor
    Time ideal = 0;  // ideal time of a step, with its acknowledgement
    transport::QueuePair *to_next = nullptr, *from_previous = nullptr;
    std::vector<Time> started;         // indexed by step
    size_t posted = 0, completed = 0;  // steps
    uint64_t posted_bytes = 0;         // bytes of the step after the posted ones
    uint32_t received = 0;             // steps
};

Ring::Ring(Network& network, std::vector<Host*> hosts, const RingConfig& config)
    : network_(network), config_(config), chunk_bytes_((config.bytes + hosts.size() - 1) / hosts.size()) {
    if (hosts.size() < 2 || config.bytes == 0) throw std::invalid_argument("fabric: a ring of two hosts at least");
    const auto count = static_cast<uint32_t>(hosts.size());
    // A host can be ahead of its successor by at most as many steps as there are hosts. Then it waits for its
    // predecessor.
    config_.qp.receives = count;
    Random random = network.world().new_stream();
    for (uint32_t i = 0; i < count; ++i) members_.push_back(std::make_unique<Member>(*this, i, *hosts[i]));
    for (uint32_t i = 0; i < count; ++i) {
        Member &from = *members_[i], &to = *members_[(i + 1) % count];
        from.qp = config_.qp;
        from.qp.udp_src = static_cast<uint16_t>(transport::kFirstVp + random.below(transport::kVps));
        from.to_next = &from.host.create_qp(from.qp, from);
        to.from_previous = &to.host.create_qp(from.qp, to);
        from.ideal = ideal_time(from.host, to.host, chunk_bytes_, from.qp);
        from.host.connect(*from.to_next, from.qp, to.host, *to.from_previous);
        to.host.connect(*to.from_previous, from.qp, from.host, *from.to_next);
        for (uint32_t receive = 0; receive < count; ++receive) to.host.post_receive(*to.from_previous);
    }
}

Ring::~Ring() = default;

void Ring::start() {
    begin_ = network_.now();
    for (const auto& member : members_) member->begin_step();
}

Time Ring::ideal() const {
    Time around = 0, least = UINT64_MAX, previous = 0;
    for (size_t i = 0; i <= members_.size(); ++i) {
        const Member &from = *members_[i % members_.size()], &to = *members_[(i + 1) % members_.size()];
        const Time hop = one_way_time(from.host, to.host, chunk_bytes_, from.qp);
        if (i != 0) least = std::min(least, previous + hop);
        if (i != members_.size()) around += hop;
        previous = hop;
    }
    return 2 * around - least;
}

}  // namespace rove::fabric
