// SPDX-License-Identifier: Apache-2.0
// Tests the ibv_wr_* calls: the data that each moves, and the result of a batch.
#include <endian.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "fixture.h"
#include "verbs/objects.h"

namespace rove::verbs {
namespace {

// A queue pair that is connected to itself, and one for datagrams.
class WrApiTest : public VerbsTest {
  protected:
    void SetUp() override {
        VerbsTest::SetUp();
        constexpr uint64_t kSends = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM;
        rc_ = create(IBV_QPT_RC, kSends | IBV_QP_EX_WITH_SEND_WITH_INV | IBV_QP_EX_WITH_RDMA_WRITE |
                                     IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM | IBV_QP_EX_WITH_RDMA_READ |
                                     IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP | IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD |
                                     IBV_QP_EX_WITH_LOCAL_INV | IBV_QP_EX_WITH_BIND_MW);
        ud_ = create(IBV_QPT_UD, kSends);
        connect(&rc_->qp_base, rc_->qp_base.qp_num);
        start_ud(&ud_->qp_base);
        for (size_t i = 0; i < 256; ++i) buffer_[i] = static_cast<uint8_t>(i + 1);
    }
    void TearDown() override {
        EXPECT_EQ(ibv_destroy_qp(&rc_->qp_base), 0);
        EXPECT_EQ(ibv_destroy_qp(&ud_->qp_base), 0);
        VerbsTest::TearDown();
    }
    ibv_qp_ex* create(ibv_qp_type type, uint64_t operations) const {
        ibv_qp_init_attr_ex attr{.send_cq = cq_,
                                 .recv_cq = cq_,
                                 .cap = init_attr(type).cap,
                                 .qp_type = type,
                                 .comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
                                 .pd = pd_,
                                 .send_ops_flags = operations};
        return ibv_qp_to_qp_ex(ibv_create_qp_ex(context_, &attr));
    }
    uint64_t address(size_t offset) const { return sge(offset, 0).addr; }
    uint64_t& word(size_t offset) { return *reinterpret_cast<uint64_t*>(&buffer_[offset]); }
    bool arrived(size_t to, size_t from, size_t bytes) const {
        return std::memcmp(&buffer_[to], &buffer_[from], bytes) == 0;
    }
    void start(ibv_qp_ex* qp) {
        ibv_wr_start(qp);
        qp->wr_id = kSent;
        qp->wr_flags = IBV_SEND_SIGNALED;
    }
    void finish(ibv_qp_ex* qp, ibv_wc_opcode opcode) {
        EXPECT_EQ(ibv_wr_complete(qp), 0);
        expect_completion(wait(cq_), opcode);
    }
    // Completes the batch with a receive of 128 bytes at `offset`, and returns the completion of the receive.
    ibv_wc finish(ibv_qp_ex* qp, ibv_wc_opcode opcode, size_t offset) {
        ibv_sge target = sge(offset, 128);
        ibv_recv_wr recv{}, *bad;
        recv.wr_id = kReceived;
        recv.sg_list = &target;
        recv.num_sge = 1;
        EXPECT_EQ(ibv_post_recv(&qp->qp_base, &recv, &bad), 0);
        EXPECT_EQ(ibv_wr_complete(qp), 0);
        ibv_wc sent = wait(cq_), received = wait(cq_);
        if (sent.wr_id != kSent) std::swap(sent, received);
        expect_completion(sent, opcode);
        EXPECT_EQ(received.wr_id, kReceived);
        EXPECT_EQ(received.status, IBV_WC_SUCCESS);
        return received;
    }
    static void expect_completion(const ibv_wc& wc, ibv_wc_opcode opcode) {
        EXPECT_EQ(wc.wr_id, kSent);
        EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
        EXPECT_EQ(wc.opcode, opcode);
    }
    static constexpr uint64_t kSent = 1, kReceived = 2;
    ibv_qp_ex *rc_ = nullptr, *ud_ = nullptr;
};

TEST_F(WrApiTest, EachWayToSayWhatDataMovesIt) {
    start(rc_);
    ibv_wr_send(rc_);
    ibv_wr_set_sge(rc_, mr_->lkey, address(0), 100);
    ibv_wc got = finish(rc_, IBV_WC_SEND, 4096);
    EXPECT_EQ(got.byte_len, 100u);
    EXPECT_EQ(got.wc_flags, 0u);
    EXPECT_TRUE(arrived(4096, 0, 100));

    const ibv_sge parts[] = {sge(50, 7), sge(10, 20)};
    start(rc_);
    ibv_wr_send_imm(rc_, htobe32(0xCAFE0001));
    ibv_wr_set_sge_list(rc_, 2, parts);
    got = finish(rc_, IBV_WC_SEND, 8192);
    EXPECT_EQ(got.byte_len, 27u);
    EXPECT_EQ(got.wc_flags, static_cast<unsigned>(IBV_WC_WITH_IMM));
    EXPECT_EQ(be32toh(got.imm_data), 0xCAFE0001u);
    EXPECT_TRUE(arrived(8192, 50, 7) && arrived(8192 + 7, 10, 20));

    uint8_t first[] = {1, 2, 3}, second[] = {4, 5, 6, 7};
    const ibv_data_buf buffers[] = {{first, 3}, {second, 4}};
    start(rc_);
    ibv_wr_rdma_write_imm(rc_, mr_->rkey, address(12288), htobe32(9));
    ibv_wr_set_inline_data_list(rc_, 2, buffers);
    std::memset(first, 0, sizeof(first));
    got = finish(rc_, IBV_WC_RDMA_WRITE, 4096);
    EXPECT_EQ(got.opcode, IBV_WC_RECV_RDMA_WITH_IMM);
    EXPECT_EQ(got.byte_len, 7u);
    EXPECT_EQ(be32toh(got.imm_data), 9u);
    EXPECT_TRUE(arrived(12288, 0, 7));

    start(rc_);
    ibv_wr_rdma_write(rc_, mr_->rkey, address(16384));
    ibv_wr_set_inline_data(rc_, &buffer_[5], 64);
    finish(rc_, IBV_WC_RDMA_WRITE);
    EXPECT_TRUE(arrived(16384, 5, 64));
    EXPECT_EQ(buffer_[16384 + 64], 0);
}

TEST_F(WrApiTest, ReadsAndAtomics) {
    start(rc_);
    ibv_wr_rdma_read(rc_, mr_->rkey, address(3));
    ibv_wr_set_sge(rc_, mr_->lkey, address(4096), 50);
    finish(rc_, IBV_WC_RDMA_READ);
    EXPECT_TRUE(arrived(4096, 3, 50));
    word(8192) = 5;
    start(rc_);
    ibv_wr_atomic_cmp_swp(rc_, mr_->rkey, address(8192), 5, 70);
    ibv_wr_set_sge(rc_, mr_->lkey, address(8200), 8);
    finish(rc_, IBV_WC_COMP_SWAP);
    EXPECT_EQ(word(8192), 70u);
    EXPECT_EQ(word(8200), 5u);
    start(rc_);
    ibv_wr_atomic_fetch_add(rc_, mr_->rkey, address(8192), 8);
    ibv_wr_set_sge(rc_, mr_->lkey, address(8200), 8);
    finish(rc_, IBV_WC_FETCH_ADD);
    EXPECT_EQ(word(8192), 78u);
    EXPECT_EQ(word(8200), 70u);
}

// IBTA 1.5. Uses the calls of rdma-core 45, because older headers have neither the constants nor ibv_wr_flush().
TEST_F(WrApiTest, AtomicWriteAndFlush) {
    ibv_device_attr_ex device;
    ASSERT_EQ(ibv_query_device_ex(context_, nullptr, &device), 0);
    EXPECT_NE(device.device_cap_flags_ex & transport::kDeviceAtomicWrite, 0u);
    EXPECT_NE(device.device_cap_flags_ex & transport::kDeviceFlushGlobal, 0u);
    ibv_mr* mr = ibv_reg_mr(pd_, buffer_.data(), buffer_.size(), kAllAccess | transport::kAccessFlushGlobal);
    ASSERT_NE(mr, nullptr);
    ibv_qp_ex* qp = create(IBV_QPT_RC, transport::kSendOpFlush | transport::kSendOpAtomicWrite);
    ASSERT_NE(qp, nullptr);
    for (auto [state, mask] : {std::pair{IBV_QPS_INIT, kInitMask}, {IBV_QPS_RTR, kRtrMask}, {IBV_QPS_RTS, kRtsMask}}) {
        ibv_qp_attr attr = attr_for(state, qp->qp_base.qp_num);  // the QP itself
        attr.qp_access_flags |= transport::kAccessFlushGlobal;
        ASSERT_EQ(ibv_modify_qp(&qp->qp_base, &attr, mask), 0);
    }
    const auto write = [&](uint64_t to, uint64_t value) {
        start(qp);
        qp->wr_atomic_write(qp, mr->rkey, to, &value);
    };
    const auto flush = [&](uint32_t rkey, uint64_t to, size_t length, uint8_t placement, uint8_t selectivity) {
        start(qp);
        from(qp).wr_flush(qp, rkey, to, length, placement, selectivity);
    };
    write(address(8192), 0x0102030405060708);
    finish(qp, transport::kWcAtomicWrite);
    EXPECT_EQ(word(8192), 0x0102030405060708u);
    flush(mr->rkey, address(8192), 40'000, transport::kFlushGlobal, transport::kFlushRange);
    finish(qp, transport::kWcFlush);
    flush(mr->rkey, 0, 0, transport::kFlushGlobal, transport::kFlushRegion);
    finish(qp, transport::kWcFlush);
    // Posts an ATOMIC WRITE through ibv_post_send.
    word(0) = 77;
    ibv_sge source = sge(0, 8);
    ibv_send_wr wr{}, *bad;
    wr.wr_id = kSent;
    wr.opcode = static_cast<ibv_wr_opcode>(transport::kWrAtomicWrite);
    wr.send_flags = IBV_SEND_SIGNALED;
    wr.sg_list = &source;
    wr.num_sge = 1;
    wr.wr.rdma = {.remote_addr = address(8200), .rkey = mr->rkey};
    ASSERT_EQ(ibv_post_send(&qp->qp_base, &wr, &bad), 0);
    expect_completion(wait(cq_), transport::kWcAtomicWrite);
    word(0) = 78;
    wr.wr.rdma.remote_addr = address(8208);
    wr.send_flags |= IBV_SEND_INLINE;
    ASSERT_EQ(ibv_post_send(&qp->qp_base, &wr, &bad), 0);
    expect_completion(wait(cq_), transport::kWcAtomicWrite);
    EXPECT_EQ(word(8200), 77u);
    EXPECT_EQ(word(8208), 78u);
    source.length = 4;
    EXPECT_EQ(ibv_post_send(&qp->qp_base, &wr, &bad), EINVAL);
    wr.opcode = static_cast<ibv_wr_opcode>(transport::kWrFlush);
    EXPECT_EQ(ibv_post_send(&qp->qp_base, &wr, &bad), EINVAL) << "it has no room for what it would flush";
    flush(mr->rkey, address(0), 8, 0, transport::kFlushRange);
    EXPECT_EQ(ibv_wr_complete(qp), EINVAL);
    flush(mr->rkey, address(0), 8, transport::kFlushGlobal, 2);
    EXPECT_EQ(ibv_wr_complete(qp), EINVAL);
    // A region without the right. The queue pair is its own peer, so the refusal flushes it before the NAK gives the
    // reason.
    flush(mr_->rkey, address(0), 8, transport::kFlushGlobal, transport::kFlushRange);
    ASSERT_EQ(ibv_wr_complete(qp), 0);
    EXPECT_NE(wait(cq_).status, IBV_WC_SUCCESS);
    EXPECT_EQ(ibv_destroy_qp(&qp->qp_base), 0);
    EXPECT_EQ(ibv_dereg_mr(mr), 0);
}

TEST_F(WrApiTest, Windows) {
    ibv_mw* mw = ibv_alloc_mw(pd_, IBV_MW_TYPE_2);
    const ibv_mw_bind_info info{
        .mr = mr_, .addr = address(4096), .length = 64, .mw_access_flags = IBV_ACCESS_REMOTE_WRITE};
    const uint32_t first = ibv_inc_rkey(mw->rkey), second = ibv_inc_rkey(first);
    start(rc_);
    ibv_wr_bind_mw(rc_, mw, first, &info);
    finish(rc_, IBV_WC_BIND_MW);
    start(rc_);
    ibv_wr_rdma_write(rc_, first, address(4096));
    ibv_wr_set_sge(rc_, mr_->lkey, address(0), 64);
    finish(rc_, IBV_WC_RDMA_WRITE);
    EXPECT_TRUE(arrived(4096, 0, 64));
    start(rc_);
    ibv_wr_local_inv(rc_, first);
    finish(rc_, IBV_WC_LOCAL_INV);
    start(rc_);
    ibv_wr_bind_mw(rc_, mw, second, &info);  // only possible if the window is unbound
    finish(rc_, IBV_WC_BIND_MW);
    start(rc_);
    ibv_wr_send_inv(rc_, second);
    ibv_wr_set_sge(rc_, mr_->lkey, address(0), 10);
    const ibv_wc got = finish(rc_, IBV_WC_SEND, 8192);
    EXPECT_EQ(got.wc_flags, static_cast<unsigned>(IBV_WC_WITH_INV));
    EXPECT_EQ(got.invalidated_rkey, second);
    EXPECT_TRUE(arrived(8192, 0, 10));
    EXPECT_EQ(ibv_dealloc_mw(mw), 0);
}

TEST_F(WrApiTest, Datagrams) {
    ibv_ah_attr own = own_address();
    ibv_ah* ah = ibv_create_ah(pd_, &own);
    start(ud_);
    ibv_wr_send_imm(ud_, htobe32(3));
    ibv_wr_set_ud_addr(ud_, ah, ud_->qp_base.qp_num, 0x1234);
    ibv_wr_set_sge(ud_, mr_->lkey, address(0), 50);
    ibv_wc got = finish(ud_, IBV_WC_SEND, 4096);
    EXPECT_EQ(got.byte_len, 90u);
    EXPECT_EQ(got.src_qp, ud_->qp_base.qp_num);
    EXPECT_EQ(got.wc_flags, static_cast<unsigned>(IBV_WC_GRH | IBV_WC_WITH_IMM));
    EXPECT_EQ(be32toh(got.imm_data), 3u);
    EXPECT_TRUE(arrived(4096 + 40, 0, 50));
    start(ud_);
    ibv_wr_send(ud_);
    ibv_wr_set_inline_data(ud_, &buffer_[7], 20);
    ibv_wr_set_ud_addr(ud_, ah, ud_->qp_base.qp_num, 1u << 31);  // uses the Q_Key of the queue pair
    got = finish(ud_, IBV_WC_SEND, 8192);
    EXPECT_EQ(got.byte_len, 60u);
    EXPECT_TRUE(arrived(8192 + 40, 7, 20));
    start(ud_);
    ibv_wr_send(ud_);
    ibv_wr_set_inline_data(ud_, &buffer_[7], 20);
    EXPECT_EQ(ibv_wr_complete(ud_), EINVAL) << "to whom?";
    start(ud_);
    ibv_wr_send(ud_);
    ibv_wr_set_inline_data(ud_, &buffer_[7], 20);
    ibv_wr_set_ud_addr(ud_, nullptr, ud_->qp_base.qp_num, 0x1234);
    EXPECT_EQ(ibv_wr_complete(ud_), EINVAL);
    start(ud_);
    ibv_wr_send(ud_);
    ibv_wr_set_sge(ud_, mr_->lkey, address(0), 4097);
    ibv_wr_set_ud_addr(ud_, ah, ud_->qp_base.qp_num, 0x1234);
    EXPECT_EQ(ibv_wr_complete(ud_), EINVAL) << "more than the MTU";
    const ibv_sge parts[] = {sge(0, 4096), sge(0, 1)};
    start(ud_);
    ibv_wr_send(ud_);
    ibv_wr_set_sge_list(ud_, 2, parts);
    ibv_wr_set_ud_addr(ud_, ah, ud_->qp_base.qp_num, 0x1234);
    EXPECT_EQ(ibv_wr_complete(ud_), EINVAL);
    start(ud_);
    ibv_wr_rdma_write(ud_, mr_->rkey, address(0));
    ibv_wr_set_sge(ud_, mr_->lkey, address(0), 8);
    ibv_wr_set_ud_addr(ud_, ah, ud_->qp_base.qp_num, 0x1234);
    EXPECT_EQ(ibv_wr_complete(ud_), EINVAL) << "no datagram";
    ibv_pd* other = ibv_alloc_pd(context_);
    ibv_ah* foreign = ibv_create_ah(other, &own);
    start(ud_);
    ibv_wr_send(ud_);
    ibv_wr_set_sge(ud_, mr_->lkey, address(0), 8);
    ibv_wr_set_ud_addr(ud_, foreign, ud_->qp_base.qp_num, 0x1234);
    EXPECT_EQ(ibv_wr_complete(ud_), EINVAL) << "of another protection domain";
    EXPECT_EQ(ibv_destroy_ah(foreign), 0);
    EXPECT_EQ(ibv_dealloc_pd(other), 0);
    EXPECT_EQ(ibv_destroy_ah(ah), 0);
}

TEST_F(WrApiTest, ABatchCompletesInOrder) {
    buffer_[0] = 3;
    const ibv_sge source = sge(0, 8);
    start(rc_);
    for (uint64_t id = 0; id < 3; ++id) {
        rc_->wr_id = id;
        ibv_wr_rdma_write(rc_, mr_->rkey, source.addr + 8192 + id * 8);
        ibv_wr_set_sge(rc_, source.lkey, source.addr, source.length);
    }
    ASSERT_EQ(ibv_wr_complete(rc_), 0);
    for (uint64_t id = 0; id < 3; ++id) {
        const ibv_wc wc = wait(cq_);
        EXPECT_EQ(wc.wr_id, id);
        EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
        EXPECT_EQ(buffer_[8192 + id * 8], 3);
    }
}

TEST_F(WrApiTest, ABadRequestUndoesTheBatch) {
    const ibv_sge source = sge(0, 8);
    start(rc_);
    ibv_wr_rdma_write(rc_, mr_->rkey, source.addr + 8192);
    ibv_wr_set_sge(rc_, source.lkey, source.addr, source.length);
    ibv_wr_atomic_fetch_add(rc_, mr_->rkey, source.addr, 1);
    ibv_wr_set_sge(rc_, source.lkey, source.addr, 4);
    EXPECT_EQ(ibv_wr_complete(rc_), EINVAL);
    ibv_wc wc;
    for (int i = 0; i < 1000; ++i) ASSERT_EQ(ibv_poll_cq(cq_, 1, &wc), 0);
}

TEST_F(WrApiTest, AFullQueueIsOutOfMemoryAndAnAbortLeavesNothing) {
    const ibv_sge source = sge(0, 8);
    start(rc_);
    for (int i = 0; i < 9; ++i) {
        ibv_wr_rdma_write(rc_, mr_->rkey, source.addr + 8192);
        ibv_wr_set_sge(rc_, source.lkey, source.addr, source.length);
    }
    EXPECT_EQ(ibv_wr_complete(rc_), ENOMEM);
    start(rc_);
    ibv_wr_rdma_write(rc_, mr_->rkey, source.addr + 8192);
    ibv_wr_set_inline_data(rc_, buffer_.data(), 8);
    ibv_wr_abort(rc_);
    ibv_wc wc;
    for (int i = 0; i < 1000; ++i) ASSERT_EQ(ibv_poll_cq(cq_, 1, &wc), 0);
}

}  // namespace
}  // namespace rove::verbs
