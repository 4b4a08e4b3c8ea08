// SPDX-License-Identifier: Apache-2.0
// Tests protection domains, thread domains and parent domains, contexts that are closed before their objects, and
// refused calls.
#include <fcntl.h>

#include <cerrno>
#include <cstring>
#include <vector>

#include "fixture.h"

namespace rove::verbs {
namespace {

class DomainTest : public VerbsTest {
  protected:
    void SetUp() override {
        VerbsTest::SetUp();
        ibv_td_init_attr attr{};
        td_ = ibv_alloc_td(context_, &attr);
        ASSERT_NE(td_, nullptr);
        parent_ = parent_of(pd_, td_);
        ASSERT_NE(parent_, nullptr);
    }
    void TearDown() override {
        EXPECT_EQ(ibv_dealloc_pd(parent_), 0);
        EXPECT_EQ(ibv_dealloc_td(td_), 0);
        VerbsTest::TearDown();
    }
    ibv_pd* parent_of(ibv_pd* pd, ibv_td* td, uint32_t mask = 0) const {
        ibv_parent_domain_init_attr attr{};
        attr.pd = pd;
        attr.td = td;
        attr.comp_mask = mask;
        return ibv_alloc_parent_domain(context_, &attr);
    }

    ibv_td* td_ = nullptr;
    ibv_pd* parent_ = nullptr;
};

TEST_F(DomainTest, AParentDomainIsItsProtectionDomain) {
    // A QP of the parent domain uses memory of the protection domain, and vice versa.
    ibv_mr* mr = ibv_reg_mr(parent_, buffer_.data(), 4096, kAllAccess);
    ASSERT_NE(mr, nullptr);
    EXPECT_EQ(mr->pd, parent_);
    ibv_qp_init_attr init = init_attr(IBV_QPT_RC);
    ibv_qp* a = ibv_create_qp(parent_, &init);
    ibv_qp* b = ibv_create_qp(pd_, &init);
    ASSERT_NE(a, nullptr);
    EXPECT_EQ(a->pd, parent_);
    connect(a, b->qp_num);
    connect(b, a->qp_num);
    for (auto [from, local, remote] : {std::tuple{a, mr_, mr}, {b, mr, mr_}}) {
        ibv_sge data{.addr = reinterpret_cast<uintptr_t>(buffer_.data()), .length = 64, .lkey = local->lkey};
        ibv_send_wr wr{}, *bad;
        wr.opcode = IBV_WR_RDMA_WRITE;
        wr.send_flags = IBV_SEND_SIGNALED;
        wr.sg_list = &data;
        wr.num_sge = 1;
        wr.wr.rdma = {.remote_addr = reinterpret_cast<uintptr_t>(buffer_.data()) + 2048, .rkey = remote->rkey};
        ASSERT_EQ(ibv_post_send(from, &wr, &bad), 0);
        EXPECT_EQ(wait(cq_).status, IBV_WC_SUCCESS);
    }
    EXPECT_EQ(ibv_dealloc_pd(parent_), EBUSY) << "a QP and a region are of it";
    EXPECT_EQ(ibv_destroy_qp(a), 0);
    EXPECT_EQ(ibv_destroy_qp(b), 0);
    EXPECT_EQ(ibv_dealloc_pd(parent_), EBUSY) << "a region is of it";
    EXPECT_EQ(ibv_dereg_mr(mr), 0);
}

TEST_F(DomainTest, AnAddressHandleOfTheSameProtectionDomain) {
    ibv_qp_init_attr init = init_attr(IBV_QPT_UD);
    ibv_qp* qp = ibv_create_qp(parent_, &init);
    start_ud(qp);
    ibv_ah_attr address = own_address();
    for (ibv_pd* pd : {pd_, parent_}) {
        ibv_ah* ah = ibv_create_ah(pd, &address);
        ibv_sge data = sge(0, 16);
        ibv_send_wr wr{}, *bad;
        wr.opcode = IBV_WR_SEND;
        wr.send_flags = IBV_SEND_SIGNALED;
        wr.sg_list = &data;
        wr.num_sge = 1;
        wr.wr.ud = {.ah = ah, .remote_qpn = qp->qp_num, .remote_qkey = 0x1234};
        EXPECT_EQ(ibv_post_send(qp, &wr, &bad), 0);
        EXPECT_EQ(wait(cq_).status, IBV_WC_SUCCESS);
        EXPECT_EQ(ibv_destroy_ah(ah), 0);
    }
    EXPECT_EQ(ibv_destroy_qp(qp), 0);
}

TEST_F(DomainTest, EveryKindOfObjectTakesAParentDomain) {
    ibv_ah_attr address = own_address();
    ibv_ah* ah = ibv_create_ah(parent_, &address);
    ASSERT_NE(ah, nullptr);
    ibv_srq_init_attr srq_attr{.srq_context = nullptr, .attr = {.max_wr = 8, .max_sge = 1, .srq_limit = 0}};
    ibv_srq* srq = ibv_create_srq(parent_, &srq_attr);
    ASSERT_NE(srq, nullptr);
    ibv_mw* mw = ibv_alloc_mw(parent_, IBV_MW_TYPE_2);
    ASSERT_NE(mw, nullptr);
    EXPECT_EQ(ibv_rereg_mr(mr_, IBV_REREG_MR_CHANGE_PD, parent_, nullptr, 0, 0), 0);
    EXPECT_EQ(mr_->pd, parent_);
    ibv_cq_init_attr_ex cq_attr{};
    cq_attr.cqe = 16;
    cq_attr.comp_mask = IBV_CQ_INIT_ATTR_MASK_PD;
    cq_attr.parent_domain = pd_;
    EXPECT_EQ(ibv_create_cq_ex(context_, &cq_attr), nullptr) << "not a protection domain";
    EXPECT_EQ(errno, EINVAL);
    cq_attr.parent_domain = parent_;
    ibv_cq_ex* cq = ibv_create_cq_ex(context_, &cq_attr);
    ASSERT_NE(cq, nullptr);
    EXPECT_EQ(ibv_dealloc_pd(parent_), EBUSY);
    EXPECT_EQ(ibv_destroy_cq(ibv_cq_ex_to_cq(cq)), 0);
    EXPECT_EQ(ibv_rereg_mr(mr_, IBV_REREG_MR_CHANGE_PD, pd_, nullptr, 0, 0), 0);
    EXPECT_EQ(ibv_dealloc_mw(mw), 0);
    EXPECT_EQ(ibv_destroy_srq(srq), 0);
    EXPECT_EQ(ibv_destroy_ah(ah), 0);
}

TEST_F(DomainTest, WhatAParentDomainIsMadeOfIsBusy) {
    EXPECT_EQ(ibv_dealloc_td(td_), EBUSY);
    ibv_pd* pd = ibv_alloc_pd(context_);
    ibv_pd* parent = parent_of(pd, nullptr);
    ASSERT_NE(parent, nullptr);
    EXPECT_EQ(ibv_dealloc_pd(pd), EBUSY);
    EXPECT_EQ(ibv_dealloc_pd(parent), 0);
    EXPECT_EQ(ibv_dealloc_pd(pd), 0);
}

TEST_F(DomainTest, ArgumentsOfParentAndThreadDomains) {
    EXPECT_EQ(parent_of(nullptr, td_), nullptr);
    EXPECT_EQ(errno, EINVAL);
    EXPECT_EQ(parent_of(parent_, td_), nullptr) << "not of another parent domain";
    EXPECT_EQ(errno, EINVAL);
    EXPECT_EQ(parent_of(pd_, td_, 1u << 31), nullptr);
    EXPECT_EQ(errno, EINVAL);
    EXPECT_EQ(parent_of(pd_, td_, IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS), nullptr) << "without the functions";
    EXPECT_EQ(errno, EINVAL);
    ibv_td_init_attr attr{.comp_mask = 1};
    EXPECT_EQ(ibv_alloc_td(context_, &attr), nullptr);
    EXPECT_EQ(errno, EOPNOTSUPP);
}

TEST_F(VerbsTest, AsManyProtectionDomainsAsTheDeviceSays) {
    ibv_device_attr attr;
    ASSERT_EQ(ibv_query_device(context_, &attr), 0);
    std::vector<ibv_pd*> pds;
    while (ibv_pd* pd = ibv_alloc_pd(context_)) pds.push_back(pd);
    EXPECT_EQ(errno, ENOMEM);
    EXPECT_EQ(pds.size() + 1, static_cast<size_t>(attr.max_pd)) << "with that of the test";
    EXPECT_EQ(ibv_dealloc_pd(pds.back()), 0);
    EXPECT_NE(pds.back() = ibv_alloc_pd(context_), nullptr) << "a place that is free again";
    for (ibv_pd* pd : pds) EXPECT_EQ(ibv_dealloc_pd(pd), 0);
}

TEST_F(VerbsTest, ADeviceHasAVendor) {
    ibv_device_attr attr;
    ASSERT_EQ(ibv_query_device(context_, &attr), 0);
    EXPECT_NE(attr.vendor_id, 0u);
    EXPECT_NE(attr.vendor_part_id, 0u);
}

TEST_F(VerbsTest, AContextThatIsClosedBeforeItsObjects) {
    ibv_context* context = ibv_open_device(context_->device);
    ASSERT_NE(context, nullptr);
    const int async_fd = context->async_fd;
    ibv_pd* pd = ibv_alloc_pd(context);
    ibv_cq* cq = ibv_create_cq(context, 16, nullptr, nullptr, 0);
    EXPECT_EQ(ibv_close_device(context), 0);
    EXPECT_EQ(fcntl(async_fd, F_GETFD), -1) << "no event comes any more";
    ibv_qp_init_attr attr = init_attr(IBV_QPT_RC);
    attr.send_cq = attr.recv_cq = cq;
    ibv_qp* qp = ibv_create_qp(pd, &attr);
    ASSERT_NE(qp, nullptr) << "objects can be used as long as there are any";
    EXPECT_EQ(ibv_destroy_qp(qp), 0);
    EXPECT_EQ(ibv_destroy_cq(cq), 0);
    EXPECT_EQ(ibv_dealloc_pd(pd), 0);
}

TEST_F(VerbsTest, WhatRoveDoesNotHaveIsRefused) {
    const auto refused = [](const void* object) { return object == nullptr && errno == EOPNOTSUPP; };
    for (const int type : {IBV_QPT_RAW_PACKET, IBV_QPT_DRIVER}) {
        ibv_qp_init_attr attr = init_attr(static_cast<ibv_qp_type>(type));
        EXPECT_TRUE(refused(ibv_create_qp(pd_, &attr))) << type;
    }
    ibv_alloc_dm_attr dm{};
    EXPECT_TRUE(refused(ibv_alloc_dm(context_, &dm)));
    ibv_counters_init_attr counters{};
    EXPECT_TRUE(refused(ibv_create_counters(context_, &counters)));
    ibv_wq_init_attr wq{};
    EXPECT_TRUE(refused(ibv_create_wq(context_, &wq)));
    ibv_rwq_ind_table_init_attr table{};
    EXPECT_TRUE(refused(ibv_create_rwq_ind_table(context_, &table)));
    ibv_flow_action_esp_attr esp{};
    EXPECT_TRUE(refused(ibv_create_flow_action_esp(context_, &esp)));
    ibv_qp_init_attr attr = init_attr(IBV_QPT_UD);
    ibv_qp* qp = ibv_create_qp(pd_, &attr);
    ibv_flow_attr flow{};
    EXPECT_TRUE(refused(ibv_create_flow(qp, &flow)));
    ibv_qp_rate_limit_attr rate{};
    EXPECT_EQ(ibv_modify_qp_rate_limit(qp, &rate), EOPNOTSUPP);
    EXPECT_EQ(ibv_destroy_qp(qp), 0);
}

}  // namespace
}  // namespace rove::verbs
