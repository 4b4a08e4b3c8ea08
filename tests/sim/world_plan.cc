// SPDX-License-Identifier: Apache-2.0
// Drawing a world from its seed.
#include <algorithm>

#include "world.h"

namespace rove::test {

namespace {
constexpr size_t kEnoughBytes = 400'000;  // of an arena; then nothing more is planned for it
constexpr uint32_t kCompletions = 1024;   // all of a world's on one host
}  // namespace

size_t Arena::allocate(size_t bytes, Random& random, size_t align) {
    const size_t offset = (memory.size() + random.below(9) + align - 1) / align * align;
    memory.resize(offset + bytes + random.between(1, 8), kUntouched);
    shadow.resize(memory.size(), kUntouched);
    return offset;
}

void Arena::set(size_t offset, const std::vector<uint8_t>& data) {
    std::copy(data.begin(), data.end(), memory.begin() + static_cast<ptrdiff_t>(offset));
    std::copy(data.begin(), data.end(), shadow.begin() + static_cast<ptrdiff_t>(offset));
}

World::World(uint64_t seed, bool multipath) : seed_(seed), multipath_(multipath), random_(seed) {
    draw_network();
    for (uint32_t i = 0; i < 2; ++i) {
        arenas_[i].host = &net_->host(i);
        counters_[i] = arenas_[i].allocate(8, random_, 8);
        arenas_[i].set(counters_[i], std::vector<uint8_t>(8, 0));
    }
    draw_queue_pairs();
    for (Direction& d : directions_) plan(d);
    plan_receives();
    for (Arena& arena : arenas_) {
        arena.memory.shrink_to_fit();
        arena.region.host = arena.memory.data();
        // The iova differs from the address, as with ibv_reg_mr_iova; both are aligned alike.
        arena.region.iova = reinterpret_cast<uint64_t>(arena.memory.data()) + (random_.below(1000) << 20);
        arena.region.length = arena.memory.size();
        arena.region.access = kAllAccess | (relaxed_[arena.host->index()] ? IBV_ACCESS_RELAXED_ORDERING : 0);
        arena.region.pd = arena.host;
        arena.host->memory.insert(arena.region);
    }
    for (Direction& d : directions_) {
        if (d.narrow.length == 0) continue;
        d.narrow.iova = d.from->region.iova;
        d.narrow.host = d.from->region.host;
        d.narrow.access = d.from->region.access;
        d.narrow.pd = d.from->region.pd;
        d.from->host->memory.insert(d.narrow);
    }
}

World::~World() {
    for (Direction& d : directions_) {
        d.from->host->destroy(*d.qp);
        if (d.narrow.length != 0) d.from->host->memory.remove(d.narrow);
    }
    for (Arena& arena : arenas_) arena.host->memory.remove(arena.region);
}

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

// Of what is sent by host `from`: mp/README.md.
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
        // One READ of 4000 loses its request or its first response eight times in a row at 0.2, and then it may fail.
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
    // Paths that go dark and return, but one.
    if (!clean_ && random_.chance(0.3)) {
        Impairment& link = net_->egress[random_.below(2)];
        for (size_t i = 1; i < link.lanes.size(); ++i) {
            const uint64_t begin = net_->now() + random_.below(2'000'000);
            if (random_.chance(0.5)) link.lanes[i].dark.push_back({begin, begin + random_.below(10'000'000)});
        }
    }
    // A host that stands still is slow, not dead: nothing may fail for it.
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
        const ibv_qp_type type = random_.chance(0.8) ? IBV_QPT_RC : random_.chance(0.5) ? IBV_QPT_UC : IBV_QPT_UD;
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
            o.max_rd_atomic = static_cast<uint8_t>(random_.pick(1, 2, 3, 4, 16));
            o.psn = random_.chance(0.3) ? 0xFFFFFF - static_cast<uint32_t>(random_.below(50))
                                        : static_cast<uint32_t>(random_.below(1 << 24));
            o.sq_sig_all = random_.chance(0.2);
            o.min_rnr_timer = static_cast<uint8_t>(random_.between(1, 16));
            // Over many paths each of the retries may meet a dead one: there are more of them, and more time.
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
        Connection made = connect(*net_, net_->host(0), net_->host(1), options[0], options[1], ipv6);
        QueuePair* qps[2] = {&made.a, &made.b};
        for (uint32_t i = 0; i < 2; ++i) {
            directions_.emplace_back();
            Direction& d = directions_.back();
            d.index = static_cast<uint32_t>(directions_.size() - 1);
            d.type = type;
            d.from = &arenas_[i];
            d.to = &arenas_[1 - i];
            d.qp = qps[i];
            d.peer = qps[1 - i];
            d.options = options[i];
            d.reliable = reliable_ && !fails;
            d.doomed = fails && i == failing;
            d.promise = type == IBV_QPT_RC ? promise(i) : Promise::kNone;
            d.path = net_->host(i).path_to(net_->host(1 - i), ipv6);
            if (options[1 - i].srq != nullptr) {
                d.pool = srq_pool[1 - i];
                continue;
            }
            pools_.emplace_back();
            d.pool = &pools_.back();
            d.pool->arena = d.to;
            d.pool->queue = &d.peer->rq;
            d.pool->qp = d.peer;
        }
    }
    for (Direction& d : directions_) {
        for (CompletionQueue* cq : {d.qp->send_cq, d.qp->recv_cq}) {
            auto& all = cqs_[d.from->host->index()];
            if (std::find(all.begin(), all.end(), cq) == all.end()) all.push_back(cq);
        }
    }
}

