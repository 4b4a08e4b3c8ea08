// SPDX-License-Identifier: Apache-2.0
// Random lives. Connections of several hosts are made (with HELLO if configured), move data, end in one of many ways
// and are made again, from the same queue pairs or others, while packets of the former ones are still in flight. Shared
// receive queues have queue pairs of other protection domains; peers pause, vanish and return. Each world comes from
// its seed: ROVE_SEED and ROVE_SEEDS as in worlds_test.cc. Units: virtual nanoseconds, bytes.
//
// DESIGN NOTES
// 1. Every byte that a life moves is a function of its number, its direction and its place, so data of another life, or
//    of a packet from one that has ended, is detected.
// 2. The memory that peers write is the life's own and is deregistered when the life ends. It must not change
//    afterwards.
// 3. Unless a life ends early or its peer vanishes for good, everything must succeed, whatever the network does: no
//    queue pair fails. With pauses alone, hardly any packet may be retransmitted.
#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "transport/virtual_network.h"

namespace rove::test {
namespace {

constexpr uint64_t kLives = 150;
constexpr uint64_t kLongest = 400'000'000'000;  // longer than any chain of timeouts
constexpr uint8_t kUnwritten = 0xEE;
constexpr uint32_t kMaxBytes = 20'000;
constexpr uint32_t kDepth = 16;

enum class Trouble : uint8_t { kNone, kLoss, kStalls, kOutages };
enum class End : uint8_t {
    kDone,     // both destroy their queue pair when all is done
    kDestroy,  // one destroys its queue pair early; the other one has to notice
    kReset,    // both move to RESET early, and the same queue pairs make another connection
};

struct Message {
    ibv_wr_opcode opcode;
    uint32_t bytes;
    size_t offset;  // in the buffers
    bool takes_receive() const { return opcode == IBV_WR_SEND || opcode == IBV_WR_RDMA_WRITE_WITH_IMM; }
};

uint8_t byte_of(uint32_t life, uint32_t side, size_t at) {
    const auto value = static_cast<uint8_t>(
        (life * 2654435761u ^ (side + 1) * 40503u ^ static_cast<uint32_t>(at) * 2246822519u) >> 13);
    return value == kUnwritten ? 0x11 : value;
}

struct Memory {
    std::vector<uint8_t> bytes;
    Region region;
    bool registered = false;
    void open(Host& host, size_t size, const void* pd) {
        bytes.assign(size + 1, kUnwritten);
        region.host = bytes.data();
        region.iova = reinterpret_cast<uint64_t>(bytes.data());
        region.length = size + 1;
        region.access = kAllAccess;
        region.pd = pd;
        registered = true;
        EXPECT_TRUE(host.memory.insert(region));
    }
    void close(Host& host) {
        if (registered) host.memory.remove(region);
        registered = false;
    }
    ibv_sge sge(size_t offset, uint32_t size) const { return {region.iova + offset, size, region.key}; }
};

// One end of a connection.
struct Side {
    Host* host = nullptr;
    QueuePair* qp = nullptr;
    QpOptions options;
    // Memory that it sends and lets the peer read; that the peer WRITEs; that READs fill; receive buffers.
    Memory out, in, got, receives;
    std::vector<Message> plan;
    size_t posted = 0, completed = 0;
    size_t receives_posted = 0, received = 0;  // messages of the peer
    bool failed = false, destroyed = false;
    uint32_t nonce = 0;
};

struct SharedReceives {
    SharedRecvQueue* queue = nullptr;
    Memory memory;
    std::vector<uint32_t> free;
    int pd = 0;
};

struct Life {
    uint32_t number = 0;
    uint32_t hosts[2] = {};
    Side sides[2];
    End end = End::kDone;
    uint64_t end_ns = 0;  // time of an early end
    bool multipath = false, connected = false, over = false;
    bool must_succeed() const { return end == End::kDone; }
};

class Lives {
  public:
    explicit Lives(uint64_t seed) : random_(seed) {
        trouble_ = random_.pick(Trouble::kNone, Trouble::kLoss, Trouble::kLoss, Trouble::kStalls, Trouble::kOutages);
        const auto hosts = static_cast<uint32_t>(random_.between(2, 4));
        std::vector<transport::Config> configs(hosts);
        for (transport::Config& config : configs) {
            config.mode = random_.chance(0.25) ? transport::Mode::kRc : transport::Mode::kAuto;
            config.paths.max_window = 1u << random_.between(5, 8);
            config.paths.initial_window = std::min(config.paths.initial_window, config.paths.max_window);
            config.paths.infer_losses = random_.chance(0.7);
            config.batch_acks = random_.chance(0.7);
            config.reorder.kind = random_.chance(0.7) ? transport::ReorderConfig::Kind::kEunomia
                                                      : transport::ReorderConfig::Kind::kStatic;
            config.seed = random_.next();
        }
        net_ = std::make_unique<Network>(random_.next(), configs);
        net_->keep_trace = false;
        for (Impairment& link : net_->egress) draw_link(link);
        for (uint32_t i = 0; i < hosts; ++i) {
            shared_.emplace_back();
            if (random_.chance(0.6)) open_shared(shared_.back(), net_->host(i));
        }
        left_ = static_cast<uint32_t>(random_.between(2, 10));
        const uint64_t at_once = random_.between(1, 4);
        for (uint64_t i = 0; i < at_once; ++i) begin_life(nullptr);
    }
    ~Lives() {
        for (auto& life : lives_) {
            for (Side& side : life->sides) {
                for (Memory* memory : {&side.out, &side.in, &side.got, &side.receives}) memory->close(*side.host);
            }
        }
        for (size_t i = 0; i < shared_.size(); ++i) shared_[i].memory.close(net_->host(static_cast<uint32_t>(i)));
    }

