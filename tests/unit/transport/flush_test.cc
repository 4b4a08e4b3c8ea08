// SPDX-License-Identifier: Apache-2.0
// ATOMIC WRITE and FLUSH (IBTA 1.5), in rc and in mp mode: both are answered by a READ response without data.
#include "transport/extended_verbs.h"
#include "transport/pair.h"

namespace rove::test {
namespace {

using ::testing::ElementsAre;

struct Flush : Pair, ::testing::WithParamInterface<bool> {
    static QpOptions options(uint32_t access = kAllAccess | transport::kAccessFlushGlobal) {
        QpOptions made;
        made.multipath = GetParam();
        made.access = access;
        return made;
    }
    Buffer& target = b.buffer(1 << 16, kAllAccess | transport::kAccessFlushGlobal);

    void SetUp() override { connect(options()); }
    // Writes the word at `from` of ma.
    Send atomic_write(uint64_t wr_id, size_t from, size_t to) const {
        return to_target(wr_id, from, 8, to, transport::kWrAtomicWrite);
    }
    Send flush(uint64_t wr_id, size_t bytes, size_t at, uint32_t placement = transport::kFlushGlobal,
               uint32_t selectivity = transport::kFlushRange) const {
        Send s = to_target(wr_id, 0, 0, at, transport::kWrFlush);
        s.sges.clear();
        s.length = static_cast<uint32_t>(bytes);
        s.immediate = placement | selectivity << 4;
        return s;
    }
    Send to_target(uint64_t wr_id, size_t from, size_t bytes, size_t to, uint8_t opcode) const {
        Send s = write(wr_id, from, bytes, to);
        s.opcode = static_cast<ibv_wr_opcode>(opcode);
        s.remote_addr = target.address(to);
        s.rkey = target.key();
        return s;
    }
    void refused(const Send& s, ibv_wc_status status, uint32_t access = options().access) {
        connect(options(access));
        post(s);
        ASSERT_TRUE(run());
        EXPECT_THAT(statuses(sent()), ElementsAre(status));
    }
};
INSTANTIATE_TEST_SUITE_P(Modes, Flush, ::testing::Bool(), [](const auto& info) { return info.param ? "mp" : "rc"; });

TEST_P(Flush, an_atomic_write_is_a_word_written_whole) {
    target.fill(5);
    const auto before = target.bytes(56, 8), behind = target.bytes(72, 8);
    set_word(ma, 24, 0x1122334455667788);
    post(atomic_write(1, 24, 64));
    ASSERT_TRUE(run());
    expect_sent(IBV_WC_SUCCESS, transport::kWcAtomicWrite);
    EXPECT_EQ(word(target, 64), 0x1122334455667788u);
    EXPECT_EQ(target.bytes(56, 8), before);
    EXPECT_EQ(target.bytes(72, 8), behind);
    EXPECT_EQ(packets(a, Op::kAtomicWrite), 1u);
    EXPECT_EQ(packets(b, Op::kReadResponseOnly), 1u);
}

TEST_P(Flush, the_word_may_be_in_the_request_itself) {
    Send s = atomic_write(1, 0, 8);
    s.sges.clear();
    s.compare_add = 42;
    s.length = 8;
    post(s);
    ASSERT_TRUE(run());
    expect_sent(IBV_WC_SUCCESS, transport::kWcAtomicWrite);
    EXPECT_EQ(word(target, 8), 42u);
    set_word(ma, 0, 43);
    s = atomic_write(2, 0, 16);
    s.flags |= IBV_SEND_INLINE;
    post(s);
    set_word(ma, 0, 0);
    ASSERT_TRUE(run());
    expect_sent(IBV_WC_SUCCESS, transport::kWcAtomicWrite);
    EXPECT_EQ(word(target, 16), 43u);
}

// The tail of a log, for example: data, its flush, and the word that announces it, one behind the other and more than
// may be in flight at a time.
TEST_P(Flush, all_take_effect_in_the_order_of_posting) {
    std::vector<uint64_t> expected;
    for (uint64_t round = 0; round < 12; ++round) {
        Send data = write(3 * round, 0, 5000, 1024);
        data.remote_addr = target.address(1024);
        data.rkey = target.key();
        post(data);
        post(flush(3 * round + 1, 60'000, 1024));
        set_word(ma, 6000 + round * 8, round + 1);
        post(atomic_write(3 * round + 2, 6000 + round * 8, 64));
        for (uint64_t i = 0; i < 3; ++i) expected.push_back(3 * round + i);
    }
    ASSERT_TRUE(run());
    EXPECT_EQ(ids(sent()), expected);
    EXPECT_EQ(word(target, 64), 12u);
    EXPECT_EQ(target.bytes(1024, 5000), ma.bytes(0, 5000));
}

TEST_P(Flush, a_lost_answer_comes_again_and_nothing_is_done_twice) {
    set_word(ma, 0, 7);
    bool lost = false;
    net.filter = [&](const Observed& p) {
        if (lost || p.op() != Op::kReadResponseOnly) return Verdict::kPass;
        lost = true;
        EXPECT_EQ(word(target, 64), 7u);
        set_word(target, 64, 99);  // a reader has consumed it and put another value there
        return Verdict::kDrop;
    };
    post(atomic_write(1, 0, 64));
    post(flush(2, 100, 0));
    ASSERT_TRUE(run());
    EXPECT_TRUE(lost);
    EXPECT_THAT(statuses(sent()), ElementsAre(IBV_WC_SUCCESS, IBV_WC_SUCCESS));
    EXPECT_EQ(word(target, 64), 99u);
}

TEST_P(Flush, a_lost_request_is_sent_again) {
    set_word(ma, 0, 7);
    for (const Op op : {Op::kAtomicWrite, Op::kFlush}) {
        lose(0, [op](const Observed& p) { return p.op() == op; });
        post(op == Op::kFlush ? flush(1, 100, 0) : atomic_write(1, 0, 64));
        ASSERT_TRUE(run());
        EXPECT_THAT(statuses(sent()), ElementsAre(IBV_WC_SUCCESS));
    }
    EXPECT_EQ(word(target, 64), 7u);
}

TEST_P(Flush, a_whole_region_whatever_the_address) {
    Send s = flush(1, 0, 0, transport::kFlushGlobal, transport::kFlushRegion);
    s.remote_addr = 0;
    post(s);
    ASSERT_TRUE(run());
    expect_sent(IBV_WC_SUCCESS, transport::kWcFlush);
}

TEST_P(Flush, what_the_peer_does_not_allow) {
    constexpr uint32_t kNoFlush = kAllAccess, kNoWrite = IBV_ACCESS_REMOTE_READ | transport::kAccessFlushGlobal;
    // IBTA 9.7.5.2.4: alignment and rights of the QP are invalid requests, rights of memory are access errors.
    refused(atomic_write(1, 0, 68), IBV_WC_REM_INV_REQ_ERR);
    refused(atomic_write(1, 0, 64), IBV_WC_REM_INV_REQ_ERR, kNoWrite);
    refused(flush(1, 100, 0), IBV_WC_REM_INV_REQ_ERR, kNoFlush);
    refused(flush(1, 100, 0, transport::kFlushPersistent), IBV_WC_REM_INV_REQ_ERR);
    refused(flush(1, 100, 0, transport::kFlushPersistent), IBV_WC_REM_ACCESS_ERR,
            options().access | transport::kAccessFlushPersistent);
    refused(flush(1, 1 << 16, 8), IBV_WC_REM_ACCESS_ERR);
    Send elsewhere = flush(1, 100, 0);
    elsewhere.rkey = mb.key();  // a region without the right
    elsewhere.remote_addr = mb.address(0);
    refused(elsewhere, IBV_WC_REM_ACCESS_ERR);
    elsewhere.immediate = transport::kFlushGlobal | transport::kFlushRegion << 4;
    refused(elsewhere, IBV_WC_REM_ACCESS_ERR);
    Send stale = atomic_write(1, 0, 64);
    stale.rkey ^= 1;
    refused(stale, IBV_WC_REM_ACCESS_ERR);
}

}  // namespace
}  // namespace rove::test