std::vector<uint8_t> World::draw_data(size_t bytes) {
    std::vector<uint8_t> data(bytes);
    for (size_t i = 0; i < bytes; i += 8) {
        const uint64_t word = random_.next();
        std::memcpy(data.data() + i, &word, std::min<size_t>(8, bytes - i));
    }
    for (uint8_t& byte : data) byte = byte == kUntouched ? 0x11 : byte;
    return data;
}

std::vector<Range> World::draw_pieces(Arena& arena, uint32_t bytes, uint32_t most) {
    std::vector<Range> pieces;
    const uint64_t count = random_.chance(0.5) ? 1 : random_.between(1, most);
    for (uint64_t i = 1; i <= count; ++i) {
        uint32_t part = i == count ? bytes : static_cast<uint32_t>(random_.below(bytes + 1));
        if (i != count && random_.chance(0.2)) part = 0;
        pieces.push_back({arena.allocate(part, random_), part});
        bytes -= part;
    }
    return pieces;
}

uint32_t World::draw_bytes(const Direction& d) {
    const uint32_t mtu = d.options.mtu;
    if (d.type == IBV_QPT_UD) return static_cast<uint32_t>(random_.between(8, mtu));
    uint64_t bytes;
    switch (random_.below(6)) {
        case 0:
            bytes = random_.below(9);
            break;
        case 1:
            bytes = random_.below(300);
            break;
        case 2:
            bytes = mtu * random_.between(1, 3) + random_.below(3) - 1;
            break;
        case 3:
            bytes = random_.below(mtu * 4ull);
            break;
        case 4:
            bytes = random_.below(8000);
            break;
        default:
            bytes = random_.chance(0.1) ? random_.below(60'000) : random_.below(20'000);
            break;
    }
    if (d.type == IBV_QPT_UC) bytes = std::max<uint64_t>(bytes, 8);
    if (d.pool->qp == nullptr) bytes %= 3000;  // an SRQ's receives are all as long as the longest message
    return static_cast<uint32_t>(bytes);
}

void World::plan(Direction& d) {
    if (d.type == IBV_QPT_RC && d.reliable) {
        d.hot = d.to->allocate(kHotBytes, random_);
        d.hot_model = draw_data(kHotBytes);
        d.to->set(d.hot, d.hot_model);
    }
    const uint64_t count = random_.chance(0.1) ? 0 : random_.between(1, 40);
    const double alike = random_.chance(0.3) ? 0.7 : 0;  // requests that are as the one before, as in a program's lists
    bool read_since_fence = false;
    for (size_t i = 0; i < count; ++i) {
        if (d.to->memory.size() > kEnoughBytes) break;
        PlannedSend send;
        const PlannedSend* like = !d.sends.empty() && random_.chance(alike) ? &d.sends.back() : nullptr;
        if (random_.chance(0.15)) send.flags |= IBV_SEND_FENCE;
        if (random_.chance(0.1)) send.flags |= IBV_SEND_SOLICITED;
        if (random_.chance(0.1)) send.flags |= ROVE_SEND_SYNC;
        if (like != nullptr) send.flags = like->flags & ~static_cast<uint32_t>(IBV_SEND_SIGNALED | IBV_SEND_INLINE);
        if (random_.chance(0.6)) send.flags |= IBV_SEND_SIGNALED;
        send.immediate = static_cast<uint32_t>(random_.next());
        if (d.type == IBV_QPT_RC) {
            plan_rc(d, send, like);
        } else {
            plan_datagram(d, send, i);
        }
        // What was read and not fenced may be read late, so it must not be overwritten before.
        if (!send.fresh && send.is_write() && read_since_fence) send.flags |= IBV_SEND_FENCE;
        if ((send.flags & IBV_SEND_FENCE) != 0) read_since_fence = false;
        if (!send.fresh && send.is_read()) read_since_fence = true;
        // The last one is signaled, so that its end is seen; a full queue of unsignaled requests is the program's
        // mistake.
        if (i + 1 == count || i % d.options.depth == d.options.depth - 1) send.flags |= IBV_SEND_SIGNALED;
        if (d.options.sq_sig_all) send.flags |= IBV_SEND_SIGNALED;
        if (!send.is_read() && !send.is_atomic() && send.data.size() <= d.options.max_inline && random_.chance(0.3))
            send.flags |= IBV_SEND_INLINE;
        d.sends.push_back(std::move(send));
    }
    if (d.doomed) plan_failure_at_home(d);
    if (!reliable_ && d.type == IBV_QPT_RC && random_.chance(0.4) && !d.sends.empty()) plan_poison(d);
    if (!d.sends.empty()) d.sends.back().flags |= IBV_SEND_SIGNALED;
    for (size_t i = 0; i < d.sends.size(); ++i) {
        if (d.sends[i].is_message() && (!d.sends[i].poison || d.sends[i].fails_at_home())) d.messages.push_back(i);
    }
    d.message_seen.assign(d.sends.size(), false);
}

