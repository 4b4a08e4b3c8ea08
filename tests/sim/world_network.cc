// SPDX-License-Identifier: Apache-2.0
// Draws the network and the queue pairs of a world from its seed.
#include <algorithm>

#include "world.h"

namespace rove::test {

namespace {
constexpr uint32_t kCompletions = 1024;  // all completions of a world on one host
}  // namespace

transport::Config World::draw_config() {
    using transport::Ordering;
    transport::Config config;
    config.window_packets = random_.pick(4u, 16u, 64u, 256u, 256u);
    config.ack_interval_packets = random_.pick(1u, 4u, 32u);
    config.quantum_packets = random_.pick(1u, 5u, 32u);
    if (!multipath_) return config;
    config.paths.max_window = random_.pick(16u, 64u, 256u);
    config.paths.initial_window = static_cast<uint32_t>(random_.between(1, config.paths.max_window / 2));
    config.paths.delta = random_.pick(4u, 16u);
    config.paths.recovery =
        random_.pick(transport::PathsConfig::Recovery::kSelectiveRepeat, transport::PathsConfig::Recovery::kGoBackN);
    config.paths.infer_losses = random_.chance(0.7);
    config.paths.explore = random_.chance(0.7);
    config.paths.min_rto_ns = random_.pick(20'000, 1'000'000, 1'000'000);
    config.paths.sync_alpha = random_.pick(0.0, 1.0, 1.0, 4.0);
    config.reorder.kind =
        random_.pick(transport::ReorderConfig::Kind::kEunomia, transport::ReorderConfig::Kind::kStatic);
    if (random_.chance(0.2)) config.reorder.arena_blocks = 64;
    config.ordering = random_.pick(Ordering::kReceiverHold, Ordering::kSenderDelay, Ordering::kOptimistic);
    config.batch_acks = random_.chance(0.7);
    config.seed = random_.next();
    return config;
}

// The order in which operations of host `from` reach the memory of the other host (EU-7).
Promise World::promise(uint32_t from) const {
    using enum transport::Ordering;
    const bool held = configs_[from].ordering == kReceiverHold || configs_[1 - from].ordering == kReceiverHold;
    if (!multipath_ || (held && !relaxed_[1 - from])) return Promise::kInOrder;
    return configs_[from].ordering == kSenderDelay ? Promise::kLastInOrder : Promise::kNone;
}

void World::draw_network() {
    reliable_ = random_.chance(0.75);
    configs_[0] = draw_config();
    configs_[1] = random_.chance(0.5) ? configs_[0] : draw_config();
    for (bool& relaxed : relaxed_) relaxed = random_.chance(0.2);
    net_ = std::make_unique<Network>(random_.next(), std::vector<transport::Config>{configs_[0], configs_[1]});
    net_->keep_trace = false;
    clean_ = random_.chance(0.1);
    in_order_ = clean_ || random_.chance(0.3);
    for (Impairment& link : net_->egress) {
        link.delay_ns = random_.pick(200u, 2'000u, 20'000u, 150'000u);
        if (random_.chance(0.4)) {
            link.bytes_per_s = random_.pick(100'000'000ull, 1'000'000'000ull, 12'500'000'000ull);
            link.room_packets = random_.chance(0.7) ? static_cast<uint32_t>(random_.between(1, 40)) : 0;
        }
        link.refuse = random_.pick(0.0, 0.0, 0.01, 0.2);
        if (multipath_ && random_.chance(0.6)) {
            link.lanes.resize(random_.between(1, 8));
            for (Lane& lane : link.lanes) lane.delay_ns = random_.chance(0.5) ? 0 : random_.below(4 * link.delay_ns);
        }
        if (clean_) continue;
        for (Lane& lane : link.lanes) {
            lane.loss = random_.pick(0.0, 0.0, 0.02, 0.2);
            if (link.lanes.size() >= 4 && random_.chance(0.05) && &lane != &link.lanes[0]) lane.loss = 1;
        }
        link.loss = random_.pick(0.0, 0.005, 0.02, 0.05, 0.2);
        // At 0.2, one READ of 4000 loses its request or its first response eight times in a row, and may then fail.
        if (reliable_ && !multipath_) link.loss = std::min(link.loss, 0.1);
        if (random_.chance(0.15)) {
            link.bursts = {.begin = 0.002, .loss = 0.9, .mean_ns = random_.pick(1'000u, 20'000u, 500'000u)};
            link.loss = std::min(link.loss, 0.02);
        }
        if (random_.chance(0.5)) link.lane_hash = static_cast<uint32_t>(random_.between(1, 1 << 16));
        link.corrupt = random_.pick(0.0, 0.0, 0.01, 0.05);
        link.mark_ce = random_.pick(0.0, 0.0, 0.02, 0.3);
        if (in_order_) continue;
        link.duplicate = random_.pick(0.0, 0.02, 0.1);
        link.reorder = random_.pick(0.0, 0.05, 0.3);
        link.reorder_ns = random_.pick(1'000u, 20'000u, 400'000u, 5'000'000u);
    }
    if (!reliable_ && !clean_ && random_.chance(0.5)) {
        const uint64_t begin = net_->now() + random_.below(3'000'000);
        net_->egress[random_.below(2)].down.push_back({begin, begin + random_.pick(500'000ull, 1'000'000'000ull)});
    }
    // All paths but one may fail and recover.
    if (!clean_ && random_.chance(0.3)) {
        Impairment& link = net_->egress[random_.below(2)];
        for (size_t i = 1; i < link.lanes.size(); ++i) {
            const uint64_t begin = net_->now() + random_.below(2'000'000);
            if (random_.chance(0.5)) link.lanes[i].dark.push_back({begin, begin + random_.below(10'000'000)});
        }
    }
    // A host that pauses is slow and not dead: nothing may fail because of it.
    if (reliable_ && random_.chance(0.1)) {
        uint64_t begin = net_->now();
        for (uint64_t stalls = random_.between(1, 3); stalls != 0; --stalls) {
            begin += random_.below(2'000'000);
            const uint64_t end = begin + random_.between(20'000'000, 400'000'000);
            net_->stall_at(begin, static_cast<uint32_t>(random_.below(2)), end);
            begin = end;
        }
    }
    tick_ns_ = random_.pick(1'000u, 20'000u, 200'000u);
    eagerness_ = random_.pick(0.1, 0.5, 1.0);
    receive_eagerness_ = random_.pick(0.05, 0.5, 1.0, 1.0);
    if (random_.chance(0.15)) pause_eagerness_ = random_.pick(0.02, 0.2);
}

void World::draw_queue_pairs() {
    const bool shared_srq = reliable_ && random_.chance(0.25);
    ReceivePool* srq_pool[2] = {};
    SharedRecvQueue* srq[2] = {};
    CompletionQueue* shared_cq[2] = {};
    for (uint32_t i = 0; i < 2; ++i) {
        if (random_.chance(0.5)) shared_cq[i] = &net_->host(i).completion_queue(kCompletions);
        if (!shared_srq) continue;
        srq[i] = &net_->host(i).shared_recv_queue(16, 6);
        pools_.emplace_back();
        srq_pool[i] = &pools_.back();
        srq_pool[i]->arena = &arenas_[i];
        srq_pool[i]->queue = &srq[i]->ring;
    }
    const uint64_t connections = random_.between(1, 4);
    for (uint64_t c = 0; c < connections; ++c) {
        ibv_qp_type type = random_.chance(0.8) ? IBV_QPT_RC : random_.chance(0.5) ? IBV_QPT_UC : IBV_QPT_UD;
        if (reliable_ && !multipath_ && type == IBV_QPT_RC && random_.chance(0.15)) type = IBV_QPT_XRC_SEND;
        const bool ipv6 = random_.chance(0.3);
        const uint32_t mtu = 256u << random_.below(5);
        const bool fails = reliable_ && type == IBV_QPT_RC && random_.chance(0.08);
        const uint64_t failing = random_.below(2);
        QpOptions options[2];
        for (uint32_t i = 0; i < 2; ++i) {
            QpOptions& o = options[i];
            o.type = type;
            o.multipath = multipath_ && type == IBV_QPT_RC;
            o.mtu = mtu;
            o.depth = static_cast<uint32_t>(random_.between(1, 40));
            o.max_sge = 6;
            o.access |= transport::kAccessFlushGlobal;
            o.max_rd_atomic = static_cast<uint8_t>(random_.pick(1, 2, 3, 4, 16));
            o.psn = random_.chance(0.3) ? 0xFFFFFF - static_cast<uint32_t>(random_.below(50))
                                        : static_cast<uint32_t>(random_.below(1 << 24));
            o.sq_sig_all = random_.chance(0.2);
            o.min_rnr_timer = static_cast<uint8_t>(random_.between(1, 16));
            // Over many paths each of the retries may use a dead one, so there are more of them, and more time.
            o.timeout = static_cast<uint8_t>(random_.between(13, 15) + (o.multipath ? 3 : 0));
            if (!reliable_) {
                o.timeout = static_cast<uint8_t>(random_.between(1, 11));
                o.retry_cnt = static_cast<uint8_t>(random_.below(4));
                o.rnr_retry = static_cast<uint8_t>(random_.below(4));
            }
            const bool shared = shared_cq[i] != nullptr;
            o.send_cq = shared ? shared_cq[i] : &net_->host(i).completion_queue(kCompletions);
            o.recv_cq = shared ? shared_cq[i] : &net_->host(i).completion_queue(kCompletions);
            if (type == IBV_QPT_RC && !fails) o.srq = srq[i];
        }
        // The requester may have as many READs outstanding as the responder keeps.
        options[1].max_rd_atomic = options[0].max_rd_atomic;
        const bool xrc = type == IBV_QPT_XRC_SEND;
        SharedRecvQueue* const xrc_srq = xrc ? &make_xrc_srq(*options[1].recv_cq) : nullptr;
        Connection made = xrc ? connect_xrc(options[0], ipv6)
                              : connect(*net_, net_->host(0), net_->host(1), options[0], options[1], ipv6);
        QueuePair* qps[2] = {&made.a, &made.b};
        for (uint32_t i = 0; i < 2; ++i) {
            directions_.emplace_back();
            Direction& d = directions_.back();
            d.index = static_cast<uint32_t>(directions_.size() - 1);
            d.type = xrc && i == 1 ? IBV_QPT_XRC_RECV : type;
            d.from = &arenas_[i];
            d.to = &arenas_[1 - i];
            d.qp = qps[i];
            d.peer = qps[1 - i];
            d.options = options[i];
            d.reliable = reliable_ && !fails;
            d.doomed = fails && i == failing;
            d.promise = xrc ? Promise::kInOrder : type == IBV_QPT_RC ? promise(i) : Promise::kNone;
            d.path = net_->host(i).path_to(net_->host(1 - i), ipv6);
            if (options[1 - i].srq != nullptr) {
                d.pool = srq_pool[1 - i];
                continue;
            }
            pools_.emplace_back();
            d.pool = &pools_.back();
            d.pool->arena = d.to;
            if (d.type == IBV_QPT_XRC_SEND) {
                d.pool->queue = &xrc_srq->ring;
                d.xrc_srqn = xrc_srq->number;
                continue;
            }
            d.pool->queue = &d.peer->rq;
            d.pool->qp = d.peer;
        }
    }
    for (Direction& d : directions_) {
        for (CompletionQueue* cq : {d.qp->send_cq, d.qp->recv_cq}) poll_also(d.from->host->index(), cq);
    }
}

void World::poll_also(uint32_t host, CompletionQueue* cq) {
    auto& all = cqs_[host];
    if (cq != nullptr && std::find(all.begin(), all.end(), cq) == all.end()) all.push_back(cq);
}

// Makes the SRQ that an XRC connection names, at host 1.
SharedRecvQueue& World::make_xrc_srq(CompletionQueue& cq) {
    SharedRecvQueue& srq = net_->host(1).shared_recv_queue(16, 6);
    srq.xrcd = this;
    srq.cq = &cq;
    EXPECT_TRUE(net_->host(1).qps.insert_xrc_srq(srq));
    poll_also(1, &cq);
    return srq;
}

// Connects an INI QP of host 0 with the TGT QP of host 1 that answers it.
Connection World::connect_xrc(const QpOptions& options, bool ipv6) {
    QpOptions target = options;
    target.type = IBV_QPT_XRC_RECV;
    Host &from = net_->host(0), &to = net_->host(1);
    QueuePair &ini = from.create(options), &tgt = to.create(target);
    ini.recv_cq = tgt.send_cq = tgt.recv_cq = nullptr;
    tgt.pd = tgt.recv_pd = nullptr;
    tgt.xrcd = this;
    tgt.slot.sges = std::make_unique<ibv_sge[]>(transport::kMaxSge);
    from.bring_up(ini, options, from.path_to(to, ipv6), tgt.qpn, options.psn, net_->now());
    to.bring_up(tgt, target, to.path_to(from, ipv6), ini.qpn, options.psn, net_->now());
    return {ini, tgt};
}

}  // namespace rove::test
