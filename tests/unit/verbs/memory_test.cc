// SPDX-License-Identifier: Apache-2.0
// Memory regions: rights, ranges, and what the manual says of wrong ones.
#include <sys/mman.h>

#include <cerrno>

#include "fixture.h"

namespace rove::verbs {
namespace {

constexpr size_t kPage = 4096;

TEST_F(VerbsTest, RightsThatNeedLocalWrite) {
    for (int access : {IBV_ACCESS_REMOTE_WRITE, IBV_ACCESS_REMOTE_ATOMIC}) {
        EXPECT_EQ(ibv_reg_mr(pd_, buffer_.data(), kPage, access), nullptr);
        EXPECT_EQ(errno, EINVAL);
    }
    ibv_mr* mr = ibv_reg_mr(pd_, buffer_.data(), kPage, IBV_ACCESS_REMOTE_READ | IBV_ACCESS_RELAXED_ORDERING);
    ASSERT_NE(mr, nullptr);
    EXPECT_EQ(ibv_dereg_mr(mr), 0);
    EXPECT_EQ(ibv_reg_mr(pd_, buffer_.data(), kPage, IBV_ACCESS_ON_DEMAND), nullptr);
    EXPECT_EQ(errno, EOPNOTSUPP);
    EXPECT_EQ(ibv_reg_mr(pd_, buffer_.data(), 0, 0), nullptr);
    EXPECT_EQ(errno, EINVAL);
}

TEST_F(VerbsTest, RangesThatAreNotThere) {
    auto* memory = static_cast<uint8_t*>(mmap(nullptr, 3 * kPage, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    ibv_mr* mr = ibv_reg_mr(pd_, memory, 3 * kPage, 0);
    ASSERT_NE(mr, nullptr) << "read-only memory may be read from";
    EXPECT_EQ(ibv_dereg_mr(mr), 0);
    EXPECT_EQ(ibv_reg_mr(pd_, memory, kPage, IBV_ACCESS_LOCAL_WRITE), nullptr);
    EXPECT_EQ(errno, EFAULT);
    munmap(memory + kPage, kPage);
    EXPECT_EQ(ibv_reg_mr(pd_, memory, 3 * kPage, 0), nullptr);
    EXPECT_EQ(errno, EFAULT);
    munmap(memory, 3 * kPage);
}

TEST_F(VerbsTest, KeysOfRemovedRegionsAreNotReusedAtOnce) {
    ibv_mr* first = ibv_reg_mr(pd_, buffer_.data(), kPage, 0);
    const uint32_t key = first->rkey;
    EXPECT_EQ(ibv_dereg_mr(first), 0);
    ibv_mr* second = ibv_reg_mr(pd_, buffer_.data(), kPage, 0);
    EXPECT_NE(second->rkey, key);
    EXPECT_EQ(ibv_dereg_mr(second), 0);
}

TEST_F(VerbsTest, Reregistering) {
    ibv_mr* mr = ibv_reg_mr(pd_, buffer_.data(), kPage, IBV_ACCESS_LOCAL_WRITE);
    EXPECT_EQ(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, nullptr, buffer_.data() + kPage, 100, 0), 0);
    EXPECT_EQ(mr->addr, buffer_.data() + kPage);
    EXPECT_EQ(mr->length, 100u);
    EXPECT_EQ(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, IBV_ACCESS_REMOTE_WRITE),
              IBV_REREG_MR_ERR_INPUT);
    EXPECT_EQ(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_PD, nullptr, nullptr, 0, 0), IBV_REREG_MR_ERR_INPUT);
    ibv_pd* other = ibv_alloc_pd(context_);
    EXPECT_EQ(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_PD, other, nullptr, 0, 0), 0);
    EXPECT_EQ(mr->pd, other);
    EXPECT_EQ(ibv_dereg_mr(mr), 0);
    EXPECT_EQ(ibv_dealloc_pd(other), 0);
}