    void run() {
        if (trouble_ == Trouble::kStalls || trouble_ == Trouble::kOutages) disturb();
        tick();
        if (!net_->run(kLongest, [this] { return running_ == 0 && left_ == 0; })) {
            ADD_FAILURE() << "stuck at " << net_->now() << ": " << describe();
            return;
        }
        ticking_ = false;
        EXPECT_TRUE(net_->run(net_->now() + kLongest)) << "no rest after the end";
        for (auto& life : lives_) check_memory(*life, "at the end");
        for (uint32_t i = 0; i < shared_.size(); ++i) {
            const transport::MultipathShared* shared = net_->host(i).engine.multipath();
            if (shared == nullptr) continue;
            EXPECT_EQ(shared->early_count(), 0u);
            EXPECT_EQ(shared->reorder.usage().blocks, 0u);
        }
    }
    // Returns the number of packets retransmitted although none was lost, without those for receivers not ready.
    uint64_t repeated() const {
        uint64_t again = 0;
        for (uint32_t i = 0; i < shared_.size(); ++i) {
            again += net_->host(i).counter(Counter::kRetransmittedPackets) - net_->host(i).counter(Counter::kResentRnr);
        }
        return again;
    }
    Trouble trouble() const { return trouble_; }
    uint64_t sent() const {
        uint64_t all = 0;
        for (uint32_t i = 0; i < shared_.size(); ++i) all += net_->host(i).counter(Counter::kPsnsSent);
        return all;
    }

