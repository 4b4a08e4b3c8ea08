// SPDX-License-Identifier: Apache-2.0
// Tests memory regions: access rights, ranges, and the errors that the manual specifies.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "fixture.h"

namespace rove::verbs {
namespace {

class MemoryTest : public ConnectedTest {
  protected:
    uint64_t address(size_t offset) const { return reinterpret_cast<uintptr_t>(buffer_.data()) + offset; }
    ibv_wc run(ibv_qp* qp, ibv_send_wr wr) const {
        ibv_send_wr* bad;
        wr.send_flags = IBV_SEND_SIGNALED;
        EXPECT_EQ(ibv_post_send(qp, &wr, &bad), 0);
        return wait(cq_);
    }
    // Posts a WRITE or READ at a. After an error, both queue pairs are connected again.
    ibv_wc_status move(ibv_wr_opcode opcode, ibv_sge local, uint64_t remote, uint32_t rkey) const {
        ibv_send_wr wr{};
        wr.sg_list = &local;
        wr.num_sge = 1;
        wr.opcode = opcode;
        wr.wr.rdma = {.remote_addr = remote, .rkey = rkey};
        const ibv_wc_status status = run(a_, wr).status;
        if (status != IBV_WC_SUCCESS) reconnect();
        return status;
    }
    void reconnect() const {
        ibv_qp_attr reset{};
        reset.qp_state = IBV_QPS_RESET;
        for (ibv_qp* qp : {a_, b_}) EXPECT_EQ(ibv_modify_qp(qp, &reset, IBV_QP_STATE), 0);
        connect(a_, b_->qp_num);
        connect(b_, a_->qp_num);
    }
    void fill(size_t offset, size_t bytes) {
        for (size_t i = 0; i < bytes; ++i) buffer_[offset + i] = ++last_;
    }
    bool alike(size_t left, size_t right, size_t bytes) const {
        return std::equal(&buffer_[left], &buffer_[left + bytes], &buffer_[right]);
    }
    uint8_t last_ = 0;
};

TEST_F(VerbsTest, RightsThatNeedLocalWrite) {
    for (int access : {IBV_ACCESS_REMOTE_WRITE, IBV_ACCESS_REMOTE_ATOMIC}) {
        EXPECT_EQ(ibv_reg_mr(pd_, buffer_.data(), kPage, access), nullptr);
        EXPECT_EQ(errno, EINVAL);
    }
    ibv_mr* mr = ibv_reg_mr(pd_, buffer_.data(), kPage, IBV_ACCESS_REMOTE_READ | IBV_ACCESS_RELAXED_ORDERING);
    ASSERT_NE(mr, nullptr);
    EXPECT_EQ(ibv_dereg_mr(mr), 0);
    EXPECT_EQ(ibv_reg_mr(pd_, nullptr, SIZE_MAX, IBV_ACCESS_ON_DEMAND), nullptr) << "implicit";
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

TEST_F(MemoryTest, ARegionThatIsNoLongerZeroBasedHasAddresses) {
    ibv_mr* mr = ibv_reg_mr(pd_, buffer_.data() + kPage, kPage, kAllAccess | IBV_ACCESS_ZERO_BASED);
    ASSERT_NE(mr, nullptr);
    EXPECT_EQ(move(IBV_WR_RDMA_WRITE, sge(0, 16), 0, mr->rkey), IBV_WC_SUCCESS);
    EXPECT_EQ(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, kAllAccess), 0);
    fill(0, 16);
    EXPECT_EQ(move(IBV_WR_RDMA_WRITE, sge(0, 16), address(kPage), mr->rkey), IBV_WC_SUCCESS);
    EXPECT_TRUE(alike(kPage, 0, 16));
    EXPECT_EQ(move(IBV_WR_RDMA_WRITE, sge(0, 16), 0, mr->rkey), IBV_WC_REM_ACCESS_ERR);
    EXPECT_EQ(ibv_dereg_mr(mr), 0);
}

TEST_F(MemoryTest, ARegionIsReachedByItsIovaOnly) {
    constexpr uint64_t kHigh = 0x7000'0000'0000, kLast = -uint64_t{kPage};
    uint8_t* memory = buffer_.data() + kPage;
    const std::pair<ibv_mr*, uint64_t> regions[] = {
        {ibv_reg_mr_iova(pd_, memory, kPage, kHigh, kAllAccess), kHigh},
        {ibv_reg_mr_iova2(pd_, memory, kPage, kLast, kAllAccess), kLast},
        {ibv_reg_mr(pd_, memory, kPage, kAllAccess | IBV_ACCESS_ZERO_BASED), 0}};
    for (const auto& [mr, iova] : regions) {
        ASSERT_NE(mr, nullptr);
        EXPECT_EQ(mr->addr, memory);
        for (const size_t offset : {size_t{0}, size_t{100}, kPage - 16}) {
            fill(0, 16);
            EXPECT_EQ(move(IBV_WR_RDMA_WRITE, sge(0, 16), iova + offset, mr->rkey), IBV_WC_SUCCESS);
            EXPECT_TRUE(alike(kPage + offset, 0, 16)) << std::hex << iova << " + " << offset;
            fill(kPage + offset, 16);
            EXPECT_EQ(move(IBV_WR_RDMA_READ, sge(0, 16), iova + offset, mr->rkey), IBV_WC_SUCCESS);
            EXPECT_TRUE(alike(0, kPage + offset, 16)) << std::hex << iova << " + " << offset;
            fill(kPage + offset, 16);
            const ibv_sge local{.addr = iova + offset, .length = 16, .lkey = mr->lkey};
            EXPECT_EQ(move(IBV_WR_RDMA_WRITE, local, address(0), mr_->rkey), IBV_WC_SUCCESS);
            EXPECT_TRUE(alike(0, kPage + offset, 16)) << std::hex << iova << " + " << offset;
        }
        for (const uint64_t wrong : {iova + kPage - 15, iova - 1, address(kPage)}) {
            EXPECT_EQ(move(IBV_WR_RDMA_WRITE, sge(0, 16), wrong, mr->rkey), IBV_WC_REM_ACCESS_ERR);
            EXPECT_EQ(move(IBV_WR_RDMA_READ, sge(0, 16), wrong, mr->rkey), IBV_WC_REM_ACCESS_ERR);
            const ibv_sge local{.addr = wrong, .length = 16, .lkey = mr->lkey};
            EXPECT_EQ(move(IBV_WR_RDMA_WRITE, local, address(0), mr_->rkey), IBV_WC_LOC_PROT_ERR);
            EXPECT_EQ(move(IBV_WR_RDMA_READ, local, address(0), mr_->rkey), IBV_WC_LOC_PROT_ERR);
        }
        EXPECT_EQ(ibv_dereg_mr(mr), 0);
    }
}

TEST_F(MemoryTest, AReregisteredRegionIsWhereAndForWhomItWasPut) {
    ibv_mr* mr = ibv_reg_mr(pd_, buffer_.data() + kPage, kPage, kAllAccess);
    fill(0, 16);
    fill(kPage, 16);
    EXPECT_EQ(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, nullptr, buffer_.data() + 2 * kPage, 64, 0), 0);
    EXPECT_EQ(move(IBV_WR_RDMA_WRITE, sge(0, 16), address(2 * kPage + 48), mr->rkey), IBV_WC_SUCCESS);
    EXPECT_TRUE(alike(2 * kPage + 48, 0, 16));
    EXPECT_EQ(move(IBV_WR_RDMA_WRITE, sge(0, 16), address(2 * kPage + 49), mr->rkey), IBV_WC_REM_ACCESS_ERR);
    EXPECT_EQ(move(IBV_WR_RDMA_WRITE, sge(0, 16), address(kPage), mr->rkey), IBV_WC_REM_ACCESS_ERR);
    EXPECT_FALSE(alike(kPage, 0, 16));

