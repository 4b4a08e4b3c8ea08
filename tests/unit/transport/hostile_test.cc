// SPDX-License-Identifier: Apache-2.0
// A million mutated golden packets into live queue pairs: nothing crashes, protected memory stays unchanged, and every
// packet is counted. Sanitizers make this test stronger.
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>

#include "support/pcap.h"
#include "transport/virtual_network.h"

namespace rove::test {
namespace {

// Whole pages between two inaccessible ones.
class GuardedPages {
  public:
    explicit GuardedPages(size_t bytes) : page_(static_cast<size_t>(sysconf(_SC_PAGESIZE))), bytes_(bytes) {
        base_ = static_cast<uint8_t*>(mmap(nullptr, bytes_ + 2 * page_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
        EXPECT_NE(base_, MAP_FAILED);
        EXPECT_EQ(mprotect(data(), bytes_, PROT_READ | PROT_WRITE), 0);
    }
    ~GuardedPages() { munmap(base_, bytes_ + 2 * page_); }
    uint8_t* data() { return base_ + page_; }
    size_t size() const { return bytes_; }
    std::vector<uint8_t> copy() { return {data(), data() + bytes_}; }

  private:
    size_t page_, bytes_;
    uint8_t* base_;
};

struct Seed {
    wire::ParsedFrame parsed{};  // missing headers are zero, for mutants of another opcode
    std::vector<uint8_t> payload;
};

class Target {
  public:
    explicit Target(uint64_t seed) : random_(seed), host_(1, config()), peer_(0, {}) {
        host_.sink.transmit = [this](const Path&, const wire::Headers&, std::vector<uint8_t>&&) { ++answered_; };
        host_.sink.room = [this] { return !random_.chance(0.01); };
        add(writable_, kAllAccess, &host_);
        add(read_only_, IBV_ACCESS_REMOTE_READ, &host_);
        add(local_, IBV_ACCESS_LOCAL_WRITE, &host_);
        add(foreign_, kAllAccess, this);
        for (GuardedPages* pages : {&writable_, &read_only_, &local_, &foreign_, &unregistered_}) {
            for (size_t i = 0; i < pages->size(); ++i) pages->data()[i] = static_cast<uint8_t>(random_.next());
        }
        for (ibv_qp_type type : {IBV_QPT_RC, IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD}) {
            options_.push_back({.type = type, .depth = 64, .multipath = options_.size() == 1});
            options_.back().send_cq = options_.back().recv_cq = &cq_;
            qps_.push_back(&host_.create(options_.back()));
        }
        for (size_t i = 0; i < qps_.size(); ++i) revive(i);
    }
    ~Target() {
        for (QueuePair* qp : qps_) host_.destroy(*qp);
        for (Region& region : regions_) host_.memory.remove(region);
    }

    // Revives a QP that an earlier packet ended, with receives and requests in flight.
    void revive(size_t i) {
        QueuePair& qp = *qps_[i];
        host_.engine.set_state(qp, IBV_QPS_RESET, now_);
        options_[i].psn = static_cast<uint32_t>(random_.below(1 << 24));
        expected_psn_[i] = static_cast<uint32_t>(random_.below(1 << 24));
        host_.bring_up(qp, options_[i], host_.path_to(peer_), 77, expected_psn_[i], now_);
        refill(i);
    }
    void refill(size_t i) {
        QueuePair& qp = *qps_[i];
        // The receive leaves the first and last 1000 bytes of `local_` alone.
        while (qp.rq.room() > 48) host_.post_recv(qp, 1, {sge(2, 1000, 3000), sge(2, 5000, 100)});
        if (qp.type != IBV_QPT_RC || qp.sq.room() < 60) return;
        Send read{.wr_id = 2, .opcode = IBV_WR_RDMA_READ, .sges = {sge(2, 6000, 3000)}};
        read.rkey = 1;
        host_.post(qp, read);
        Send atomic{.wr_id = 3, .opcode = IBV_WR_ATOMIC_FETCH_AND_ADD, .sges = {sge(2, 9000, 8)}};
        host_.post(qp, atomic);
        host_.post(qp, {.wr_id = 4, .opcode = IBV_WR_SEND, .sges = {sge(1, 0, 2000)}});
    }

    // Makes a golden packet fit: addressed to a QP, near its PSN, with one of our keys and addresses; then corrupts it.
    void attack(const Seed& golden) {
        const size_t i = random_.below(qps_.size());
        if (qps_[i]->state != IBV_QPS_RTS) revive(i);
        if (random_.chance(0.05)) refill(i);
        wire::Headers h = golden.parsed.headers;
        std::vector<uint8_t> payload = golden.payload;
        wire::Flow flow = host_.path_to(peer_).flow;
        std::swap(flow.src, flow.dst);
        std::swap(flow.src_mac, flow.dst_mac);
        QueuePair& qp = *qps_[i];
        h.bth.dest_qpn = qp.qpn;
        if (qp.mp() != nullptr) {
            speak_multipath(h, *qp.mp());
        } else {
            const transport::Rc* rc = qp.rc();
            h.bth.psn = rc == nullptr || random_.chance(0.5) ? qp.expected_psn() : rc->requester.una.value();
        }
        const Region& region = regions_[random_.below(regions_.size())];
        h.reth.rkey = h.atomic.rkey = region.key;
        h.reth.va = h.atomic.va = (region.iova + random_.below(region.length)) & ~7ull;
        h.deth = {qp.qkey, 99};
        if (random_.chance(0.8)) mutate(h, payload, flow);

        // Only known opcodes can be built. Another one is inserted afterwards, and refused before its ICRC is checked.
        const uint8_t opcode = h.bth.opcode;
        if (!wire::opcode_info(opcode).known) h.bth.opcode = golden.parsed.headers.bth.opcode;
        const wire::FlowTemplate headers = wire::make_template(flow);
        std::vector<uint8_t> frame(wire::frame_bytes(headers, h.bth.opcode, static_cast<uint32_t>(payload.size())));
        const wire::Segment segment{payload.data(), static_cast<uint32_t>(payload.size())};
        wire::build_frame(frame.data(), headers, h, {&segment, 1});
        frame[headers.size] = opcode;
        if (random_.chance(0.2)) spoil(frame);
        deliver(frame);
    }
    // Turns an RC packet into one of mp, near the state that the QP expects.
    void speak_multipath(wire::Headers& h, const transport::Mp& mp) {
        const uint32_t near = static_cast<uint32_t>(random_.below(64)), response = random_.chance(0.3);
        const wire::Op op = wire::op_of(h.bth.opcode);
        const transport::Psn in = (response ? mp.responses_in : mp.requests_in).expected;
        const transport::Psn out = (response ? mp.responses : mp.requests).una;
        h.bth.opcode = wire::opcode(wire::Service::kMp, op);
        h.bth.psn = (in + (random_.chance(0.5) ? 0 : near)).value();
        using wire::Mpeth;
        const auto maybe = [&](uint8_t flag, double p) { return random_.chance(p) ? flag : uint8_t{0}; };
        h.mp = {.flags = static_cast<uint8_t>(maybe(Mpeth::kRetx, 0.5) | maybe(Mpeth::kSync, 0.1) |
                                              maybe(Mpeth::kLast, 0.5) | maybe(Mpeth::kEarly, 0.5) |
                                              (response != 0 ? Mpeth::kResponse : 0)),
                .msn = random_.chance(0.7) ? mp.msn_in : near,
                .ipsn = random_.chance(0.7) ? uint32_t{op == wire::Op::kWriteMiddle} : near << random_.below(19)};
        h.reth.length = random_.pick(4u, 256u, 1000u, 1024u, 4096u);
        h.vp = static_cast<uint16_t>(random_.next());
        h.mp_ack = {.entry = {.kind = static_cast<wire::MpAck>(random_.below(4)),
                              .ece = random_.chance(0.3),
                              .retx = random_.chance(0.3),
                              .response = response != 0,
                              .psn = (out + near).value(),
                              .vp = h.vp},
                    .syndrome = random_.pick<uint8_t>(0x20, 0x60, 0x61, 0x62, 0x63, 0xFF),
                    .aack_psn = random_.chance(0.5) ? out.value() : (out + near).value(),
                    .room = static_cast<uint8_t>(random_.next()),
                    .more = static_cast<uint8_t>(random_.chance(0.8) ? 0 : random_.below(256))};
        h.hello = {.version = static_cast<uint8_t>(random_.pick(1, 2, 3)),
                   .answer = random_.chance(0.5),
                   .mp = random_.chance(0.5),
                   .qpn = near,
                   .nonce = near,
                   .limits = {.reorder_packets = static_cast<uint16_t>(random_.next()),
                              .early_kib = static_cast<uint16_t>(random_.next())},
                   .tick = static_cast<uint32_t>(random_.next()),
                   .echo_tick = static_cast<uint32_t>(random_.next())};
    }
    void deliver(const std::vector<uint8_t>& frame) {
        ++sent_;
        now_ += random_.below(2000);
        wire::ParsedFrame parsed;
        if (wire::parse_headers(frame, parsed) != wire::ParseError::kNone ||
            !host_.engine.receive(parsed, host_.qps.find(parsed.headers.bth.dest_qpn), 0, now_)) {
            ++refused_;
            return;
        }
        if (host_.engine.next_deadline() <= now_) host_.engine.expire(now_);
        host_.engine.transmit(now_, 64);
        ibv_wc wc[16];
        while (cq_.poll(wc, 16) > 0) {
        }
        host_.sink.events.clear();
    }

    // Returns the memory that the packets may not change.
    std::vector<std::vector<uint8_t>> fixed() {
        std::vector<uint8_t> edges(local_.data(), local_.data() + 1000);
        edges.insert(edges.end(), local_.data() + 10000, local_.data() + local_.size());
        return {read_only_.copy(), foreign_.copy(), unregistered_.copy(), edges};
    }
    uint64_t sent() const { return sent_; }
    uint64_t counted() const {
        uint64_t sum = refused_;
        // Counter::kRxPackets counts packets that reached a QP, whatever happened then.
        for (Counter c : {Counter::kRxPackets, Counter::kRxCnp, Counter::kDropUnknownQp, Counter::kDropQpState,
                          Counter::kDropService, Counter::kDropPort, Counter::kDropSource, Counter::kDropPkey,
                          Counter::kDropMulticast}) {
            sum += host_.counter(c);
        }
        return sum;
    }
    uint64_t refused() const { return refused_; }
    uint64_t answered() const { return answered_; }
    Host& host() { return host_; }

  private:
    static transport::Config config() {
        transport::Config config;
        config.window_packets = 64;
        return config;
    }
    void add(GuardedPages& pages, int access, const void* pd) {
        regions_.emplace_back();
        Region& region = regions_.back();
        region.host = pages.data();
        region.iova = reinterpret_cast<uint64_t>(pages.data());
        region.length = pages.size();
        region.access = access;
        region.pd = pd;
        ASSERT_TRUE(host_.memory.insert(region));
    }
    ibv_sge sge(size_t region, size_t offset, uint32_t bytes) const {
        return {regions_[region].iova + offset, bytes, regions_[region].key};
    }

    void mutate(wire::Headers& h, std::vector<uint8_t>& payload, wire::Flow& flow) {
        for (uint64_t times = random_.between(1, 3); times > 0; --times) {
            switch (random_.below(16)) {
                case 0:
                    h.bth.opcode = static_cast<uint8_t>(random_.next());
                    break;
                case 1:
                    h.bth.opcode = static_cast<uint8_t>((h.bth.opcode & 0xE0) | random_.below(0x18));
                    break;
                case 2:
                    h.bth.psn = (h.bth.psn + static_cast<uint32_t>(random_.below(9)) - 4) & 0xFFFFFF;
                    break;
                case 3:
                    h.bth.psn = static_cast<uint32_t>(random_.below(1 << 24));
                    break;
                case 4:
                    h.bth.dest_qpn = random_.chance(0.5) ? 0xFFFFFF : static_cast<uint32_t>(random_.below(1 << 24));
                    break;
                case 5:
                    h.bth.pkey = static_cast<uint16_t>(random_.next());
                    break;
                case 6:
                    h.reth.length = random_.pick(0u, 1u, 0x7FFFFFFFu, 0x80000000u, 0x80000001u, 0xFFFFFFFFu, 4096u);
                    break;
                case 7:
                    h.reth.va = random_.pick<uint64_t>(0, UINT64_MAX, UINT64_MAX - 7, h.reth.va + 1, random_.next());
                    break;
                case 8:
                    h.reth.rkey = h.atomic.rkey = static_cast<uint32_t>(random_.next());
                    break;
                case 9:
                    h.aeth.syndrome = static_cast<uint8_t>(random_.next());
                    break;
                case 10:
                    h.atomic.va += random_.below(9);
                    break;
                case 11:
                    payload.resize(random_.below(9000), 0x5A);
                    break;
                case 12:
                    payload.resize(random_.pick(0u, 1u, 1023u, 1024u, 1025u), 0x5A);
                    break;
                case 13:
                    h.deth.qkey = static_cast<uint32_t>(random_.next());
                    break;
                case 14:
                    flow.src[15] ^= static_cast<uint8_t>(random_.below(4));
                    break;
                default:
                    flow.traffic_class |= wire::kEcnCe;
                    h.bth.ack_req = random_.chance(0.5);
                    break;
            }
        }
    }
    void spoil(std::vector<uint8_t>& frame) {
        switch (random_.below(3)) {
            case 0:
                frame.resize(random_.below(frame.size() + 1));
                break;
            case 1:
                frame.resize(frame.size() + random_.below(64));
                break;
            default:
                for (uint64_t flips = random_.between(1, 8); flips > 0; --flips)
                    frame[random_.below(frame.size())] ^= static_cast<uint8_t>(1u << random_.below(8));
        }
    }

    Random random_;
    uint64_t now_ = 1000, sent_ = 0, refused_ = 0, answered_ = 0;
    GuardedPages writable_{16384}, read_only_{8192}, local_{12288}, foreign_{8192}, unregistered_{8192};
    Host host_, peer_;
    CompletionQueue& cq_ = host_.completion_queue(4096);
    std::deque<Region> regions_;
    std::vector<QpOptions> options_;
    std::vector<QueuePair*> qps_;
    uint32_t expected_psn_[4] = {};
};

TEST(Hostile, a_million_mutated_golden_packets) {
    std::vector<Seed> golden;
    for (const char* name : {"rc_ipv4_mtu1024", "rc_nak", "rc_rnr", "rc_loss", "uc_ipv4_mtu1024", "ud_ipv4"}) {
        for (const Frame& frame : read_pcap(std::string(ROVE_TEST_DATA) + "/" + name + ".pcap")) {
            Seed seed;
            ASSERT_EQ(wire::parse_frame(frame, seed.parsed), wire::ParseError::kNone);
            seed.payload.assign(seed.parsed.payload, seed.parsed.payload + seed.parsed.payload_bytes);
            golden.push_back(std::move(seed));
        }
    }
    const char* packets = std::getenv("ROVE_PACKETS");
    const uint64_t count = packets != nullptr ? std::strtoull(packets, nullptr, 0) : 1'000'000;
    Random random(1);
    Target target(2);
    const auto before = target.fixed();
    for (uint64_t i = 1; i <= count; ++i) {
        target.attack(golden[random.below(golden.size())]);
        if (i % 100'000 == 0 || i == count) {
            ASSERT_TRUE(target.fixed() == before) << "memory changed that nobody may write, by packet " << i;
            ASSERT_EQ(target.counted(), target.sent()) << "a packet was not counted, or twice, by packet " << i;
        }
    }
    // The attack covered everything: most packets passed the parser, and each reason for a drop occurred.
    EXPECT_GT(target.sent() - target.refused(), count / 2);
    EXPECT_GT(target.answered(), count / 20);
    for (Counter c : {Counter::kDropUnknownQp, Counter::kDropService, Counter::kDropSource, Counter::kDropPkey,
                      Counter::kDropQkey, Counter::kDropSequence, Counter::kDropResponse, Counter::kDropLength,
                      Counter::kDropMulticast, Counter::kDropOverload, Counter::kTxNakError, Counter::kTxNakSequence,
                      Counter::kRxDuplicate, Counter::kTxCnp, Counter::kRxNakError, Counter::kRxNakRnr}) {
        EXPECT_GT(target.host().counter(c), 0u) << transport::to_string(c);
    }
}

}  // namespace
}  // namespace rove::test
