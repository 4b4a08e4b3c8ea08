// SPDX-License-Identifier: Apache-2.0
// Tests registered memory that the program has unmapped: the process survives, and every request ends as with a wrong
// key.
#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>
#include <xmmintrin.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <tuple>

#include "fixture.h"

namespace rove::verbs {
namespace {

constexpr size_t kFileBytes = 4 * kPage;

enum class How { kUnmapped, kProtected, kTruncated };

// `a` is connected to `b`. vanish() removes the pages of `gone_` from the parameter `from` on.
class FaultTest : public ConnectedTest, public testing::WithParamInterface<std::tuple<How, size_t>> {
  protected:
    void SetUp() override {
        ConnectedTest::SetUp();
        file_ = memfd_create("fault_test", 0);
        ASSERT_EQ(ftruncate(file_, kFileBytes), 0);
        gone_ = static_cast<uint8_t*>(mmap(nullptr, kFileBytes, PROT_READ | PROT_WRITE, MAP_SHARED, file_, 0));
        ASSERT_NE(gone_, MAP_FAILED);
        std::memset(gone_, 7, kFileBytes);
        dead_ = ibv_reg_mr(pd_, gone_, kFileBytes, kAllAccess);
        ASSERT_NE(dead_, nullptr);
    }
    void TearDown() override {
        EXPECT_EQ(ibv_dereg_mr(dead_), 0);
        munmap(gone_, kFileBytes);
        close(file_);
        ConnectedTest::TearDown();
    }
    void vanish() {
        const auto [how, from] = GetParam();
        switch (how) {
            case How::kUnmapped:
                ASSERT_EQ(munmap(gone_ + from, kFileBytes - from), 0);
                break;
            case How::kProtected:
                ASSERT_EQ(mprotect(gone_ + from, kFileBytes - from, PROT_NONE), 0);
                break;
            case How::kTruncated:
                ASSERT_EQ(ftruncate(file_, static_cast<off_t>(from)), 0);
                break;
        }
        testing::internal::CaptureStderr();
    }
    // Expects one line of output for the region.
    void expect_told() {
        const std::string told = testing::internal::GetCapturedStderr();
        EXPECT_EQ(std::count(told.begin(), told.end(), '\n'), 1) << told;
        EXPECT_NE(told.find("is no longer accessible"), std::string::npos) << told;
    }
    ibv_sge here(uint32_t length = 12'000) const { return sge(0, length); }
    ibv_sge there(uint32_t length = 12'000) const {
        return {.addr = reinterpret_cast<uintptr_t>(gone_), .length = length, .lkey = dead_->lkey};
    }
    void post(ibv_qp* qp, ibv_wr_opcode opcode, ibv_sge local, uint64_t id = 1) const {
        ibv_send_wr wr{.wr_id = id, .sg_list = &local, .num_sge = 1, .opcode = opcode, .send_flags = IBV_SEND_SIGNALED};
        wr.wr.rdma = {.remote_addr = reinterpret_cast<uintptr_t>(gone_), .rkey = dead_->rkey};
        ibv_send_wr* bad;
        ASSERT_EQ(ibv_post_send(qp, &wr, &bad), 0);
    }
    void receive(ibv_qp* qp, ibv_sge local) const {
        ibv_recv_wr wr{.wr_id = 99, .sg_list = &local, .num_sge = 1}, *bad;
        ASSERT_EQ(ibv_post_recv(qp, &wr, &bad), 0);
    }
    static ibv_qp_state state(ibv_qp* qp) {
        ibv_qp_attr attr{};
        ibv_qp_init_attr init{};
        ibv_query_qp(qp, &attr, IBV_QP_STATE, &init);
        return attr.qp_state;
    }
    // Expects that another pair of QPs still works.
    void expect_others_go_on() const {
        ibv_qp_init_attr attr = init_attr(IBV_QPT_RC);
        ibv_qp* c = ibv_create_qp(pd_, &attr);
        ibv_qp* d = ibv_create_qp(pd_, &attr);
        connect(c, d->qp_num);
        connect(d, c->qp_num);
        ibv_sge local = sge(0, 8000);
        ibv_send_wr wr{.sg_list = &local, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_SIGNALED};
        wr.wr.rdma = {.remote_addr = reinterpret_cast<uintptr_t>(buffer_.data()) + 16'384, .rkey = mr_->rkey};
        ibv_send_wr* bad;
        ASSERT_EQ(ibv_post_send(c, &wr, &bad), 0);
        EXPECT_EQ(wait(cq_).status, IBV_WC_SUCCESS);
        EXPECT_EQ(ibv_destroy_qp(c), 0);
        EXPECT_EQ(ibv_destroy_qp(d), 0);
    }

    int file_ = -1;
    uint8_t* gone_ = nullptr;
    ibv_mr* dead_ = nullptr;
};

TEST_P(FaultTest, APeersWrite) {
    vanish();
    post(a_, IBV_WR_RDMA_WRITE, here());
    EXPECT_EQ(wait(cq_).status, IBV_WC_REM_ACCESS_ERR);
    EXPECT_EQ(state(b_), IBV_QPS_ERR);
    expect_told();
    expect_others_go_on();
}

TEST_P(FaultTest, APeersRead) {
    vanish();
    post(a_, IBV_WR_RDMA_READ, here());
    EXPECT_EQ(wait(cq_).status, IBV_WC_REM_ACCESS_ERR);
    EXPECT_EQ(state(b_), IBV_QPS_ERR);
    expect_told();
    expect_others_go_on();
}

TEST_P(FaultTest, APeersAtomic) {
    vanish();
    ibv_sge local = here(8);
    ibv_send_wr wr{
        .sg_list = &local, .num_sge = 1, .opcode = IBV_WR_ATOMIC_FETCH_AND_ADD, .send_flags = IBV_SEND_SIGNALED};
    wr.wr.atomic = {
        .remote_addr = reinterpret_cast<uintptr_t>(gone_) + 3 * kPage, .compare_add = 1, .rkey = dead_->rkey};
    ibv_send_wr* bad;
    ASSERT_EQ(ibv_post_send(a_, &wr, &bad), 0);
    EXPECT_EQ(wait(cq_).status, IBV_WC_REM_ACCESS_ERR);
    expect_told();
}

TEST_P(FaultTest, APeersSend) {
    for (const uint32_t length : {12'000u, 16'000u}) {
        if (length == 12'000) vanish();
        receive(b_, there(16'384));
        ibv_sge local = sge(0, length);
        post(a_, IBV_WR_SEND, local);
        ibv_wc sent = wait(cq_), received = wait(cq_);
        if (sent.opcode == IBV_WC_RECV || sent.wr_id == 99) std::swap(sent, received);
        EXPECT_EQ(sent.status, IBV_WC_REM_OP_ERR);
        EXPECT_EQ(received.status, IBV_WC_LOC_PROT_ERR);
        if (length == 12'000) expect_told();
        ibv_qp_attr reset{};
        reset.qp_state = IBV_QPS_RESET;
        for (ibv_qp* qp : {a_, b_}) ASSERT_EQ(ibv_modify_qp(qp, &reset, IBV_QP_STATE), 0);
        connect(a_, b_->qp_num);
        connect(b_, a_->qp_num);
    }
}

TEST_P(FaultTest, WhatIsSent) {
    vanish();
    ibv_mr* target = ibv_reg_mr(pd_, buffer_.data(), buffer_.size(), kAllAccess);
    const auto write = [&](ibv_sge local, uint64_t id, ibv_send_wr* next) {
        static ibv_sge sges[8];
        sges[id] = local;
        ibv_send_wr wr{.wr_id = id,
                       .next = next,
                       .sg_list = &sges[id],
                       .num_sge = 1,
                       .opcode = IBV_WR_RDMA_WRITE,
                       .send_flags = IBV_SEND_SIGNALED};
        wr.wr.rdma = {.remote_addr = reinterpret_cast<uintptr_t>(buffer_.data()) + 20'000, .rkey = target->rkey};
        return wr;
    };
    // Requests posted before the fault succeed, in one burst or in several. Requests behind it are flushed.
    ibv_sge far = there(100);
    far.addr += 3 * kPage;
    ibv_send_wr fourth = write(sge(0, 100), 4, nullptr), third = write(far, 3, &fourth),
                second = write(sge(0, 100), 2, &third), first = write(sge(0, 100), 1, &second), *bad;
    ASSERT_EQ(ibv_post_send(a_, &first, &bad), 0);
    for (const ibv_wc_status expected : {IBV_WC_SUCCESS, IBV_WC_SUCCESS, IBV_WC_LOC_PROT_ERR, IBV_WC_WR_FLUSH_ERR})
        EXPECT_EQ(wait(cq_).status, expected);
    EXPECT_EQ(state(a_), IBV_QPS_ERR);
    expect_told();
    EXPECT_EQ(ibv_dereg_mr(target), 0);
    expect_others_go_on();
}

TEST_P(FaultTest, ALongMessageThatIsSent) {
    vanish();
    receive(b_, sge(0, 16'384));
    post(a_, IBV_WR_SEND, there(16'384));
    EXPECT_EQ(wait(cq_).status, IBV_WC_LOC_PROT_ERR);
    EXPECT_EQ(state(a_), IBV_QPS_ERR);
    expect_told();
    expect_others_go_on();
}

TEST_P(FaultTest, WhereAReadGoes) {
    vanish();
    ibv_sge local = there();
    ibv_send_wr wr{.sg_list = &local, .num_sge = 1, .opcode = IBV_WR_RDMA_READ, .send_flags = IBV_SEND_SIGNALED};
    wr.wr.rdma = {.remote_addr = reinterpret_cast<uintptr_t>(buffer_.data()), .rkey = mr_->rkey};
    ibv_send_wr* bad;
    ASSERT_EQ(ibv_post_send(a_, &wr, &bad), 0);
    EXPECT_EQ(wait(cq_).status, IBV_WC_LOC_PROT_ERR);
    EXPECT_EQ(state(a_), IBV_QPS_ERR);
    expect_told();
    expect_others_go_on();
}

TEST_P(FaultTest, Datagrams) {
    ibv_qp_init_attr attr = init_attr(IBV_QPT_UD);
    ibv_qp* qp = ibv_create_qp(pd_, &attr);
    start_ud(qp);
    ibv_ah_attr address = own_address();
    ibv_ah* ah = ibv_create_ah(pd_, &address);
    const auto send = [&](ibv_sge local) {
        ibv_send_wr wr{
            .wr_id = 5, .sg_list = &local, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED};
        wr.wr.ud = {.ah = ah, .remote_qpn = qp->qp_num, .remote_qkey = 0x1234};
        ibv_send_wr* bad;
        ASSERT_EQ(ibv_post_send(qp, &wr, &bad), 0);
    };
    vanish();
    ibv_sge far = there(500);
    far.addr += 3 * kPage;
    receive(qp, far);
    receive(qp, sge(20'000, 500));
    send(sge(0, 400));
    ibv_wc sent = wait(cq_), received = wait(cq_);
    if (sent.wr_id == 99) std::swap(sent, received);
    EXPECT_EQ(sent.status, IBV_WC_SUCCESS);
    EXPECT_EQ(received.status, IBV_WC_LOC_PROT_ERR);
    EXPECT_EQ(wait(cq_).status, IBV_WC_WR_FLUSH_ERR) << "the other receive was not taken";
    expect_told();
    ibv_qp_attr reset{};
    reset.qp_state = IBV_QPS_RESET;
    ASSERT_EQ(ibv_modify_qp(qp, &reset, IBV_QP_STATE), 0);
    start_ud(qp);
    send(far);
    EXPECT_EQ(wait(cq_).status, IBV_WC_LOC_PROT_ERR);
    EXPECT_EQ(state(qp), IBV_QPS_SQE);
    EXPECT_EQ(ibv_destroy_ah(ah), 0);
    EXPECT_EQ(ibv_destroy_qp(qp), 0);
}

INSTANTIATE_TEST_SUITE_P(All, FaultTest,
                         testing::Combine(testing::Values(How::kUnmapped, How::kProtected, How::kTruncated),
                                          testing::Values(size_t{0}, kPage, 2 * kPage)));

// A fault outside registered memory goes to the program's own handler. This also works if the program installed its
// handler after rove's, and calls rove's in turn.
class HandlerTest : public VerbsTest {
  protected:
    static void go_back(int, siginfo_t*, void*) { siglongjmp(back, 1); }
    static void hand_on(int signal, siginfo_t* info, void* context) {
        calls = calls + 1;
        before.sa_sigaction(signal, info, context);
    }
    static inline sigjmp_buf back;
    static inline volatile int calls;
    static inline struct sigaction before;
};

TEST_F(HandlerTest, FaultsOfTheProgramsOwn) {
    auto* page = static_cast<uint8_t*>(mmap(nullptr, kPage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    // The second handler calls the handler that it replaced. That is rove's handler, which calls the first.
    for (const auto handler : {go_back, hand_on}) {
        struct sigaction theirs {
        }, now{};
        theirs.sa_sigaction = handler;
        theirs.sa_flags = SA_SIGINFO;
        ASSERT_EQ(sigaction(SIGSEGV, &theirs, &before), 0);
        EXPECT_EQ(ibv_dereg_mr(ibv_reg_mr(pd_, buffer_.data(), buffer_.size(), kAllAccess)), 0);
        ASSERT_EQ(sigaction(SIGSEGV, nullptr, &now), 0);
        EXPECT_NE(now.sa_sigaction, theirs.sa_sigaction) << "ours is in front again";
    }
    for (int fault = 1; fault <= 3; ++fault) {
        if (sigsetjmp(back, 1) == 0) *static_cast<volatile uint8_t*>(page) = 1;
        EXPECT_EQ(calls, fault);
    }
    munmap(page, kPage);
}

// The thread keeps its floating point modes.
TEST_F(HandlerTest, ModesStay) {
    auto* page =
        static_cast<uint8_t*>(mmap(nullptr, kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    ibv_mr* dead = ibv_reg_mr(pd_, page, kPage, kAllAccess);
    ibv_qp_init_attr attr = init_attr(IBV_QPT_RC);
    ibv_qp* qp = ibv_create_qp(pd_, &attr);
    connect(qp, qp->qp_num);
    munmap(page, kPage);
    const unsigned modes = _mm_getcsr();
    _mm_setcsr(modes | 0x8040);  // flush to zero, denormals are zeros
    ibv_sge local = sge(0, 100);
    ibv_send_wr wr{.sg_list = &local, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_SIGNALED};
    wr.wr.rdma = {.remote_addr = reinterpret_cast<uintptr_t>(page), .rkey = dead->rkey};
    ibv_send_wr* bad;
    ASSERT_EQ(ibv_post_send(qp, &wr, &bad), 0);
    EXPECT_EQ(wait(cq_).status, IBV_WC_WR_FLUSH_ERR) << "its own peer, it is in error before its NAK comes";
    EXPECT_EQ(_mm_getcsr() & 0x8040, 0x8040u);
    _mm_setcsr(modes);
    EXPECT_EQ(ibv_destroy_qp(qp), 0);
    EXPECT_EQ(ibv_dereg_mr(dead), 0);
}

}  // namespace
}  // namespace rove::verbs