    EXPECT_EQ(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, IBV_ACCESS_REMOTE_READ), 0);
    const ibv_sge local{.addr = address(2 * kPage), .length = 16, .lkey = mr->lkey};
    EXPECT_EQ(move(IBV_WR_RDMA_READ, sge(0, 16), local.addr, mr->rkey), IBV_WC_SUCCESS);
    EXPECT_EQ(move(IBV_WR_RDMA_WRITE, sge(0, 16), local.addr, mr->rkey), IBV_WC_REM_ACCESS_ERR);
    EXPECT_EQ(move(IBV_WR_RDMA_READ, local, address(0), mr_->rkey), IBV_WC_LOC_PROT_ERR);
    EXPECT_EQ(move(IBV_WR_RDMA_WRITE, local, address(0), mr_->rkey), IBV_WC_SUCCESS) << "the local side may read";

    ibv_pd* other = ibv_alloc_pd(context_);
    EXPECT_EQ(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_PD, other, nullptr, 0, 0), 0);
    EXPECT_EQ(move(IBV_WR_RDMA_READ, sge(0, 16), local.addr, mr->rkey), IBV_WC_REM_ACCESS_ERR);
    EXPECT_EQ(move(IBV_WR_RDMA_WRITE, local, address(0), mr_->rkey), IBV_WC_LOC_PROT_ERR);

    EXPECT_EQ(ibv_rereg_mr(mr, IBV_REREG_MR_FLAGS_SUPPORTED, pd_, buffer_.data() + kPage, kPage, kAllAccess), 0);
    EXPECT_EQ(ibv_dealloc_pd(other), 0);
    EXPECT_EQ(move(IBV_WR_RDMA_WRITE, sge(0, 16), address(kPage), mr->rkey), IBV_WC_SUCCESS);
    EXPECT_TRUE(alike(kPage, 0, 16));
    EXPECT_EQ(ibv_dereg_mr(mr), 0);
}

