// SPDX-License-Identifier: Apache-2.0
#include "runtime/worker.h"

#include <rte_prefetch.h>

#include <algorithm>
#include <string>
#include <utility>

#include "port/memif/link_port.h"
#include "runtime/eal.h"
#include "runtime/progress_thread.h"
#include "runtime/worker_core.h"

namespace rove::datapath {

namespace {
constexpr unsigned kHandOverFrames = 1024;  // frames on their way to another worker: a few bursts from each
// The largest number of posts that are sent together (WorkerCore::send_posted()): small packets fill a TX burst. With 8
// B WRITEs posted one by one over memif between two Sapphire Rapids cores, 8 gives 5.3 M/s and 32 gives 9.0 M/s.
constexpr uint32_t kPostsTogether = TxQueue::Burst{}.frames;
// The longest time for which posts alone may keep a worker from receiving. If it exceeded the shortest timer (1 ms),
// each timer would retransmit packets that the peer acknowledged long ago.
constexpr uint64_t kReceiveWithinNs = 50'000;
// The shortest time between two lookups of suspects, so that a peer that repeats itself does not cost a lock per
// packet.
constexpr uint64_t kSuspectNs = 1'000'000;
}  // namespace

WorkerCore::WorkerCore(const Shared& shared, uint16_t index, unsigned lcore, rte_mempool* pool)
    : shared_(shared),
      index_(index),
      lcore_(lcore),
      sink_(pool, shared.listener, counters_, shared.queue_pairs.groups()),
      guard_(shared.memory),
      engine_(shared.config, shared.queue_pairs, shared.memory, shared.time_wait, sink_, index) {}

WorkerCore::~WorkerCore() {
    rte_ring_free(handed_over_);
}

bool WorkerCore::init() {
    handed_over_ = rte_ring_create(("rove-frames-" + std::to_string(index_)).c_str(), kHandOverFrames, SOCKET_ID_ANY,
                                   RING_F_MP_RTS_ENQ | RING_F_SC_DEQ);  // a preempted producer delays no other
    return handed_over_ != nullptr;
}

void WorkerCore::add_interface(RdmaInterface& interface, Port& port, const ImpairConfig& impair) {
    if (ports_.size() <= port.id()) ports_.resize(port.id() + 1u);
    PortUse& added = ports_[port.id()];
    added.interface = &interface;
    added.port = &port;
    for (size_t queue = index_; queue < port.queues(); queue += workers_->size()) {
        if (auto made = port.make_rx_queue(static_cast<uint16_t>(queue)); made != nullptr)
            added.queues.push_back(std::move(made));
    }
    if (!impair.none()) added.impairment = std::make_unique<Impairment>(impair, shelf_, impair_pool());
    if (index_ < port.queues()) sink_.add_port(port, port.make_tx_queue(index_));
}

void WorkerCore::add_link(const Port& port, const LinkRings& link) {
    if (link.receiver != nullptr) ports_[port.id()].links.add(*link.receiver);
    if (link.sender != nullptr) sink_.add_link(port, link.outlet, link.peer.mac, *link.sender);
}

void WorkerCore::remove_link(const Port& port, const LinkRings& link) {
    constexpr uint32_t kMaxRounds = 1024;  // stops receiving from a peer that keeps sending while its link is removed
    PortUse& use = ports_[port.id()];
    if (link.receiver != nullptr) {
        const LcoreScope lcore(lcore_);
        begin_round();
        for (uint32_t rounds = 0; link.receiver->has_frames() && rounds < kMaxRounds; ++rounds)
            receive_from(*link.receiver, use), transmit();
        use.links.remove(*link.receiver);
    }
    const LcoreScope lcore(lcore_);
    sink_.flush();
    if (link.sender != nullptr) sink_.remove_link(link.outlet);
}

void WorkerCore::tell_background() {
    if (shared_.background.sleeps_long()) [[unlikely]]
        shared_.background.wake_by(next_wakeup_ns());
}

bool WorkerCore::arm() {
    for (PortUse& use : ports_) {
        // Frames that are left in a port that is not ready are not read.
        if (use.port == nullptr || !use.port->ready()) continue;
        bool nothing_came = use.links.arm();
        for (const auto& queue : use.queues) nothing_came = nothing_came && queue->arm();
        if (nothing_came) continue;
        if (sleepers_ == 0) mask_doorbells();
        return false;
    }
    ++sleepers_;
    protocol_clock_.begin_rest(shared_.clock.now_ns(), next_deadline());
    return true;
}

void WorkerCore::disarm(uint64_t rested_ns) {
    if (--sleepers_ != 0) {
        for (PortUse& use : ports_) use.links.arm_again();
        return;
    }
    protocol_clock_.end_rest(rested_ns);
    mask_doorbells();
}

void WorkerCore::mask_doorbells() {
    for (PortUse& use : ports_) {
        use.links.disarm();
        for (const auto& queue : use.queues) queue->disarm();
    }
}

void WorkerCore::begin_round() {
    now_ns_ = shared_.clock.now_ns();
    protocol_ns_ = protocol_clock_.begin_round(now_ns_, [this] {
        chores_due_ = true;
        return sink_.is_stalled();
    });
    engine_.set_behind(now_ns_ - protocol_ns_);
    if (const uint64_t ns = protocol_clock_.missed_ns(); ns != missed_ns_) [[unlikely]] {
        engine_.miss(ns - std::exchange(missed_ns_, ns));
        unread_ = kMaxUnread;
    }
}

uint32_t WorkerCore::round() {
    const LcoreScope lcore(lcore_);
    if (posts_ > 1 && batching_rounds_ < kRoundsToBatch) ++batching_rounds_;
    posts_ = 0;
    begin_round();
    const uint32_t received = receive();
    return received + transmit();
}

uint32_t WorkerCore::background_round() {
    if (posts_ > 1) batching_rounds_ = 0;
    return round();
}

void WorkerCore::send_posted(transport::QueuePair& qp) {
    if (++posts_ % kPostsTogether != 1 && batching_rounds_ == kRoundsToBatch) {
        engine_.doorbell(qp);
        sink_.deliver();
        if (posts_ % kPostsTogether != 0) return;
    }
    const LcoreScope lcore(lcore_);
    begin_round();
    if (now_ns_ - received_ns_ > kReceiveWithinNs) receive();
    engine_.doorbell(qp);
    transmit();
}

uint32_t WorkerCore::transmit() {
    take_doorbells();
    if (chores_due_) [[unlikely]]
        run_periodic_tasks();
    if (engine_.next_deadline() <= protocol_ns_ || engine_.has_active())
        guard_.run([this] { run_engine(); }, [this] { engine_.recover_transmit(); });
    return sink_.flush();
}

// Does work that is not needed in every round.
void WorkerCore::run_periodic_tasks() {
    chores_due_ = false;
    if (sink_.has_suspects() && now_ns_ - suspected_ns_ >= kSuspectNs) {
        suspected_ns_ = now_ns_;
        for (const PacketSink::Suspect& suspect : sink_.take_suspects())
            ports_[suspect.port].interface->suspect(suspect.peer, now_ns_);
    }
    if (index_ != 0) return;
    for (PortUse& use : ports_)
        if (use.port != nullptr && use.interface->due_ns() <= now_ns_ && use.port->ready()) send_control_frames(use);
}

void WorkerCore::run_engine() {
    if (engine_.next_deadline() <= protocol_ns_ && unread_ == 0) engine_.expire(protocol_ns_);
    if (engine_.has_active()) engine_.transmit(protocol_ns_, kTransmitBudget);
}

uint64_t WorkerCore::next_deadline() const {
    uint64_t deadline_ns = std::min(protocol_clock_.real(engine_.next_deadline(), now_ns_), next_release());
    for (const PortUse& port : ports_) {
        if (index_ == 0 && port.port != nullptr && port.port->ready())
            deadline_ns = std::min(deadline_ns, port.interface->due_ns());
    }
    return deadline_ns;
}

uint64_t WorkerCore::next_release() const {
    uint64_t release_ns = UINT64_MAX;
    for (const PortUse& port : ports_)
        if (port.impairment != nullptr) release_ns = std::min(release_ns, port.impairment->next_deadline());
    return release_ns;
}

std::string WorkerCore::impair(uint16_t port, std::optional<uint32_t> path, std::string_view changes) {
    std::unique_ptr<Impairment>& impairment = ports_[port].impairment;
    const size_t paths = impairment == nullptr ? 0 : impairment->paths().size() - 1;
    if (path && *path >= paths)
        return "got path " + std::to_string(*path) + ", allowed all" +
               (paths == 0 ? ": no paths are configured" : ", or 0.." + std::to_string(paths - 1));
    PathSettings tried;
    if (std::string wrong = change(tried, changes); !wrong.empty()) return wrong;
    const LcoreScope lcore(lcore_);
    if (impairment == nullptr) {
        rte_mempool* const pool = impair_pool();
        if (pool == nullptr) return "no memory for frames that are held back; allowed: more by EAL's -m";
        impairment = std::make_unique<Impairment>(ImpairConfig{}, shelf_, pool);
    }
    impairment->change(path, changes, now_ns());
    return {};
}

uint32_t WorkerCore::receive() {
    static_assert(Impairment::kBurst >= 2 * kRxBurst, "frames that wait would become ever more");
    const uint32_t received = receive_burst();
    unread_ -= received < kRxBurst ? unread_ : std::min(unread_, received);
    return received;
}

uint32_t WorkerCore::receive_burst() {
    received_ns_ = now_ns_;
    uint32_t received = 0;
    for (PortUse& from : ports_) {
        if (from.port == nullptr) continue;
        const std::span<RingReceiver* const> links = from.links.due();
        if (!from.port->ready() || (from.queues.empty() && links.empty())) {
            if (from.impairment != nullptr) received += take_all(impair({}, from), from);
            continue;
        }
        for (RingReceiver* const link : links)
            if (link->has_frames() || from.impairment != nullptr) received += receive_from(*link, from);
        for (const auto& queue : from.queues) received += receive_from(*queue, from);
    }
    rte_mbuf* mbufs[kRxBurst];
    if (const uint16_t count = sink_.take_loopback(mbufs, kRxBurst); count != 0) {
        received += count;
        for (uint16_t i = 0; i < count; ++i) parse_burst(&mbufs[i], 1, ports_[mbufs[i]->port], FrameSource::kLoopback);
    }
    // Only other workers put frames there.
    if (workers_->size() > 1) {
        const unsigned count =
            rte_ring_sc_dequeue_burst(handed_over_, reinterpret_cast<void**>(mbufs), kRxBurst, nullptr);
        received += count;
        for (unsigned i = 0; i < count; ++i) parse_burst(&mbufs[i], 1, ports_[mbufs[i]->port], FrameSource::kWorker);
    }
    return received;
}

uint32_t WorkerCore::receive_from(RxQueue& queue, PortUse& from) {
    rte_mbuf* mbufs[kRxBurst];
    std::span<rte_mbuf*> frames(mbufs, queue.burst(mbufs));
    const auto count = static_cast<uint32_t>(frames.size());
    if (capture_ != nullptr) [[unlikely]]
        for (const rte_mbuf* const frame : frames)
            capture_->received(from.port->id(), {rte_pktmbuf_mtod(frame, const uint8_t*), frame->data_len});
    if (from.impairment != nullptr) [[unlikely]]
        frames = impair(frames, from);
    const uint32_t received = std::max(count, take_all(frames, from));
    if (queue.is_zero_copy()) queue.release();
    return received;
}

// Parses and delivers frames in bursts. Fault injection may return more frames than the port gave: delayed frames and
// duplicates.
uint32_t WorkerCore::take_all(std::span<rte_mbuf*> frames, PortUse& from) {
    const auto count = static_cast<uint32_t>(frames.size());
    while (!frames.empty()) {
        const size_t burst = std::min<size_t>(frames.size(), kRxBurst);
        parse_burst(frames.data(), static_cast<uint16_t>(burst), from, FrameSource::kPort);
        frames = frames.subspan(burst);
    }
    return count;
}

std::span<rte_mbuf*> WorkerCore::impair(std::span<rte_mbuf*> frames, PortUse& from) {
    size_t kept = 0;
    for (rte_mbuf* const frame : frames)
        if (rte_mbuf* const own = keep(frame, impair_pool_); own != nullptr) frames[kept++] = own;
    // Uses the current time, not the start of the round: if we were preempted meanwhile, delays must not become
    // shorter.
    return from.impairment->run(frames.first(kept), now_ns());
}

rte_mempool* WorkerCore::impair_pool() {
    if (impair_pool_ != nullptr) return impair_pool_;
    rte_mempool* const own = sink_.pool();
    impair_pool_ = own->size >= kImpairedMbufs
                       ? own
                       : rte_pktmbuf_pool_create(("rove-impair-" + std::to_string(index_)).c_str(), kImpairedMbufs,
                                                 kPoolCacheMbufs, 0, rte_pktmbuf_data_room_size(own), SOCKET_ID_ANY);
    return impair_pool_;
}

rte_mbuf* WorkerCore::keep(rte_mbuf* mbuf, rte_mempool* pool) {
    if (mbuf->pool != nullptr) return mbuf;
    rte_mbuf* const copy = rte_pktmbuf_copy(mbuf, pool, 0, UINT32_MAX);
    if (copy == nullptr) ++counters_[PortCounter::kRxNoMbuf];
    return copy;
}

void WorkerCore::parse_burst(rte_mbuf** mbufs, uint16_t count, PortUse& from, FrameSource origin) {
    constexpr uint16_t kAhead = 4;  // frames whose headers are being prefetched into L1
    for (uint16_t i = 0; i < std::min(count, kAhead); ++i) rte_prefetch0(rte_pktmbuf_mtod(mbufs[i], void*));
    wire::ParsedFrame* small[kRxBurst];
    uint16_t small_count = 0;
    for (uint16_t i = 0; i < count; ++i) {
        if (i + kAhead < count) rte_prefetch0(rte_pktmbuf_mtod(mbufs[i + kAhead], void*));
        Frame& read = from.frames[i];
        if (read_frame(mbufs[i], read, *from.interface, origin)) small[small_count++] = &read.parsed;
    }
    wire::verify({small, small_count});
    ParsedBurst frames{mbufs, count, from};
    guard_.run([&] { deliver_burst(frames); }, [&] { recover(frames); });
    if (frames.finished != 0) rte_mempool_put_bulk(sink_.pool(), reinterpret_cast<void**>(mbufs), frames.finished);
}

// Prefetches a frame that is in the peer's memory, because access to it is slow and each frame is a stream of its own
// to the hardware prefetcher.
static inline void fetch(const rte_mbuf& frame) {
    constexpr uint16_t kMost = 1024;
    if (frame.pool != nullptr) return;
    const uint16_t end = std::min<uint16_t>(frame.data_len, kMost);
    for (uint16_t at = wire::kHeadBytes; at < end; at += RTE_CACHE_LINE_SIZE)
        rte_prefetch0(rte_pktmbuf_mtod_offset(&frame, const void*, at));
}

// Starts at frames.next, so that it can be called again after a fault has aborted it.
void WorkerCore::deliver_burst(ParsedBurst& frames) {
    while (frames.next < frames.count) {
        if (const uint16_t after = frames.next + 1u; after < frames.count) fetch(*frames.mbufs[after]);
        const bool stays = deliver_frame(frames.mbufs[frames.next], frames.from.frames[frames.next], frames.from);
        finish_frame(frames, stays);
    }
}

// Removes frames that were passed on from the burst, and collects the others to free them together. This does the same
// as rte_pktmbuf_free_bulk() in half the instructions, because nearly all frames have one segment and come from one
// pool.
void WorkerCore::finish_frame(ParsedBurst& frames, bool stays) {
    rte_mbuf* const mbuf = frames.mbufs[frames.next++];
    if (!stays || mbuf->pool == nullptr) return;
    if (mbuf->nb_segs != 1 || mbuf->pool != sink_.pool()) [[unlikely]]
        rte_pktmbuf_free(mbuf);
    else if (rte_mbuf* const free = rte_pktmbuf_prefree_seg(mbuf); free != nullptr) [[likely]]
        frames.mbufs[frames.finished++] = free;
}

void WorkerCore::recover(ParsedBurst& frames) {
    const wire::ParsedFrame& frame = frames.from.frames[frames.next].parsed;
    transport::QueuePair* const qp = shared_.queue_pairs.find(frame.headers.bth.dest_qpn, frames.from.port->id());
    if (!engine_.recover_receive(frame, qp)) finish_frame(frames, true);
}

bool WorkerCore::read_frame(rte_mbuf* mbuf, Frame& read, const RdmaInterface& interface, FrameSource origin) {
    if (mbuf->nb_segs != 1 && rte_pktmbuf_linearize(mbuf) != 0) [[unlikely]]
        return false;
    std::span<const uint8_t> bytes(rte_pktmbuf_mtod(mbuf, const uint8_t*), mbuf->data_len);
    bool again;
    if (mbuf->pool == nullptr) {
        const bool small = bytes.size() <= Frame::kCopiedBytes;
        wire::copy(read.copy.data(), bytes.data(), small ? static_cast<uint32_t>(bytes.size()) : wire::kHeadBytes);
        if (small) bytes = {read.copy.data(), bytes.size()};
        read.error = wire::parse_headers(read.copy.data(), bytes, read.parsed, read.flow, &again);
    } else {
        read.error = wire::parse_headers(bytes, read.parsed, read.flow, &again);
    }
    if (read.error != wire::ParseError::kNone) [[unlikely]]
        return false;
    if (!again || read.origin != origin) {
        read.origin = origin;
        read.accepted = interface.receives(read.parsed.flow, origin == FrameSource::kPort);
    }
    // A frame with a small payload was copied whole if it was in the peer's memory, so its payload is contiguous.
    return read.parsed.payload_bytes <= wire::kSmallPayload && bytes.size() <= Frame::kCopiedBytes;
}

bool WorkerCore::deliver_frame(rte_mbuf* mbuf, Frame& read, PortUse& from) {
    if (mbuf->nb_segs != 1) [[unlikely]] {
        ++counters_[PortCounter::kRxSegments];
        return true;
    }
    if (read.error != wire::ParseError::kNone) [[unlikely]] {
        ++counters_.parse[static_cast<size_t>(read.error)];
        return read.error != wire::ParseError::kNotRoce || discover(mbuf, from);
    }
    wire::ParsedFrame& frame = read.parsed;
    if (!read.accepted) [[unlikely]] {
        if (!frame.verified && !wire::verify(frame))
            ++counters_.parse[static_cast<size_t>(wire::ParseError::kIcrc)];
        else
            ++counters_[from.interface->on_vlan(frame.flow.vlan) ? PortCounter::kRxNotOurs : PortCounter::kRxVlan];
        return true;
    }
    transport::QueuePair* qp = shared_.queue_pairs.find(frame.headers.bth.dest_qpn, from.port->id());
    if (qp != nullptr && qp->worker != index_) [[unlikely]] {
        hand_over(mbuf, from.port->id(), qp->worker);
        return false;
    }
    if (!engine_.receive(frame, qp, from.port->id(), protocol_ns_)) [[unlikely]]
        ++counters_.parse[static_cast<size_t>(wire::ParseError::kIcrc)];
    else if (qp == nullptr && read.origin != FrameSource::kWorker && frame.headers.bth.dest_qpn == wire::kMulticastQpn)
        [[unlikely]]
        hand_over_copies(mbuf, from.port->id(), frame.flow.dst);
    return true;
}

void WorkerCore::hand_over(rte_mbuf* frame, uint16_t port, uint16_t worker) {
    rte_mbuf* const mbuf = keep(frame, sink_.pool());
    if (mbuf == nullptr) return;
    mbuf->port = port;
    if (rte_ring_enqueue((*workers_)[worker]->core_->handed_over_, mbuf) == 0) {
        ++counters_[PortCounter::kRxHandedOver];
        return;
    }
    ++counters_[PortCounter::kRxHandOverFull];
    rte_pktmbuf_free(mbuf);
}

void WorkerCore::hand_over_copies(rte_mbuf* mbuf, uint16_t port, const wire::Gid& group) {
    const transport::MulticastGroup* const joined = shared_.queue_pairs.groups().find(port, group);
    if (joined == nullptr) return;
    for (uint16_t worker = 0; worker < workers_->size(); ++worker) {
        if (worker == index_ || joined->members(worker).empty()) continue;
        if (rte_mbuf* copy = rte_pktmbuf_copy(mbuf, sink_.pool(), 0, UINT32_MAX)) hand_over(copy, port, worker);
    }
}

bool WorkerCore::discover(rte_mbuf* frame, PortUse& from) {
    rte_mbuf* const mbuf = keep(frame, sink_.pool());
    if (mbuf == nullptr) return true;
    const bool stays = discover_kept(mbuf, from);
    if (mbuf == frame) return stays;
    if (stays) rte_pktmbuf_free(mbuf);
    return true;
}

bool WorkerCore::discover_kept(rte_mbuf* mbuf, PortUse& from) {
    const std::span<uint8_t> room(rte_pktmbuf_mtod(mbuf, uint8_t*), mbuf->data_len + rte_pktmbuf_tailroom(mbuf));
    if (room.size() < kMaxDiscoveryBytes) return true;
    if (from.interface->memberships().take(room.first(mbuf->data_len), now_ns_)) return true;
    const size_t answer = from.interface->neighbours().handle(room, mbuf->data_len, now_ns_);
    if (answer == 0 || !sink_.ready()) return true;
    mbuf->data_len = static_cast<uint16_t>(answer);
    mbuf->pkt_len = static_cast<uint32_t>(answer);
    sink_.send_raw(from.port->id(), mbuf);
    return false;
}

void WorkerCore::ring_doorbell(transport::QueuePair& qp) {
    // The exchange pairs with the one in take_doorbells(). A thread that finds `true` knows that the worker's exchange
    // comes later and, by acquire, sees the work that was published before this release.
    if (!qp.doorbell.exchange(true, std::memory_order_acq_rel))
        doorbells_[std::min<unsigned>(qp.priority, kPriorities - 1)].add(qp);
}

void WorkerCore::take_doorbells() {
    for (Doorbells& rung : doorbells_) {
        rung.take_all([this](transport::QueuePair& qp) {
            qp.doorbell.exchange(false, std::memory_order_acq_rel);
            engine_.doorbell(qp);
        });
    }
}

void WorkerCore::solicit(RdmaInterface& interface, const wire::Gid& neighbour) {
    const LcoreScope lcore(lcore_);
    rte_mbuf* mbuf = sink_.take();
    if (mbuf == nullptr) return;
    const size_t bytes = interface.neighbours().ask(neighbour, rte_pktmbuf_mtod(mbuf, uint8_t*), now_ns());
    mbuf->data_len = static_cast<uint16_t>(bytes);
    mbuf->pkt_len = static_cast<uint32_t>(bytes);
    if (bytes == 0)
        rte_pktmbuf_free(mbuf);
    else
        sink_.send_raw(interface.port(), mbuf);
    sink_.flush();
}

void WorkerCore::ask_multipath(transport::QueuePair& qp, const transport::Path& path, uint32_t remote_qpn,
                               uint32_t nonce) {
    const LcoreScope lcore(lcore_);
    engine_.ask_multipath(qp, path, remote_qpn, nonce, protocol_ns());
    sink_.flush();
}

// Sends questions for neighbours and reports of groups while there are mbufs. The rest stays due.
void WorkerCore::send_control_frames(PortUse& use) {
    while (rte_mbuf* const mbuf = sink_.take()) {
        auto* const frame = rte_pktmbuf_mtod(mbuf, uint8_t*);
        size_t bytes = use.interface->neighbours().next_question(frame, now_ns_);
        if (bytes == 0) bytes = use.interface->memberships().next_report(frame, now_ns_);
        if (bytes == 0) {
            rte_pktmbuf_free(mbuf);
            return;
        }
        mbuf->data_len = static_cast<uint16_t>(bytes);
        mbuf->pkt_len = static_cast<uint32_t>(bytes);
        sink_.send_raw(use.port->id(), mbuf);
    }
}

void WorkerCore::announce(RdmaInterface& interface) {
    const LcoreScope lcore(lcore_);
    interface.memberships().report_all(now_ns());
    for (const ProxyAddress& speaker : interface.neighbours().speakers()) {
        rte_mbuf* mbuf = sink_.take();
        if (mbuf == nullptr) break;
        const size_t bytes = build_announce(rte_pktmbuf_mtod(mbuf, uint8_t*), speaker);
        mbuf->data_len = static_cast<uint16_t>(bytes);
        mbuf->pkt_len = static_cast<uint32_t>(bytes);
        sink_.send_raw(interface.port(), mbuf);
    }
    sink_.flush();
}

Worker::Worker(std::unique_ptr<WorkerCore> core) : core_(std::move(core)) {}
Worker::~Worker() = default;

void Worker::leave() {
    core_->tell_background();
    lock_.unlock();
}

uint16_t Worker::index() const {
    return core_->index();
}

unsigned Worker::lcore() const {
    return core_->lcore();
}

void Worker::ring_doorbell(transport::QueuePair& qp) {
    core_->ring_doorbell(qp);
}

void Worker::set_state(const transport::WorkerQuiesced&, transport::QueuePair& qp, ibv_qp_state state) {
    const LcoreScope lcore(core_->lcore());
    core_->take_doorbells();  // a doorbell from before the reset says nothing about later posts
    core_->engine().set_state(qp, state, core_->protocol_ns());
    core_->flush();
}

void Worker::set_priority(const transport::WorkerQuiesced&, transport::QueuePair& qp, uint8_t priority) {
    core_->engine().set_priority(qp, priority);
}

void Worker::start_receiving(const transport::WorkerQuiesced&, transport::QueuePair& qp, uint32_t rq_psn,
                             bool multipath) {
    core_->engine().start_receiving(qp, rq_psn, multipath);
}

void Worker::start_sending(const transport::WorkerQuiesced&, transport::QueuePair& qp, uint32_t sq_psn) {
    core_->engine().start_sending(qp, sq_psn);
}

void Worker::ask_multipath(const transport::WorkerQuiesced&, transport::QueuePair& qp, const transport::Path& path,
                           uint32_t remote_qpn, uint32_t nonce) {
    core_->ask_multipath(qp, path, remote_qpn, nonce);
}

void Worker::remove(const transport::WorkerQuiesced&, transport::QueuePair& qp) {
    const LcoreScope lcore(core_->lcore());
    // A program may destroy a QP right after posting to it without asking for a completion, and rely on a NIC that has
    // sent the request already. What cannot be sent now is lost, as when a NIC's link is down.
    constexpr uint32_t kMaxRounds = 64;
    core_->take_doorbells();  // so that no doorbell refers to the QP any more
    for (uint32_t rounds = 0; qp.active && rounds < kMaxRounds; ++rounds) core_->round();
    core_->engine().remove(qp);
    core_->flush();
}

void Worker::flush(const transport::WorkerQuiesced&, transport::QueuePair& qp) {
    const LcoreScope lcore(core_->lcore());
    core_->engine().flush(qp);
    core_->flush();
}

}  // namespace rove::datapath