  private:
    void draw_link(Impairment& link) {
        link.delay_ns = random_.pick(500u, 5'000u, 50'000u);
        if (random_.chance(0.5)) {
            link.lanes.resize(random_.between(2, 6));
            for (Lane& lane : link.lanes) lane.delay_ns = random_.chance(0.5) ? 0 : random_.below(3 * link.delay_ns);
            if (random_.chance(0.7)) link.lane_hash = static_cast<uint32_t>(random_.between(1, 1 << 16));
        }
        if (trouble_ != Trouble::kLoss) return;
        link.loss = random_.pick(0.0, 0.001, 0.01, 0.05);
        if (random_.chance(0.4))
            link.bursts = {.begin = 0.003, .loss = 0.9, .mean_ns = random_.pick(1'000u, 20'000u, 500'000u)};
        link.duplicate = random_.pick(0.0, 0.0, 0.03);
        link.reorder = random_.pick(0.0, 0.0, 0.1);
        link.reorder_ns = random_.pick(20'000u, 400'000u, 20'000'000u);
        for (size_t i = 1; i < link.lanes.size(); ++i) {
            const uint64_t begin = net_->now() + random_.below(5'000'000);
            if (random_.chance(0.3)) link.lanes[i].dark.push_back({begin, begin + random_.below(50'000'000)});
        }
    }

    // Makes peers pause, or their cables fail, for 0.1 to 2 s.
    void disturb() {
        const uint64_t pause = random_.between(100'000'000, 2'000'000'000);
        const auto host = static_cast<uint32_t>(random_.below(shared_.size()));
        if (trouble_ == Trouble::kStalls) {
            net_->stall(host, net_->now() + pause);
        } else {
            net_->egress[host].down.push_back({net_->now(), net_->now() + pause});
        }
        if (++disturbed_ < 4)
            net_->at(net_->now() + pause + random_.between(1'000'000, 500'000'000), [this] {
                if (ticking_) disturb();
            });
    }

    void open_shared(SharedReceives& shared, Host& host) {
        shared.queue = &host.shared_recv_queue(kDepth, 1);
        shared.memory.open(host, size_t{kDepth} * kMaxBytes, &shared.pd);
        shared.queue->pd = &shared.pd;
        for (uint32_t i = 0; i < kDepth; ++i) shared.free.push_back(i);
    }

    // Begins a new life, with the queue pairs of `former` if given.
    void begin_life(Life* former) {
        if (left_ == 0) return;
        --left_;
        ++running_;
        lives_.push_back(std::make_unique<Life>());
        Life& life = *lives_.back();
        life.number = static_cast<uint32_t>(lives_.size());
        life.end = random_.pick(End::kDone, End::kDone, End::kDestroy, End::kReset);
        if (trouble_ == Trouble::kStalls || trouble_ == Trouble::kOutages) life.end = End::kDone;
        life.hosts[0] = static_cast<uint32_t>(random_.below(shared_.size()));
        do {
            life.hosts[1] = static_cast<uint32_t>(random_.below(shared_.size()));
        } while (life.hosts[1] == life.hosts[0]);
        if (former != nullptr) std::copy_n(former->hosts, 2, life.hosts);
        const uint32_t mtu = 256u << random_.below(5);
        const bool srqs = random_.chance(0.5);
        for (int i = 0; i < 2; ++i) {
            Side& side = life.sides[i];
            side.host = &net_->host(life.hosts[i]);
            QpOptions& o = side.options;
            o.mtu = mtu;
            o.depth = kDepth;
            o.timeout = 18;  // 1 s, eight times
            // The network may still carry packets of the former connection, so the new PSNs are far from its numbers.
            o.psn = static_cast<uint32_t>(former != nullptr
                                              ? former->sides[i].options.psn + random_.between(1 << 20, 1 << 22)
                                              : random_.below(1 << 24)) &
                    0xFFFFFF;
            const SharedReceives& shared = shared_[life.hosts[i]];
            if (srqs && former == nullptr && shared.queue != nullptr) o.srq = shared.queue;
            if (former != nullptr) {
                o.srq = former->sides[i].options.srq;
                side.qp = former->sides[i].qp;
            } else {
                side.qp = &side.host->create(o);
            }
            // Receive buffers belong to the queue's own domain; the queue pair's may be another one.
            side.qp->pd = &side;
            if (o.srq == nullptr) side.qp->recv_pd = &side;
            plan(life, i);
        }
        life.end_ns = net_->now() + random_.below(3'000'000);
        ask(life, 0);
    }

    void plan(Life& life, int index) {
        Side& side = life.sides[index];
        size_t offset = 0;
        const uint64_t count = random_.between(1, 30);
        for (uint64_t i = 0; i < count; ++i) {
            Message message{
                random_.pick(IBV_WR_SEND, IBV_WR_SEND, IBV_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WR_RDMA_READ),
                static_cast<uint32_t>(random_.chance(0.5) ? random_.between(1, 500) : random_.below(kMaxBytes) + 1),
                offset};
            offset += message.bytes;
            side.plan.push_back(message);
        }
        const void* pd = side.qp->pd;
        side.out.open(*side.host, offset, pd);
        for (size_t at = 0; at < offset; ++at)
            side.out.bytes[at] = byte_of(life.number, static_cast<uint32_t>(index), at);
        side.got.open(*side.host, offset, pd);
        side.receives.open(*side.host, size_t{kDepth} * kMaxBytes, pd);
    }

    // Sends HELLO until both ends have an answer, and then connects.
    void ask(Life& life, int tries) {
        if (life.over) return;
        bool answered = true;
        for (int i = 0; i < 2; ++i) {
            Side& side = life.sides[i];
            const Side& peer = life.sides[1 - i];
            if (tries == 0) {
                side.nonce = static_cast<uint32_t>(random_.between(1, UINT32_MAX));
                side.qp->hello.reset();
                side.qp->hello.begin({peer.qp->qpn, peer.host->gid()}, nullptr, side.nonce);
            }
            if (side.qp->hello.answer != transport::HelloState::Answer::kNone) continue;
            answered = false;
            if (net_->is_stalled(life.hosts[i])) continue;
            side.host->engine.ask_multipath(*side.qp, side.host->path_to(*peer.host), peer.qp->qpn, side.nonce,
                                            net_->now());
        }
        if (!answered) {
            net_->at(net_->now() + 20'000 + random_.below(2'000'000), [this, &life, tries] { ask(life, tries + 1); });
            return;
        }
        // The mode is rc if either host is configured for it. That host received a yes, and knows.
        life.multipath = true;
        for (const uint32_t host : life.hosts)
            life.multipath &= net_->host(host).engine.config().mode != transport::Mode::kRc;
        for (int i = 0; i < 2; ++i) {
            Side& side = life.sides[i];
            const Side& peer = life.sides[1 - i];
            const bool peer_speaks_mp = net_->host(life.hosts[1 - i]).engine.config().mode != transport::Mode::kRc;
            EXPECT_EQ(side.qp->hello.answer == transport::HelloState::Answer::kYes, peer_speaks_mp)
                << "life " << life.number;
            side.in.open(*side.host, peer.out.bytes.size(), side.qp->pd);
            side.options.multipath = life.multipath;
        }
        for (int i = 0; i < 2; ++i) {
            Side& side = life.sides[i];
            const Side& peer = life.sides[1 - i];
            side.host->bring_up(*side.qp, side.options, side.host->path_to(*peer.host), peer.qp->qpn, peer.options.psn,
                                net_->now());
        }
        life.connected = true;
    }

    void tick() {
        if (!ticking_) return;
        for (size_t i = 0; i < shared_.size(); ++i) {
            if (!net_->is_stalled(static_cast<uint32_t>(i))) restock(shared_[i], static_cast<uint32_t>(i));
        }
        for (size_t i = 0; i < lives_.size(); ++i) {  // lives may begin meanwhile
            Life& life = *lives_[i];
            if (!life.connected || life.over) continue;
            for (int side = 0; side < 2; ++side) {
                if (!net_->is_stalled(life.hosts[side]) && !life.sides[side].destroyed) serve(life, side);
            }
            end_if_due(life);
        }
        net_->at(net_->now() + random_.between(1'000, 100'000), [this] { tick(); });
    }

    void restock(SharedReceives& shared, uint32_t host) {
        while (shared.queue != nullptr && !shared.free.empty() && shared.queue->ring.room() != 0) {
            const uint32_t slot = shared.free.back();
            shared.free.pop_back();
            std::fill_n(shared.memory.bytes.begin() + slot * kMaxBytes, kMaxBytes, kUnwritten);
            EXPECT_TRUE(
                net_->host(host).post_recv(shared.queue->ring, slot, {shared.memory.sge(slot * kMaxBytes, kMaxBytes)}));
        }
    }

    void serve(Life& life, int index) {
        Side& side = life.sides[index];
        Side& peer = life.sides[1 - index];
        SCOPED_TRACE("life " + std::to_string(life.number) + ", side " + std::to_string(index) + ", at " +
                     std::to_string(net_->now()));
        for (const ibv_wc& wc : side.host->poll(*side.qp->send_cq)) {
            if (wc.status != IBV_WC_SUCCESS) {
                EXPECT_FALSE(life.must_succeed()) << "status " << wc.status;
                side.failed = true;
                continue;
            }
            EXPECT_EQ(wc.wr_id, uint64_t{life.number} << 32 | side.completed);
            const Message& message = side.plan.at(side.completed++);
            if (message.opcode == IBV_WR_RDMA_READ) expect(side.got, message.offset, message, life, 1 - index, 0);
            if (message.opcode == IBV_WR_RDMA_WRITE)
                expect(peer.in, message.offset, message, life, index, message.offset);
        }
        for (const ibv_wc& wc : side.host->poll(*side.qp->recv_cq)) take_receive(life, index, wc);
        if (side.qp->state != IBV_QPS_RTS) return;
        while (side.options.srq == nullptr && side.receives_posted - side.received < kDepth && random_.chance(0.7)) {
            const size_t slot = side.receives_posted++ % kDepth;
            std::fill_n(side.receives.bytes.begin() + static_cast<ptrdiff_t>(slot * kMaxBytes), kMaxBytes, kUnwritten);
            EXPECT_TRUE(side.host->post_recv(*side.qp, slot, {side.receives.sge(slot * kMaxBytes, kMaxBytes)}));
        }
        while (side.posted != side.plan.size() && side.qp->sq.room() != 0 && random_.chance(0.7)) {
            const Message& message = side.plan[side.posted];
            Send send;
            send.wr_id = uint64_t{life.number} << 32 | side.posted++;
            send.opcode = message.opcode;
            send.sges = {(message.opcode == IBV_WR_RDMA_READ ? side.got : side.out).sge(message.offset, message.bytes)};
            send.remote_addr = peer.in.region.iova + message.offset;
            send.rkey = peer.in.region.key;
            if (message.opcode == IBV_WR_RDMA_READ) {
                // It reads from the beginning of the data that the peer sends, and no more than there is.
                send.remote_addr = peer.out.region.iova;
                send.rkey = peer.out.region.key;
                send.sges[0].length = static_cast<uint32_t>(std::min<size_t>(message.bytes, peer.out.bytes.size() - 1));
            }
            EXPECT_TRUE(side.host->post(*side.qp, send));
        }
    }

    // Expects `memory` to have at `at` the data that `from` sends in `message`, whose data begins at `start`.
    void expect(const Memory& memory, size_t at, const Message& message, const Life& life, int from, size_t start) {
        const size_t bytes = std::min<size_t>(message.bytes, life.sides[from].out.bytes.size() - 1);
        for (size_t i = 0; i < bytes; ++i) {
            if (memory.bytes[at + i] == byte_of(life.number, static_cast<uint32_t>(from), start + i)) continue;
            ADD_FAILURE() << "wrong byte " << i << " of " << message.bytes << ", opcode " << message.opcode;
            return;
        }
    }

    void take_receive(Life& life, int index, const ibv_wc& wc) {
        Side& side = life.sides[index];
        const Side& peer = life.sides[1 - index];
        if (wc.status != IBV_WC_SUCCESS) {
            EXPECT_FALSE(life.must_succeed()) << "receive, status " << wc.status;
            side.failed = true;
            if (side.options.srq != nullptr) shared_[life.hosts[index]].free.push_back(static_cast<uint32_t>(wc.wr_id));
            return;
        }
        size_t nth = side.received++, at = 0;
        while (at < peer.plan.size() && !(peer.plan[at].takes_receive() && nth-- == 0)) ++at;
        ASSERT_LT(at, peer.plan.size()) << "more messages than were sent";
        ASSERT_LT(at, peer.posted) << "a message that was not sent yet";
        const Message& message = peer.plan[at];
        EXPECT_EQ(wc.byte_len, message.bytes);
        if (message.opcode == IBV_WR_SEND) {
            EXPECT_EQ(wc.opcode, IBV_WC_RECV);
            const Memory& memory = side.options.srq != nullptr ? shared_[life.hosts[index]].memory : side.receives;
            expect(memory, wc.wr_id * kMaxBytes, message, life, 1 - index, message.offset);
        } else {
            EXPECT_EQ(wc.opcode, IBV_WC_RECV_RDMA_WITH_IMM);
        }
        // The WRITEs before it are in memory.
        for (size_t before = 0; before <= at; ++before) {
            const Message& write = peer.plan[before];
            if (write.opcode == IBV_WR_RDMA_WRITE || write.opcode == IBV_WR_RDMA_WRITE_WITH_IMM)
                expect(side.in, write.offset, write, life, 1 - index, write.offset);
        }
        if (side.options.srq != nullptr) shared_[life.hosts[index]].free.push_back(static_cast<uint32_t>(wc.wr_id));
    }

    bool is_done(const Life& life) const {
        for (int i = 0; i < 2; ++i) {
            const Side& side = life.sides[i];
            const auto receives = std::ranges::count_if(side.plan, [](const Message& m) { return m.takes_receive(); });
            if (side.completed != side.plan.size() || life.sides[1 - i].received != static_cast<size_t>(receives))
                return false;
        }
        return true;
    }

    void end_if_due(Life& life) {
        const bool stalled = net_->is_stalled(life.hosts[0]) || net_->is_stalled(life.hosts[1]);
        if (is_done(life) && !stalled) return finish(life, false);
        if (life.end == End::kDone || stalled || net_->now() < life.end_ns) return;
        if (life.end == End::kReset) return finish(life, true);
        Side& first = life.sides[life.number % 2];
        Side& second = life.sides[1 - life.number % 2];
        if (!first.destroyed) {
            close(life, first);
        } else if (second.failed || net_->now() > life.end_ns + 20'000'000'000) {
            // A side with data to send has noticed. A side without any waits until it gives up.
            finish(life, false);
        }
    }

    void close(Life& life, Side& side) {
        check_memory(life, "before it ended");
        if (!side.destroyed) {
            give_back(life, side);
            side.host->destroy(*side.qp);
        }
        side.destroyed = true;
        for (Memory* memory : {&side.out, &side.in, &side.got, &side.receives}) memory->close(*side.host);
    }
    // Returns to the program a receive that a queue pair has taken from a shared queue and will not complete.
    void give_back(Life& life, Side& side) {
        const auto index = &side == &life.sides[0] ? 0 : 1;
        if (side.options.srq == nullptr) return;
        side.host->engine.set_state(*side.qp, IBV_QPS_ERR, net_->now());
        for (const ibv_wc& wc : side.host->poll(*side.qp->recv_cq)) {
            if (wc.status == IBV_WC_SUCCESS) {
                take_receive(life, index, wc);
            } else {
                shared_[life.hosts[index]].free.push_back(static_cast<uint32_t>(wc.wr_id));
            }
        }
    }

    void finish(Life& life, bool again) {
        life.over = true;
        --running_;
        check_memory(life, "before it ended");
        for (Side& side : life.sides) {
            if (!again) {
                close(life, side);
                continue;
            }
            give_back(life, side);
            side.host->engine.set_state(*side.qp, IBV_QPS_RESET, net_->now());
            for (Memory* memory : {&side.out, &side.in, &side.got, &side.receives}) memory->close(*side.host);
        }
        if (again && left_ == 0) {
            for (Side& side : life.sides) side.host->destroy(*side.qp);
        }
        if (left_ != 0) begin_life(again ? &life : nullptr);
    }

    // Checks that the memory which the peer WRITEs holds the written data or none.
    void check_memory(const Life& life, const char* when) {
        for (int i = 0; i < 2; ++i) {
            const Memory& in = life.sides[i].in;
            const Side& peer = life.sides[1 - i];
            std::vector<bool> written(in.bytes.size());
            for (const Message& message : peer.plan) {
                if (message.opcode != IBV_WR_RDMA_WRITE && message.opcode != IBV_WR_RDMA_WRITE_WITH_IMM) continue;
                for (size_t at = message.offset; at < message.offset + message.bytes && at < in.bytes.size(); ++at)
                    written[at] = true;
            }
            for (size_t at = 0; at < in.bytes.size(); ++at) {
                if (in.bytes[at] == kUnwritten ||
                    (written[at] && in.bytes[at] == byte_of(life.number, static_cast<uint32_t>(1 - i), at)))
                    continue;
                ADD_FAILURE() << "life " << life.number << ", side " << i << ", " << when << ": wrong byte at " << at;
                return;
            }
        }
    }

    std::string describe() const {
        std::string all =
            "trouble " + std::to_string(static_cast<int>(trouble_)) + ", " + std::to_string(left_) + " to begin";
        for (const auto& life : lives_) {
            if (life->over) continue;
            all += "\n  life " + std::to_string(life->number) +
                   (life->connected ? life->multipath ? " mp" : " rc" : " asks") + ", end " +
                   std::to_string(static_cast<int>(life->end));
            for (int i = 0; i < 2; ++i) {
                const Side& side = life->sides[i];
                all += "; host " + std::to_string(life->hosts[i]) + " state " + std::to_string(side.qp->state) +
                       " posted " + std::to_string(side.posted) + "/" + std::to_string(side.plan.size()) +
                       " completed " + std::to_string(side.completed) + " received " + std::to_string(side.received);
            }
        }
        return all;
    }

    Random random_;
    Trouble trouble_ = Trouble::kNone;
    std::unique_ptr<Network> net_;
    std::deque<SharedReceives> shared_;  // indexed by host
    std::deque<std::unique_ptr<Life>> lives_;
    uint32_t left_ = 0, running_ = 0, disturbed_ = 0;
    bool ticking_ = true;
};

TEST(RandomLives, end_and_begin_anew) {
    const auto number = [](const char* name) {
        const char* value = std::getenv(name);
        return value != nullptr ? std::strtoull(value, nullptr, 0) : 0;
    };
    const uint64_t only = number("ROVE_SEED"), many = number("ROVE_SEEDS");
    const uint64_t first = only != 0 ? only : 1, end = first + (many != 0 ? many : only != 0 ? 1 : kLives);
    uint64_t sent = 0, repeated = 0;
    for (uint64_t seed = first; seed != end; ++seed) {
        SCOPED_TRACE("seed " + std::to_string(seed));
        Lives lives(seed);
        lives.run();
        if (lives.trouble() == Trouble::kStalls) {
            sent += lives.sent();
            repeated += lives.repeated();
        }
        if (!testing::Test::HasFailure()) continue;
        std::printf("repeat with: ROVE_SEED=%llu worlds_test --gtest_filter=*anew\n",
                    static_cast<unsigned long long>(seed));
        return;
    }
    std::printf("peers that stand still: %llu of %llu packets sent again\n", static_cast<unsigned long long>(repeated),
                static_cast<unsigned long long>(sent));
    if (sent > 20'000) {
        EXPECT_LT(repeated * 20, sent);
    }
}

}  // namespace
}  // namespace rove::test