// IBV_REREG_MR_ERR_INPUT: "Old MR is valid".
TEST_F(MemoryTest, ARegionStaysWhatItWasWhenItsReregistrationFails) {
    uint8_t* memory = buffer_.data() + kPage;
    ibv_mr* mr = ibv_reg_mr(pd_, memory, kPage, kAllAccess);
    void* gone = mmap(nullptr, kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    munmap(gone, kPage);
    ibv_pd* other = ibv_alloc_pd(context_);
    const auto refused = [&](int flags, ibv_pd* pd, void* to, int access, int error) {
        EXPECT_EQ(ibv_rereg_mr(mr, flags, pd, to, kPage, access), IBV_REREG_MR_ERR_INPUT);
        EXPECT_EQ(errno, error);
        EXPECT_EQ(mr->addr, memory);
        EXPECT_EQ(mr->pd, pd_);
        fill(0, 16);
        EXPECT_EQ(move(IBV_WR_RDMA_WRITE, sge(0, 16), address(kPage), mr->rkey), IBV_WC_SUCCESS);
        EXPECT_TRUE(alike(kPage, 0, 16));
    };
    constexpr int kAll = IBV_REREG_MR_FLAGS_SUPPORTED;
    refused(0, other, buffer_.data(), 0, EINVAL);
    refused(IBV_REREG_MR_CHANGE_PD, other, nullptr, IBV_ACCESS_REMOTE_READ, EINVAL);
    refused(IBV_REREG_MR_CHANGE_TRANSLATION, nullptr, nullptr, 0, EINVAL);
    refused(kAll | (kAll + 1), other, buffer_.data(), 0, EINVAL);
    refused(kAll, other, gone, IBV_ACCESS_REMOTE_READ, EFAULT);
    refused(kAll, other, buffer_.data(), IBV_ACCESS_REMOTE_WRITE, EINVAL);
    refused(kAll, nullptr, buffer_.data(), IBV_ACCESS_REMOTE_READ, EINVAL);
    EXPECT_EQ(ibv_dealloc_pd(other), 0);
    EXPECT_EQ(ibv_dereg_mr(mr), 0);
}

TEST_F(MemoryTest, OnDemandPagesComeWhenTheyAreUsed) {
    auto* memory = static_cast<uint8_t*>(
        mmap(nullptr, 4 * kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
    const auto resident = [&] {
        unsigned char pages[4];
        EXPECT_EQ(mincore(memory, 4 * kPage, pages), 0);
        return (pages[0] & 1) + (pages[1] & 1) + (pages[2] & 1) + (pages[3] & 1);
    };
    ibv_mr* mr = ibv_reg_mr(pd_, memory, 4 * kPage, kAllAccess | IBV_ACCESS_ON_DEMAND);
    ASSERT_NE(mr, nullptr);
    EXPECT_EQ(resident(), 0);
    const auto at = reinterpret_cast<uintptr_t>(memory);
    fill(0, 16);
    EXPECT_EQ(move(IBV_WR_RDMA_WRITE, sge(0, 16), at + kPage, mr->rkey), IBV_WC_SUCCESS);
    EXPECT_EQ(std::memcmp(memory + kPage, buffer_.data(), 16), 0);
    EXPECT_EQ(resident(), 1);
    ibv_sge range{.addr = at, .length = 3 * kPage, .lkey = mr->lkey};
    EXPECT_EQ(ibv_advise_mr(pd_, IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE, IBV_ADVISE_MR_FLAG_FLUSH, &range, 1), 0);
    EXPECT_EQ(resident(), 3);
    range.length = 5 * kPage;
    EXPECT_EQ(ibv_advise_mr(pd_, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, &range, 1), EFAULT);
    EXPECT_EQ(ibv_advise_mr(pd_, IBV_ADVISE_MR_ADVICE_PREFETCH, 2, &range, 1), EINVAL);
    EXPECT_EQ(ibv_dereg_mr(mr), 0);
    munmap(memory, 4 * kPage);
    // Pages that do not exist give the same errors as unmapped memory.
    mr = ibv_reg_mr(pd_, memory, kPage, kAllAccess | IBV_ACCESS_ON_DEMAND);
    ASSERT_NE(mr, nullptr);
    EXPECT_EQ(move(IBV_WR_RDMA_WRITE, sge(0, 16), at, mr->rkey), IBV_WC_REM_ACCESS_ERR);
    EXPECT_EQ(ibv_dereg_mr(mr), 0);
    ibv_device_attr_ex attr{};
    ASSERT_EQ(ibv_query_device_ex(context_, nullptr, &attr), 0);
    EXPECT_EQ(attr.odp_caps.general_caps, uint64_t{IBV_ODP_SUPPORT});
}

TEST_F(MemoryTest, ANullRegionGivesZerosAndForgets) {
    ibv_mr* mr = ibv_alloc_null_mr(pd_);
    ASSERT_NE(mr, nullptr);
    ibv_sge nowhere{.addr = 0x12345, .length = 6000, .lkey = mr->lkey};
    fill(0, 6000);
    EXPECT_EQ(move(IBV_WR_RDMA_READ, nowhere, address(0), mr_->rkey), IBV_WC_SUCCESS);
    EXPECT_EQ(move(IBV_WR_RDMA_WRITE, nowhere, address(0), mr_->rkey), IBV_WC_SUCCESS);
    EXPECT_EQ(std::count(buffer_.begin(), buffer_.begin() + 6000, 0), 6000);
    EXPECT_EQ(move(IBV_WR_RDMA_WRITE, sge(0, 16), 0, mr->rkey), IBV_WC_REM_ACCESS_ERR) << "not for a peer";
    EXPECT_EQ(ibv_dereg_mr(mr), 0);
}

TEST_F(MemoryTest, AFileThatIsNoDmaBuf) {
    const int fd = memfd_create("file", 0);
    ASSERT_EQ(ftruncate(fd, kPage), 0);
    EXPECT_EQ(ibv_reg_dmabuf_mr(pd_, 0, kPage, 0, fd, kAllAccess), nullptr);
    EXPECT_EQ(errno, EINVAL);
    close(fd);
    EXPECT_EQ(ibv_reg_dmabuf_mr(pd_, 0, kPage, 0, fd, kAllAccess), nullptr);
    EXPECT_EQ(errno, EBADF);
}

class WindowTest : public MemoryTest {
  protected:
    void SetUp() override {
        MemoryTest::SetUp();
        region_ = ibv_reg_mr(pd_, buffer_.data() + kPage, kPage, kAllAccess | IBV_ACCESS_MW_BIND);
        window_ = ibv_alloc_mw(pd_, IBV_MW_TYPE_2);
    }
    void TearDown() override {
        EXPECT_EQ(ibv_dealloc_mw(window_), 0);
        EXPECT_EQ(ibv_dereg_mr(region_), 0);
        MemoryTest::TearDown();
    }
    // Binds the window to the first 64 bytes of the region, for b.
    ibv_wc bind(unsigned access, ibv_mr* region) {
        ibv_send_wr wr{};
        wr.opcode = IBV_WR_BIND_MW;
        wr.bind_mw = {.mw = window_,
                      .rkey = rkey_ = ibv_inc_rkey(rkey_ == 0 ? window_->rkey : rkey_),
                      .bind_info = {.mr = region, .addr = address(kPage), .length = 64, .mw_access_flags = access}};
        return run(b_, wr);
    }
    ibv_wc_status write_to(uint32_t rkey, uint64_t remote) {
        fill(0, 16);
        return move(IBV_WR_RDMA_WRITE, sge(0, 16), remote, rkey);
    }
    ibv_mr* region_ = nullptr;
    ibv_mw* window_ = nullptr;
    uint32_t rkey_ = 0;
};

constexpr unsigned kReadWrite = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE;

TEST_F(WindowTest, ALocalInvalidationEndsIt) {
    ASSERT_EQ(bind(kReadWrite, region_).status, IBV_WC_SUCCESS);
    EXPECT_EQ(write_to(rkey_, address(kPage + 48)), IBV_WC_SUCCESS);
    EXPECT_TRUE(alike(kPage + 48, 0, 16));
    EXPECT_EQ(write_to(rkey_, address(kPage + 49)), IBV_WC_REM_ACCESS_ERR) << "one byte past the window";
    fill(kPage + 48, 16);
    EXPECT_EQ(move(IBV_WR_RDMA_READ, sge(0, 16), address(kPage + 48), rkey_), IBV_WC_SUCCESS);
    EXPECT_TRUE(alike(0, kPage + 48, 16));
    EXPECT_EQ(ibv_dereg_mr(region_), EBUSY);
    EXPECT_EQ(ibv_rereg_mr(region_, IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, 0), IBV_REREG_MR_ERR_INPUT);

    ibv_send_wr wr{};
    wr.opcode = IBV_WR_LOCAL_INV;
    wr.invalidate_rkey = rkey_;
    const ibv_wc invalidated = run(b_, wr);
    EXPECT_EQ(invalidated.status, IBV_WC_SUCCESS);
    EXPECT_EQ(invalidated.opcode, IBV_WC_LOCAL_INV);
    const uint32_t old = rkey_;
    EXPECT_EQ(write_to(old, address(kPage)), IBV_WC_REM_ACCESS_ERR);
    EXPECT_FALSE(alike(kPage, 0, 16));

    ASSERT_EQ(bind(IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_ZERO_BASED, region_).status, IBV_WC_SUCCESS);
    EXPECT_EQ(write_to(rkey_, 48), IBV_WC_SUCCESS);
    EXPECT_TRUE(alike(kPage + 48, 0, 16));
    EXPECT_EQ(move(IBV_WR_RDMA_READ, sge(32, 16), 48, rkey_), IBV_WC_REM_ACCESS_ERR) << "a right it has not";
    EXPECT_EQ(write_to(old, 0), IBV_WC_REM_ACCESS_ERR);
}

TEST_F(WindowTest, ASendWithInvalidateEndsItAndSaysSo) {
    ASSERT_EQ(bind(kReadWrite, region_).status, IBV_WC_SUCCESS);
    EXPECT_EQ(write_to(rkey_, address(kPage)), IBV_WC_SUCCESS);
    ibv_recv_wr recv{}, *bad_recv;
    ASSERT_EQ(ibv_post_recv(b_, &recv, &bad_recv), 0);
    ibv_send_wr wr{};
    wr.opcode = IBV_WR_SEND_WITH_INV;
    wr.invalidate_rkey = rkey_;
    ibv_wc received = run(a_, wr), sent = wait(cq_);
    if (received.opcode != IBV_WC_RECV) std::swap(received, sent);
    EXPECT_EQ(sent.status, IBV_WC_SUCCESS);
    EXPECT_EQ(sent.opcode, IBV_WC_SEND);
    EXPECT_EQ(received.status, IBV_WC_SUCCESS);
    EXPECT_EQ(received.opcode, IBV_WC_RECV);
    EXPECT_EQ(received.wc_flags, static_cast<unsigned>(IBV_WC_WITH_INV));
    EXPECT_EQ(received.invalidated_rkey, rkey_);
    EXPECT_EQ(write_to(rkey_, address(kPage)), IBV_WC_REM_ACCESS_ERR);
}

// IBTA 10.6.7.2.2: the window keeps its index, whatever the bind requests.
TEST_F(WindowTest, OnlyTheLowByteOfABindCounts) {
    rkey_ = 0xFFFFFF00 ^ window_->rkey;
    ASSERT_EQ(bind(kReadWrite, region_).status, IBV_WC_SUCCESS);
    const uint32_t bound = (window_->rkey & ~0xFFu) | (rkey_ & 0xFF);
    EXPECT_EQ(write_to(bound, address(kPage)), IBV_WC_SUCCESS);
}

TEST_F(WindowTest, RightsAtHomeAreIgnored) {
    ASSERT_EQ(bind(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ, region_).status, IBV_WC_SUCCESS);
    EXPECT_EQ(move(IBV_WR_RDMA_READ, sge(0, 16), address(kPage), rkey_), IBV_WC_SUCCESS);
    EXPECT_EQ(write_to(rkey_, address(kPage)), IBV_WC_REM_ACCESS_ERR);
}

TEST_F(WindowTest, AfterABindErrorOtherQueuePairsGoOn) {
    ibv_qp_init_attr attr = init_attr(IBV_QPT_RC);
    ibv_qp* c = ibv_create_qp(pd_, &attr);
    ibv_qp* d = ibv_create_qp(pd_, &attr);
    connect(c, d->qp_num);
    connect(d, c->qp_num);
    ibv_mr* unbindable = ibv_reg_mr(pd_, buffer_.data() + kPage, kPage, kAllAccess);
    EXPECT_EQ(bind(kReadWrite, unbindable).status, IBV_WC_MW_BIND_ERR);
    std::swap(c, a_);
    std::swap(d, b_);
    EXPECT_EQ(bind(kReadWrite, region_).status, IBV_WC_SUCCESS);
    EXPECT_EQ(write_to(rkey_, address(kPage)), IBV_WC_SUCCESS);
    EXPECT_EQ(ibv_destroy_qp(c), 0);
    EXPECT_EQ(ibv_destroy_qp(d), 0);
    EXPECT_EQ(ibv_dereg_mr(unbindable), 0);
}

TEST_F(WindowTest, OfType1IsBoundToADomain) {
    ibv_mw* window = ibv_alloc_mw(pd_, IBV_MW_TYPE_1);
    ASSERT_NE(window, nullptr);
    const auto bind = [&](uint64_t at, uint64_t length, ibv_wc_status expected = IBV_WC_SUCCESS) {
        ibv_mw_bind request{
            .wr_id = 17,
            .send_flags = IBV_SEND_SIGNALED,
            .bind_info = {
                .mr = length != 0 ? region_ : nullptr, .addr = at, .length = length, .mw_access_flags = kReadWrite}};
        const uint32_t before = window->rkey;
        ASSERT_EQ(ibv_bind_mw(b_, window, &request), 0);
        EXPECT_EQ(window->rkey, ibv_inc_rkey(before));
        const ibv_wc wc = wait(cq_);
        EXPECT_EQ(wc.status, expected);
        EXPECT_EQ(wc.wr_id, 17u);
        EXPECT_EQ(wc.opcode, IBV_WC_BIND_MW);
    };
    bind(address(kPage), 64);
    EXPECT_EQ(write_to(window->rkey, address(kPage + 48)), IBV_WC_SUCCESS);
    const uint32_t old = window->rkey;
    bind(address(kPage + 64), 64);  // a second bind, without an invalidation between
    EXPECT_EQ(write_to(window->rkey, address(kPage + 64)), IBV_WC_SUCCESS);
    EXPECT_EQ(write_to(old, address(kPage)), IBV_WC_REM_ACCESS_ERR);
    EXPECT_EQ(ibv_dereg_mr(region_), EBUSY);
    bind(0, 0);
    EXPECT_EQ(write_to(window->rkey, address(kPage + 64)), IBV_WC_REM_ACCESS_ERR);
    ibv_mw_bind wrong{.bind_info = {.mr = region_, .addr = address(kPage), .length = 8}};
    EXPECT_EQ(ibv_bind_mw(b_, window_, &wrong), EINVAL) << "of type 2";
    EXPECT_EQ(ibv_dealloc_mw(window), 0);
}

TEST_F(WindowTest, BindingsThatMayNotBe) {
    EXPECT_EQ(ibv_alloc_mw(pd_, static_cast<ibv_mw_type>(3)), nullptr);
    EXPECT_EQ(errno, EINVAL);
    EXPECT_EQ(bind(kReadWrite, region_).status, IBV_WC_SUCCESS);
    EXPECT_EQ(bind(kReadWrite, region_).status, IBV_WC_MW_BIND_ERR) << "it is bound";
    reconnect();
    EXPECT_EQ(ibv_dealloc_mw(window_), 0);
    window_ = ibv_alloc_mw(pd_, IBV_MW_TYPE_2);
    rkey_ = 0;
    ibv_mr* unbindable = ibv_reg_mr(pd_, buffer_.data() + kPage, kPage, kAllAccess);
    EXPECT_EQ(bind(kReadWrite, unbindable).status, IBV_WC_MW_BIND_ERR);
    reconnect();
    EXPECT_EQ(ibv_dereg_mr(unbindable), 0) << "nothing is bound to it";
}

// 2^20 windows, and QPs without any. Walking all windows for each QP took minutes and exceeded the timeout of this
// test.
TEST_F(VerbsTest, WindowsAreFreedOneByOne) {
    ibv_device_attr device;
    ASSERT_EQ(ibv_query_device(context_, &device), 0);
    std::vector<ibv_mw*> windows;
    while (ibv_mw* mw = ibv_alloc_mw(pd_, IBV_MW_TYPE_2)) windows.push_back(mw);
    EXPECT_EQ(errno, ENOMEM);
    EXPECT_EQ(static_cast<int>(windows.size()), device.max_mw);
    ibv_qp_init_attr attr = init_attr(IBV_QPT_RC);
    for (int i = 0; i < 2000; ++i) EXPECT_EQ(ibv_destroy_qp(ibv_create_qp(pd_, &attr)), 0);
    for (ibv_mw* mw : windows) EXPECT_EQ(ibv_dealloc_mw(mw), 0);
}

}  // namespace
}  // namespace rove::verbs
