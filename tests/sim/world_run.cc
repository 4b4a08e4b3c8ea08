// SPDX-License-Identifier: Apache-2.0
// Runs a world: programs on both hosts post and poll from time to time, until all is done.
#include <sstream>

#include "world.h"

namespace rove::test {

namespace {
constexpr uint64_t kHorizon = 600'000'000'000;  // virtual: longer than any chain of timeouts of a world
constexpr uint64_t kStart = 1'000'000;          // start of the network's clock
constexpr uint32_t kNobodysKey = 0x7FFFFF01;
}  // namespace

void World::run() {
    for (uint32_t host = 0; host < 2; ++host) tick(host);
    if (!net_->run(kHorizon, [this] { return finished(); })) {
        ADD_FAILURE() << "stuck:\n" << describe();
        return;
    }
    ticking_ = false;
    if (!net_->run(net_->now() + kHorizon)) ADD_FAILURE() << "no rest after the end:\n" << describe();
    for (uint32_t host = 0; host < 2; ++host) poll(host);
    for (Direction& d : directions_) {
        settle_events(d);
        if (d.is_rc()) {
            settle_rc(d);
        } else {
            settle_unreliable(d);
        }
    }
    settle_counters();
    settle_memory();
    for (Arena& arena : arenas_) {
        if (arena.memory == arena.shadow) continue;
        size_t at = 0;
        while (arena.memory[at] == arena.shadow[at]) ++at;
        ADD_FAILURE() << "host " << arena.host->index() << ": wrong byte at " << at << ": " << int{arena.memory[at]}
                      << " instead of " << int{arena.shadow[at]};
    }
    for (uint32_t host = 0; host < 2; ++host) {
        EXPECT_EQ(net_->host(host).counter(Counter::kCqOverruns), 0u);
        for (size_t error = 0; error < net_->host(host).parse_errors.size(); ++error) {
            if (error != 0 && net_->egress[1 - host].corrupt == 0) {
                EXPECT_EQ(net_->host(host).parse_errors[error], 0u)
                    << wire::to_string(static_cast<wire::ParseError>(error));
            }
        }
    }
}

bool World::finished() const {
    for (const Direction& d : directions_) {
        if (d.ended != d.sends.size() || d.qp->state == IBV_QPS_SQD) return false;
        if (!d.is_rc()) continue;
        if (d.delivered == d.messages.size() && !d.broken()) continue;
        if (!d.broken() || d.receives_ended != d.pool->receives.size()) return false;
    }
    return true;
}

void World::tick(uint32_t host) {
    if (!ticking_) return;
    if (!net_->is_stalled(host)) run_program(host);
    // Ticks become slower, so that a stuck world is found soon.
    const uint64_t elapsed = net_->now() - kStart;
    net_->at(net_->now() + random_.between(1, tick_ns_ + elapsed / 64), [this, host] { tick(host); });
}

// Runs the host's program once.
void World::run_program(uint32_t host) {
    poll(host);
    for (Direction& d : directions_) {
        if (d.to->host->index() == host && d.is_rc()) check_visible(d);
    }
    for (ReceivePool& pool : pools_) {
        if (pool.arena->host->index() == host) post_receives(pool);
    }
    for (size_t i = 0; i < directions_.size(); ++i) {
        Direction& d = directions_[i];
        if (d.from->host->index() != host) continue;
        const Direction& reverse = directions_[i ^ 1];
        // A program that sees a broken connection ends it.
        if (d.is_rc() && (d.broken() || reverse.broken()) && random_.chance(0.3)) {
            d.from->host->engine.set_state(*d.qp, IBV_QPS_ERR, net_->now());
        }
        if (pause_eagerness_ != 0) pause_or_resume(d);
        post_sends(d);
    }
}

// Pauses a send queue, and resumes it some time after it has drained. The program posts all the while.
void World::pause_or_resume(Direction& d) {
    Host& host = *d.from->host;
    if (d.qp->state == IBV_QPS_RTS && d.ended != d.sends.size() && random_.chance(pause_eagerness_)) {
        ++d.drains;
        host.engine.set_state(*d.qp, IBV_QPS_SQD, net_->now());
    }
    if (d.qp->state != IBV_QPS_SQD || host.sink.count(IBV_EVENT_SQ_DRAINED, d.qp) != d.drains) return;
    poll(0);
    poll(1);
    const std::pair now(d.ended, d.is_rc() ? d.delivered : 0);  // UC and UD complete packets in flight
    EXPECT_EQ(d.drained_at.value_or(now), now) << "direction " << d.index << ": drained, and then there was more";
    d.drained_at = now;
    if (!random_.chance(0.3)) return;
    d.drained_at.reset();
    host.engine.set_state(*d.qp, IBV_QPS_RTS, net_->now());
}

void World::post_sends(Direction& d) {
    while (d.posted < d.sends.size() && d.qp->sq.room() != 0 && random_.chance(eagerness_)) {
        const PlannedSend& planned = d.sends[d.posted];
        Send send;
        send.wr_id = d.posted;
        send.opcode = planned.opcode;
        send.flags = planned.flags;
        for (const Range& piece : planned.local) {
            ibv_sge sge = d.from->sge(piece);
            if ((planned.flags & IBV_SEND_INLINE) != 0)
                sge.addr = reinterpret_cast<uint64_t>(d.from->memory.data() + piece.offset);
            if (planned.bad_lkey) sge.lkey = kNobodysKey;
            if (planned.narrow) sge.lkey = d.narrow.key;
            send.sges.push_back(sge);
        }
        send.immediate = planned.immediate;
        send.length = planned.length;
        send.remote_addr = d.to->region.iova + (planned.beyond_end ? d.to->memory.size() - kWithin : planned.remote);
        send.rkey = planned.bad_rkey ? kNobodysKey : d.to->region.key;
        send.compare_add = planned.compare_add;
        send.swap = planned.swap;
        send.path = &d.path;
        send.xrc_srqn = d.xrc_srqn;
        send.remote_qpn = d.peer->qpn;
        send.remote_qkey = d.options.qkey;
        if (!d.from->host->post(*d.qp, send)) break;
        ++d.posted;
    }
}

void World::post_receives(ReceivePool& pool) {
    // Receives come at last: a sender that retries often enough over a network with much loss exhausts its retries by
    // chance.
    const bool late = net_->now() > kStart + 1'000'000'000;
    while (pool.posted < pool.receives.size() && (late || random_.chance(receive_eagerness_))) {
        PlannedReceive& receive = pool.receives[pool.posted];
        std::vector<ibv_sge> sges;
        for (const Range& piece : receive.pieces) sges.push_back(pool.arena->sge(piece));
        const uint64_t wr_id = pool.posted | kIsReceive;
        const bool posted = pool.qp != nullptr ? pool.arena->host->post_recv(*pool.qp, wr_id, sges)
                                               : pool.arena->host->post_recv(*pool.queue, wr_id, sges);
        if (!posted) break;
        receive.posted = true;
        ++pool.posted;
    }
}

void World::poll(uint32_t host) {
    for (CompletionQueue* cq : cqs_[host]) {
        for (const ibv_wc& wc : net_->host(host).poll(*cq)) {
            bool known = false;
            for (Direction& d : directions_) {
                const bool receive = (wc.wr_id & kIsReceive) != 0;
                const QueuePair* qp = receive ? d.peer : d.qp;
                const Arena* arena = receive ? d.to : d.from;
                if (qp->qpn != wc.qp_num || arena->host->index() != host) continue;
                known = true;
                if (receive) {
                    on_receive(d, wc);
                } else {
                    on_send(d, wc);
                }
            }
            EXPECT_TRUE(known) << "completion of an unknown queue pair";
        }
    }
}

std::string World::describe() const {
    std::ostringstream out;
    for (uint32_t host = 0; host < 2; ++host) {
        const Impairment& link = net_->egress[host];
        const transport::Config& config = configs_[host];
        out << "  host " << host << ": loss " << link.loss << " corrupt " << link.corrupt << " reorder " << link.reorder
            << " delay " << link.delay_ns << " room " << link.room_packets << " refuse " << link.refuse << "; lanes";
        for (const Lane& lane : link.lanes) out << " +" << lane.delay_ns << '/' << lane.loss;
        out << "; window " << config.paths.max_window << " inferred " << config.paths.infer_losses << " explore "
            << config.paths.explore << " RTO " << config.paths.min_rto_ns << " ordering "
            << static_cast<int>(config.ordering) << " relaxed " << relaxed_[host] << " reorder "
            << static_cast<int>(config.reorder.kind) << '\n';
    }
    for (const Direction& d : directions_) {
        out << "  direction " << d.index
            << (d.type == IBV_QPT_RC   ? " RC"
                : d.type == IBV_QPT_UC ? " UC"
                : d.type == IBV_QPT_UD ? " UD"
                                       : " XRC")
            << ": " << d.sends.size() << " sends, " << d.posted << " posted, " << d.ended << " ended, " << d.succeeded
            << " succeeded; " << d.messages.size() << " messages, " << d.pool->posted << " receives posted, "
            << d.delivered << " delivered; states " << d.qp->state << ' ' << d.peer->state << "; next "
            << d.qp->next_psn() << " epsn " << d.peer->expected_psn();
        if (const transport::Rc* rc = d.qp->rc()) {
            out << " una " << rc->requester.una.value() << " max " << rc->requester.max_psn.value() << " reads "
                << rc->requester.reads_outstanding;
        }
        out << '\n';
    }
    return out.str();
}

}  // namespace rove::test
