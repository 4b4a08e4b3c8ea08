// SPDX-License-Identifier: Apache-2.0
// The fixture of the story tests: hosts a and b, a buffer on each, two connected QPs, and expectations about
// completions.
#pragma once

#include <gmock/gmock.h>

#include "transport/virtual_network.h"

namespace rove::test {

using transport::Config;
using wire::Op;

inline constexpr uint64_t kMicrosecond = 1'000, kMillisecond = 1'000'000, kSecond = 1'000'000'000;
inline constexpr size_t kBufferBytes = 1 << 17;

struct Pair : ::testing::Test {
    explicit Pair(const Config& config = {}) : Pair(config, config) {}
    Pair(const Config& config_a, const Config& config_b) : net(1, {config_a, config_b}) {
        ma.fill(1);
        mb.fill(2);
    }

    Network net;
    Host& a = net.host(0);
    Host& b = net.host(1);
    Buffer& ma = a.buffer(kBufferBytes);
    Buffer& mb = b.buffer(kBufferBytes);
    QueuePair* qa = nullptr;
    QueuePair* qb = nullptr;

    void connect(const QpOptions& options_a, const QpOptions& options_b, bool ipv6 = false) {
        Connection made = test::connect(net, a, b, options_a, options_b, ipv6);
        qa = &made.a;
        qb = &made.b;
    }
    void connect(const QpOptions& options = {}) { connect(options, options); }

    // Work requests from ma to mb; READ and atomics go the other way.
    Send send(uint64_t wr_id, size_t offset, size_t bytes) const {
        return {.wr_id = wr_id, .opcode = IBV_WR_SEND, .sges = {ma.sge(offset, bytes)}};
    }
    Send write(uint64_t wr_id, size_t from, size_t bytes, size_t to) const {
        Send s{.wr_id = wr_id, .opcode = IBV_WR_RDMA_WRITE, .sges = {ma.sge(from, bytes)}};
        s.remote_addr = mb.address(to);
        s.rkey = mb.key();
        return s;
    }
    Send write_imm(uint64_t wr_id, size_t from, size_t bytes, size_t to, uint32_t immediate) const {
        Send s = write(wr_id, from, bytes, to);
        s.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
        s.immediate = immediate;
        return s;
    }
    Send read(uint64_t wr_id, size_t to, size_t bytes, size_t from) const {
        Send s = write(wr_id, to, bytes, from);
        s.opcode = IBV_WR_RDMA_READ;
        return s;
    }
    Send fetch_add(uint64_t wr_id, size_t to, size_t at, uint64_t add) const {
        Send s = write(wr_id, to, 8, at);
        s.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
        s.compare_add = add;
        return s;
    }
    Send compare_swap(uint64_t wr_id, size_t to, size_t at, uint64_t compare, uint64_t swap) const {
        Send s = fetch_add(wr_id, to, at, compare);
        s.opcode = IBV_WR_ATOMIC_CMP_AND_SWP;
        s.swap = swap;
        return s;
    }

    void post(const Send& s) { ASSERT_TRUE(a.post(*qa, s)); }
    void receive(uint64_t wr_id, size_t offset, size_t bytes) {
        ASSERT_TRUE(b.post_recv(*qb, wr_id, {mb.sge(offset, bytes)}));
    }
    // Returns true if everything came to rest.
    bool run(uint64_t horizon_ns = 100 * kSecond) { return net.run(net.now() + horizon_ns); }

    std::vector<ibv_wc> sent() { return a.poll(*qa->send_cq); }
    std::vector<ibv_wc> received() { return b.poll(*qb->recv_cq); }

    static std::vector<ibv_wc_status> statuses(const std::vector<ibv_wc>& wcs) {
        std::vector<ibv_wc_status> all;
        for (const ibv_wc& wc : wcs) all.push_back(wc.status);
        return all;
    }
    static std::vector<uint64_t> ids(const std::vector<ibv_wc>& wcs) {
        std::vector<uint64_t> all;
        for (const ibv_wc& wc : wcs) all.push_back(wc.wr_id);
        return all;
    }
    // Expects one send completion with this status.
    void expect_sent(ibv_wc_status status, ibv_wc_opcode opcode = IBV_WC_SEND) {
        const auto wcs = sent();
        ASSERT_EQ(wcs.size(), 1u);
        EXPECT_EQ(wcs[0].status, status);
        if (status == IBV_WC_SUCCESS) {
            EXPECT_EQ(wcs[0].opcode, opcode);
        }
        EXPECT_EQ(wcs[0].qp_num, qa->qpn);
    }

    // Makes a read once while b reads all the time from a slow a.
    void read_beside_a_reader(QpOptions options) {
        options.timeout = 20;
        connect(options);
        net.egress[0].bytes_per_s = 20'000'000;
        net.egress[0].room_packets = 32;
        for (uint64_t i = 0; i < 50; ++i) {
            Send back{.wr_id = i, .opcode = IBV_WR_RDMA_READ, .sges = {mb.sge(0, kBufferBytes)}};
            back.remote_addr = ma.address(0);
            back.rkey = ma.key();
            ASSERT_TRUE(b.post(*qb, back));
        }
        net.run_for(20 * kMillisecond);
        post(read(1, 0, 100, 0));
        net.run_for(50 * kMillisecond);
        EXPECT_EQ(sent().size(), 1u);
        EXPECT_LT(b.poll(*qb->send_cq).size(), 20u) << "it reads still";
        EXPECT_TRUE(run());
    }

    // Returns the number of packets in the trace by sender and operation.
    size_t packets(const Host& from, Op op) const {
        size_t n = 0;
        for (const Observed& p : net.trace) n += p.from == from.index() && p.op() == op && !p.is_cnp();
        return n;
    }
    std::vector<uint8_t> syndromes(const Host& from) const {
        std::vector<uint8_t> all;
        for (const Observed& p : net.trace) {
            if (p.from == from.index() && p.op() == Op::kAck && !p.is_cnp()) all.push_back(p.headers.aeth.syndrome);
        }
        return all;
    }
    static uint64_t word(Buffer& buffer, size_t offset) {
        uint64_t value;
        std::memcpy(&value, buffer.data() + offset, 8);
        return value;
    }
    static void set_word(Buffer& buffer, size_t offset, uint64_t value) {
        std::memcpy(buffer.data() + offset, &value, 8);
    }
    // Loses the `nth` (from 0) packet that `matches`; all others pass.
    void lose(size_t nth, std::function<bool(const Observed&)> matches) {
        net.filter = [nth, matches, seen = size_t{0}](const Observed& p) mutable {
            return matches(p) && seen++ == nth ? Verdict::kDrop : Verdict::kPass;
        };
    }
};

// A pair whose QPs send a whole window at once from the beginning, as NICs do.
struct WholeWindow : Pair {
    WholeWindow() : Pair({.adapts_window = false}) {}
};

}  // namespace rove::test