void World::plan_rc(Direction& d, PlannedSend& send, const PlannedSend* like) {
    const uint64_t what = random_.below(100);
    send.opcode = what < 25   ? IBV_WR_SEND
                  : what < 35 ? IBV_WR_SEND_WITH_IMM
                  : what < 60 ? IBV_WR_RDMA_WRITE
                  : what < 70 ? IBV_WR_RDMA_WRITE_WITH_IMM
                  : what < 85 ? IBV_WR_RDMA_READ
                  : what < 93 ? IBV_WR_ATOMIC_FETCH_AND_ADD
                              : IBV_WR_ATOMIC_CMP_AND_SWP;
    if (like != nullptr) send.opcode = like->opcode;
    if (send.is_atomic()) {
        send.local = draw_pieces(*d.from, 8, 3);
        if (d.reliable && send.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD && random_.chance(0.5)) {
            send.shared_counter = true;
            send.fresh = false;
            send.remote = counters_[d.to->host->index()];
            send.compare_add = random_.between(1, 1000);
            d.counter_added += send.compare_add;
            return;
        }
        // A word of its own: each request's answer and effect are known.
        send.remote = d.to->allocate(8, random_, 8);
        send.data = draw_data(8);
        d.to->set(send.remote, send.data);
        uint64_t original;
        std::memcpy(&original, send.data.data(), 8);
        send.swap = random_.next();
        send.compare_add = send.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD ? random_.next()
                           : random_.chance(0.5)                      ? original
                                                                      : original + 1;
        return;
    }
    const uint32_t bytes = like != nullptr ? like->bytes() : draw_bytes(d);
    send.local = draw_pieces(*d.from, bytes, like != nullptr ? 1 : 5);
    const bool hot = d.reliable && !send.is_send() && bytes != 0 && bytes < kHotBytes / 2 && random_.chance(0.3);
    if (hot) {
        send.fresh = false;
        const size_t at = random_.below(kHotBytes - bytes);
        send.remote = d.hot + at;
        if (send.is_read()) {
            send.data.assign(d.hot_model.begin() + static_cast<ptrdiff_t>(at),
                             d.hot_model.begin() + static_cast<ptrdiff_t>(at + bytes));
            return;
        }
        if (d.promise != Promise::kInOrder) send.flags |= ROVE_SEND_SYNC;
        send.data = draw_data(bytes);
        std::copy(send.data.begin(), send.data.end(), d.hot_model.begin() + static_cast<ptrdiff_t>(at));
    } else {
        send.data = draw_data(bytes);
        if (!send.is_send()) send.remote = d.to->allocate(bytes, random_);
        if (send.is_read()) {
            d.to->set(send.remote, send.data);
            return;
        }
    }
    size_t done = 0;
    for (const Range& piece : send.local) {
        const auto begin = send.data.begin() + static_cast<ptrdiff_t>(done);
        d.from->set(piece.offset, std::vector<uint8_t>(begin, begin + piece.bytes));
        done += piece.bytes;
    }
}