TEST_F(ConnectedTest, ARegionThatIsNoLongerZeroBasedHasAddresses) {
    ibv_mr* mr = ibv_reg_mr(pd_, buffer_.data() + kPage, kPage, kAllAccess | IBV_ACCESS_ZERO_BASED);
    ASSERT_NE(mr, nullptr);
    const auto write_to = [&](uint64_t address) {
        buffer_[0] = static_cast<uint8_t>(buffer_[0] + 1);
        ibv_sge source = sge(0, 16);
        ibv_send_wr write{}, *bad;
        write.sg_list = &source;
        write.num_sge = 1;
        write.opcode = IBV_WR_RDMA_WRITE;
        write.send_flags = IBV_SEND_SIGNALED;
        write.wr.rdma = {.remote_addr = address, .rkey = mr->rkey};
        EXPECT_EQ(ibv_post_send(a_, &write, &bad), 0);
        return wait(cq_).status;
    };
    EXPECT_EQ(write_to(0), IBV_WC_SUCCESS);
    EXPECT_EQ(buffer_[kPage], buffer_[0]);
    EXPECT_EQ(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, kAllAccess), 0);
    EXPECT_EQ(write_to(reinterpret_cast<uintptr_t>(mr->addr)), IBV_WC_SUCCESS);
    EXPECT_EQ(buffer_[kPage], buffer_[0]);
    EXPECT_EQ(write_to(0), IBV_WC_REM_ACCESS_ERR);
    EXPECT_EQ(ibv_dereg_mr(mr), 0);
}

TEST_F(ConnectedTest, WindowsAreBoundUsedAndInvalidated) {
    EXPECT_EQ(ibv_alloc_mw(pd_, IBV_MW_TYPE_1), nullptr);
    EXPECT_EQ(errno, EOPNOTSUPP);
    ibv_mw* mw = ibv_alloc_mw(pd_, IBV_MW_TYPE_2);
    ASSERT_NE(mw, nullptr);
    const uint32_t rkey = ibv_inc_rkey(mw->rkey);
    ibv_send_wr bind{}, *bad;
    bind.opcode = IBV_WR_BIND_MW;
    bind.send_flags = IBV_SEND_SIGNALED;
    bind.bind_mw = {.mw = mw,
                    .rkey = rkey,
                    .bind_info = {.mr = mr_,
                                  .addr = reinterpret_cast<uintptr_t>(buffer_.data()) + kPage,
                                  .length = 16,
                                  .mw_access_flags = IBV_ACCESS_REMOTE_WRITE}};
    ASSERT_EQ(ibv_post_send(b_, &bind, &bad), 0);
    const ibv_wc bound = wait(cq_);
    EXPECT_EQ(bound.status, IBV_WC_SUCCESS);
    EXPECT_EQ(bound.opcode, IBV_WC_BIND_MW);
    EXPECT_EQ(ibv_dereg_mr(mr_), EBUSY);

    buffer_[0] = 42;
    ibv_sge source = sge(0, 16);
    ibv_send_wr write{};
    write.sg_list = &source;
    write.num_sge = 1;
    write.opcode = IBV_WR_RDMA_WRITE;
    write.send_flags = IBV_SEND_SIGNALED;
    write.wr.rdma = {.remote_addr = bind.bind_mw.bind_info.addr, .rkey = rkey};
    ASSERT_EQ(ibv_post_send(a_, &write, &bad), 0);
    EXPECT_EQ(wait(cq_).status, IBV_WC_SUCCESS);
    EXPECT_EQ(buffer_[kPage], 42);

    write.wr.rdma.remote_addr += 1;  // one byte past the window
    ASSERT_EQ(ibv_post_send(a_, &write, &bad), 0);
    EXPECT_EQ(wait(cq_).status, IBV_WC_REM_ACCESS_ERR);
    EXPECT_EQ(ibv_dealloc_mw(mw), 0);
}

}  // namespace
}  // namespace rove::verbs