// UC and UD.
void World::plan_datagram(Direction& d, PlannedSend& send, size_t index) {
    const uint64_t what = random_.below(d.type == IBV_QPT_UC ? 4 : 2);
    send.opcode = what == 0   ? IBV_WR_SEND
                  : what == 1 ? IBV_WR_SEND_WITH_IMM
                  : what == 2 ? IBV_WR_RDMA_WRITE
                              : IBV_WR_RDMA_WRITE_WITH_IMM;
    const uint32_t bytes = draw_bytes(d);
    send.data = draw_data(bytes);
    const uint64_t id = 0x1111111100000000ull | index;
    std::memcpy(send.data.data(), &id, 8);
    send.immediate = static_cast<uint32_t>(index);
    send.local = draw_pieces(*d.from, bytes, 5);
    if (send.is_write()) send.remote = d.to->allocate(bytes, random_);
    size_t done = 0;
    for (const Range& piece : send.local) {
        const auto begin = send.data.begin() + static_cast<ptrdiff_t>(done);
        d.from->set(piece.offset, std::vector<uint8_t>(begin, begin + piece.bytes));
        done += piece.bytes;
    }
}

// Turns one of the requests into one whose local memory is not there, or not all of it.
void World::plan_failure_at_home(Direction& d) {
    const size_t first = random_.below(d.sends.size() + 1);
    const auto found = std::find_if(d.sends.begin() + static_cast<ptrdiff_t>(first), d.sends.end(),
                                    [](const PlannedSend& send) { return send.bytes() != 0; });
    d.doomed = found != d.sends.end();
    if (!d.doomed) return;
    PlannedSend& send = *found;
    send.flags &= ~static_cast<uint32_t>(IBV_SEND_INLINE);
    send.poison = IBV_WC_LOC_PROT_ERR;
    uint32_t usable = 0;
    if (send.local.size() == 1 && random_.chance(0.7)) {
        usable = static_cast<uint32_t>(random_.below(send.bytes()));
        send.narrow = true;
        d.narrow.length = send.local[0].offset + usable;
    } else {
        send.bad_lkey = true;
    }
    if (!send.is_atomic()) send.data.resize(usable / d.options.mtu * d.options.mtu);
}

// Turns a request, most often the last one, into one that must fail.
void World::plan_poison(Direction& d) {
    if (random_.chance(0.2)) {
        plan_failure_at_home(d);
        return;
    }
    PlannedSend& send = d.sends.back();
    send = {};
    send.flags = IBV_SEND_SIGNALED;
    send.local = {{d.from->allocate(1000, random_), 1000}};
    send.remote = d.to->allocate(1000, random_, 8);
    switch (random_.below(4)) {
        case 0:
            send.opcode = IBV_WR_RDMA_WRITE;
            send.poison = IBV_WC_REM_ACCESS_ERR;
            send.bad_rkey = true;
            break;
        case 1:
            send.opcode = IBV_WR_RDMA_READ;
            send.poison = IBV_WC_REM_ACCESS_ERR;
            send.beyond_end = true;
            break;
        case 2:
            send.opcode = IBV_WR_SEND;
            send.poison = IBV_WC_REM_INV_REQ_ERR;
            send.too_long = true;
            break;
        default:
            send.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
            send.local[0].bytes = 8;
            send.poison = IBV_WC_REM_INV_REQ_ERR;
            send.remote += 4;
            break;
    }
}

// As many receives as messages; in a queue of its own each fits its message, in an SRQ any fits any.
void World::plan_receives() {
    for (ReceivePool& pool : pools_) {
        uint32_t most = 0;
        std::vector<uint32_t> sizes;
        bool grh = false;
        for (Direction& d : directions_) {
            if (d.pool != &pool) continue;
            grh = d.type == IBV_QPT_UD;
            for (size_t i : d.messages) {
                sizes.push_back(d.sends[i].is_send() ? d.sends[i].bytes() : 0);
                most = std::max(most, sizes.back());
            }
            if (!d.sends.empty() && d.sends.back().too_long) sizes.push_back(d.sends.back().local[0].bytes / 2);
        }
        const bool any_fits_any = pool.qp == nullptr || pool.qp->type != IBV_QPT_RC;
        for (uint32_t bytes : sizes) {
            if (any_fits_any) bytes = most;
            if (random_.chance(0.3)) bytes += static_cast<uint32_t>(random_.below(50));
            if (grh) bytes += 40;
            PlannedReceive receive;
            receive.bytes = bytes;
            receive.pieces = draw_pieces(*pool.arena, bytes, 5);
            pool.receives.push_back(std::move(receive));
        }
    }
}

}  // namespace rove::test
