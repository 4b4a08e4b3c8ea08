// SPDX-License-Identifier: Apache-2.0
// Tests queue pairs: creation, changes that modify refuses, and the results of query.
#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>

#include "fixture.h"
#include "runtime/worker_core.h"
#include "verbs/objects.h"

namespace rove::verbs {
namespace {

TEST_F(VerbsTest, CreationArguments) {
    const auto refused = [&](auto change, int error) {
        ibv_qp_init_attr attr = init_attr(IBV_QPT_RC);
        change(attr);
        EXPECT_EQ(ibv_create_qp(pd_, &attr), nullptr);
        EXPECT_EQ(errno, error);
    };
    refused([](ibv_qp_init_attr& attr) { attr.qp_type = IBV_QPT_RAW_PACKET; }, EOPNOTSUPP);
    refused([](ibv_qp_init_attr& attr) { attr.send_cq = nullptr; }, EINVAL);
    refused([](ibv_qp_init_attr& attr) { attr.cap.max_send_wr = 32769; }, EINVAL);
    refused([](ibv_qp_init_attr& attr) { attr.cap.max_recv_wr = 32769; }, EINVAL);
    refused([](ibv_qp_init_attr& attr) { attr.cap.max_send_sge = 33; }, EINVAL);
    refused([](ibv_qp_init_attr& attr) { attr.cap.max_inline_data = 1025; }, EINVAL);
}

// man ibv_create_qp: the capacity of the SRQ counts.
TEST_F(VerbsTest, ReceiveCapabilitiesBesideASharedQueueAreIgnored) {
    ibv_srq_init_attr shared{.srq_context = nullptr, .attr = {.max_wr = 8, .max_sge = 1, .srq_limit = 0}};
    ibv_srq* srq = ibv_create_srq(pd_, &shared);
    ibv_qp_init_attr attr = init_attr(IBV_QPT_RC, srq);
    attr.cap.max_recv_wr = attr.cap.max_recv_sge = 1'000'000;
    ibv_qp* qp = ibv_create_qp(pd_, &attr);
    ASSERT_NE(qp, nullptr);
    EXPECT_EQ(attr.cap.max_recv_wr, 0u);
    EXPECT_EQ(ibv_destroy_qp(qp), 0);
    EXPECT_EQ(ibv_destroy_srq(srq), 0);
}

// Programs give a queue pair the access flags of their regions, and NICs accept them.
TEST_F(VerbsTest, AccessFlagsThatOnlyMeanMemoryAreTaken) {
    constexpr unsigned kFlushGlobal = 1u << 8, kFlushPersistent = 1u << 9;
    for (const unsigned flag :
         {unsigned{IBV_ACCESS_RELAXED_ORDERING}, unsigned{IBV_ACCESS_ZERO_BASED}, unsigned{IBV_ACCESS_ON_DEMAND},
          unsigned{IBV_ACCESS_HUGETLB}, unsigned{IBV_ACCESS_MW_BIND}, kFlushGlobal, kFlushPersistent, 1u << 29}) {
        ibv_qp_init_attr init = init_attr(IBV_QPT_RC);
        ibv_qp* qp = ibv_create_qp(pd_, &init);
        ibv_qp_attr attr = attr_for(IBV_QPS_INIT, 0);
        attr.qp_access_flags |= flag;
        EXPECT_EQ(ibv_modify_qp(qp, &attr, kInitMask), 0) << flag;
        attr.qp_access_flags = kAllAccess | 1u << 30;
        EXPECT_EQ(ibv_modify_qp(qp, &attr, IBV_QP_ACCESS_FLAGS), EINVAL) << "no flag that there is";
        EXPECT_EQ(ibv_destroy_qp(qp), 0);
    }
}

TEST_F(VerbsTest, TypesThatAreNotOffered) {
    for (const ibv_qp_type type : {IBV_QPT_RAW_PACKET, IBV_QPT_DRIVER}) {
        ibv_qp_init_attr attr = init_attr(type);
        EXPECT_EQ(ibv_create_qp(pd_, &attr), nullptr);
        EXPECT_EQ(errno, EOPNOTSUPP) << type;
    }
}

// D18: the change from RESET to ERR is refused.
TEST_F(VerbsTest, AResetQueuePairDoesNotFail) {
    ibv_qp_init_attr init = init_attr(IBV_QPT_RC);
    ibv_qp* qp = ibv_create_qp(pd_, &init);
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_ERR;
    EXPECT_EQ(ibv_modify_qp(qp, &attr, IBV_QP_STATE), EINVAL);
    EXPECT_EQ(qp->state, IBV_QPS_RESET);
    EXPECT_EQ(ibv_destroy_qp(qp), 0);
}

TEST_F(VerbsTest, ExtendedCreation) {
    ibv_qp_init_attr basic = init_attr(IBV_QPT_RC);
    ibv_qp_init_attr_ex attr{.send_cq = cq_,
                             .recv_cq = cq_,
                             .cap = basic.cap,
                             .qp_type = IBV_QPT_RC,
                             .comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
                             .pd = pd_,
                             .send_ops_flags = IBV_QP_EX_WITH_TSO};
    EXPECT_EQ(ibv_create_qp_ex(context_, &attr), nullptr);
    EXPECT_EQ(errno, EOPNOTSUPP);
    attr.send_ops_flags = IBV_QP_EX_WITH_SEND;
    ibv_qp* extended = ibv_create_qp_ex(context_, &attr);
    ASSERT_NE(extended, nullptr);
    EXPECT_NE(ibv_qp_to_qp_ex(extended), nullptr);
    ibv_qp* plain = ibv_create_qp(pd_, &basic);
    EXPECT_EQ(ibv_qp_to_qp_ex(plain), nullptr);
    EXPECT_EQ(ibv_destroy_qp(extended), 0);
    EXPECT_EQ(ibv_destroy_qp(plain), 0);
}

TEST_F(VerbsTest, ModifyRefusesWrongValuesAndChangesNothing) {
    ibv_qp_init_attr init = init_attr(IBV_QPT_RC);
    ibv_qp* qp = ibv_create_qp(pd_, &init);
    ibv_qp_attr attr = attr_for(IBV_QPS_INIT, 0);
    attr.pkey_index = 1;
    EXPECT_EQ(ibv_modify_qp(qp, &attr, kInitMask), EINVAL);
    attr.pkey_index = 0;
    attr.port_num = 2;
    EXPECT_EQ(ibv_modify_qp(qp, &attr, kInitMask), EINVAL);
    EXPECT_EQ(qp->state, IBV_QPS_RESET);
    attr.port_num = 1;
    ASSERT_EQ(ibv_modify_qp(qp, &attr, kInitMask), 0);

    const auto refused = [&](auto change) {
        ibv_qp_attr rtr = attr_for(IBV_QPS_RTR, qp->qp_num);
        change(rtr);
        EXPECT_EQ(ibv_modify_qp(qp, &rtr, kRtrMask), EINVAL);
        EXPECT_EQ(qp->state, IBV_QPS_INIT);
    };
    refused([](ibv_qp_attr& rtr) { rtr.ah_attr.is_global = 0; });
    refused([](ibv_qp_attr& rtr) { rtr.ah_attr.grh.sgid_index = 100; });
    refused([](ibv_qp_attr& rtr) { rtr.ah_attr.port_num = 3; });
    refused([](ibv_qp_attr& rtr) { rtr.path_mtu = static_cast<ibv_mtu>(6); });
    refused([](ibv_qp_attr& rtr) { rtr.max_dest_rd_atomic = 129; });
    refused([](ibv_qp_attr& rtr) { rtr.min_rnr_timer = 32; });
    EXPECT_EQ(ibv_destroy_qp(qp), 0);
}

TEST_F(VerbsTest, QueryGivesBackWhatEachChangeSet) {
    ibv_qp_init_attr init = init_attr(IBV_QPT_RC);
    ibv_qp* qp = ibv_create_qp(pd_, &init);
    ibv_qp_attr set{}, got;
    const auto modify = [&](int mask) {
        ASSERT_EQ(ibv_modify_qp(qp, &set, mask), 0);
        ASSERT_EQ(ibv_query_qp(qp, &got, mask, &init), 0);
        EXPECT_EQ(got.qp_state, set.qp_state);
        EXPECT_EQ(got.port_num, 1);
        EXPECT_EQ(got.qp_access_flags, set.qp_access_flags);
        EXPECT_EQ(got.path_mtu, set.path_mtu);
        EXPECT_EQ(got.dest_qp_num, set.dest_qp_num);
        EXPECT_EQ(got.rq_psn, set.rq_psn);
        EXPECT_EQ(got.sq_psn, set.sq_psn);
        EXPECT_EQ(got.max_dest_rd_atomic, set.max_dest_rd_atomic);
        EXPECT_EQ(got.max_rd_atomic, set.max_rd_atomic);
        EXPECT_EQ(got.min_rnr_timer, set.min_rnr_timer);
        EXPECT_EQ(got.timeout, set.timeout);
        EXPECT_EQ(got.retry_cnt, set.retry_cnt);
        EXPECT_EQ(got.rnr_retry, set.rnr_retry);
        EXPECT_EQ(std::memcmp(&got.ah_attr.grh.dgid, &set.ah_attr.grh.dgid, sizeof(ibv_gid)), 0);
        EXPECT_EQ(got.ah_attr.grh.flow_label, set.ah_attr.grh.flow_label);
        EXPECT_EQ(got.ah_attr.grh.sgid_index, set.ah_attr.grh.sgid_index);
        EXPECT_EQ(got.ah_attr.grh.hop_limit, set.ah_attr.grh.hop_limit);
        EXPECT_EQ(got.ah_attr.grh.traffic_class, set.ah_attr.grh.traffic_class);
        EXPECT_EQ(got.ah_attr.sl, set.ah_attr.sl);
        EXPECT_EQ(init.cap.max_send_wr, 8u);
        EXPECT_EQ(init.send_cq, cq_);
    };
    set.qp_state = IBV_QPS_INIT;
    set.port_num = 1;
    set.qp_access_flags = IBV_ACCESS_REMOTE_READ;
    modify(kInitMask);
    set.qp_state = IBV_QPS_RTR;
    set.path_mtu = IBV_MTU_2048;
    set.dest_qp_num = qp->qp_num;
    set.rq_psn = 0xABCDEF;
    set.max_dest_rd_atomic = 5;
    set.min_rnr_timer = 31;
    set.ah_attr = own_address();
    set.ah_attr.grh.traffic_class = 0xB8;
    set.ah_attr.grh.flow_label = 0xFEDCB;
    set.ah_attr.grh.hop_limit = 3;
    set.ah_attr.sl = 7;
    modify(kRtrMask);
    set.qp_state = IBV_QPS_RTS;
    set.sq_psn = 0xFFFFFF;
    set.timeout = 31;
    set.retry_cnt = 7;
    set.rnr_retry = 6;
    set.max_rd_atomic = 9;
    modify(kRtsMask);
    set.min_rnr_timer = 2;
    set.qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
    modify(IBV_QP_MIN_RNR_TIMER | IBV_QP_ACCESS_FLAGS);
    set.qp_state = IBV_QPS_SQD;
    modify(IBV_QP_STATE);
    set.timeout = 1;
    set.retry_cnt = 2;
    set.rnr_retry = 3;
    set.max_rd_atomic = 4;
    set.max_dest_rd_atomic = 6;
    set.ah_attr.sl = 1;
    set.ah_attr.grh.hop_limit = 8;
    modify(IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_MAX_DEST_RD_ATOMIC |
           IBV_QP_AV);
    set.qp_state = IBV_QPS_ERR;
    modify(IBV_QP_STATE);
    EXPECT_EQ(ibv_destroy_qp(qp), 0);
}

// Connecting the QP allocated space for the outstanding READs of both sides.
TEST_F(VerbsTest, MoreReadsAtATimeAfterAChange) {
    ibv_qp_init_attr init = init_attr(IBV_QPT_RC);
    ibv_qp* qp = ibv_create_qp(pd_, &init);
    const auto modify = [&](ibv_qp_state state, uint8_t reads, int mask) {
        ibv_qp_attr attr = attr_for(state, qp->qp_num);  // the QP itself
        attr.max_rd_atomic = attr.max_dest_rd_atomic = reads;
        ASSERT_EQ(ibv_modify_qp(qp, &attr, mask), 0);
    };
    modify(IBV_QPS_INIT, 1, kInitMask);
    modify(IBV_QPS_RTR, 1, kRtrMask);
    modify(IBV_QPS_RTS, 1, kRtsMask);
    modify(IBV_QPS_SQD, 1, IBV_QP_STATE);
    modify(IBV_QPS_SQD, 8, IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_MAX_DEST_RD_ATOMIC);
    modify(IBV_QPS_RTS, 8, IBV_QP_STATE);
    ibv_sge targets[8];
    ibv_send_wr wrs[8]{}, *bad;
    for (size_t i = 0; i < 8; ++i) {
        targets[i] = sge(i * 4096, 4096);
        wrs[i].next = i < 7 ? &wrs[i + 1] : nullptr;
        wrs[i].sg_list = &targets[i];
        wrs[i].num_sge = 1;
        wrs[i].opcode = IBV_WR_RDMA_READ;
        wrs[i].send_flags = IBV_SEND_SIGNALED;
        wrs[i].wr.rdma = {.remote_addr = targets[i].addr + 32768, .rkey = mr_->rkey};
    }
    ASSERT_EQ(ibv_post_send(qp, wrs, &bad), 0);
    for (int i = 0; i < 8; ++i) EXPECT_EQ(wait(cq_).status, IBV_WC_SUCCESS);
    EXPECT_EQ(ibv_destroy_qp(qp), 0);
}

TEST_F(ConnectedTest, CurrentStateMustBeRight) {
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_SQD;
    attr.cur_qp_state = IBV_QPS_RTR;
    EXPECT_EQ(ibv_modify_qp(a_, &attr, IBV_QP_STATE | IBV_QP_CUR_STATE), EINVAL);
    attr.cur_qp_state = IBV_QPS_RTS;
    EXPECT_EQ(ibv_modify_qp(a_, &attr, IBV_QP_STATE | IBV_QP_CUR_STATE), 0);
}

TEST_F(ConnectedTest, AResetQueuePairConnectsAgain) {
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_RESET;
    ASSERT_EQ(ibv_modify_qp(a_, &attr, IBV_QP_STATE), 0);
    ASSERT_EQ(ibv_modify_qp(b_, &attr, IBV_QP_STATE), 0);
    connect(a_, b_->qp_num);
    connect(b_, a_->qp_num);
    ibv_sge source = sge(0, 8);
    ibv_send_wr wr{}, *bad;
    wr.sg_list = &source;
    wr.num_sge = 1;
    wr.opcode = IBV_WR_RDMA_WRITE;
    wr.send_flags = IBV_SEND_SIGNALED;
    wr.wr.rdma = {.remote_addr = source.addr + 4096, .rkey = mr_->rkey};
    ASSERT_EQ(ibv_post_send(a_, &wr, &bad), 0);
    EXPECT_EQ(wait(cq_).status, IBV_WC_SUCCESS);
}

TEST_F(VerbsTest, CreationFlags) {
    ibv_qp_init_attr basic = init_attr(IBV_QPT_UD);
    ibv_qp_init_attr_ex attr{.send_cq = cq_,
                             .recv_cq = cq_,
                             .cap = basic.cap,
                             .qp_type = IBV_QPT_UD,
                             .comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_CREATE_FLAGS,
                             .pd = pd_,
                             .create_flags = IBV_QP_CREATE_BLOCK_SELF_MCAST_LB};
    ibv_qp* qp = ibv_create_qp_ex(context_, &attr);
    ASSERT_NE(qp, nullptr);
    EXPECT_TRUE(from(qp).transport.blocks_own_multicast);
    EXPECT_EQ(ibv_destroy_qp(qp), 0);
    for (const auto flag : {IBV_QP_CREATE_SCATTER_FCS, IBV_QP_CREATE_CVLAN_STRIPPING, IBV_QP_CREATE_SOURCE_QPN,
                            IBV_QP_CREATE_PCI_WRITE_END_PADDING}) {
        attr.create_flags = flag;
        EXPECT_EQ(ibv_create_qp_ex(context_, &attr), nullptr);
        EXPECT_EQ(errno, EOPNOTSUPP);
    }
}

TEST_F(VerbsTest, ConnectionOptions) {
    ibv_qp_init_attr init = init_attr(IBV_QPT_RC);
    ibv_qp* qp = ibv_create_qp(pd_, &init);
    ibv_ece ece{};
    ASSERT_EQ(ibv_query_ece(qp, &ece), 0);
    EXPECT_EQ(ece.vendor_id, kVendorId);
    EXPECT_EQ(ece.options, kEceMultipath) << "the configuration leaves it open";
    EXPECT_EQ(ece.comp_mask, 0u);
    ece.options |= 1u << 9;  // an option of a later release
    ASSERT_EQ(ibv_set_ece(qp, &ece), 0);
    EXPECT_EQ(ece.options, kEceMultipath) << "what was accepted";
    ece.options = 0;
    ASSERT_EQ(ibv_set_ece(qp, &ece), 0);
    ASSERT_EQ(ibv_query_ece(qp, &ece), 0);
    EXPECT_EQ(ece.options, 0u);
    ibv_ece wrong{.vendor_id = 0x15b3, .options = 0, .comp_mask = 0};
    EXPECT_EQ(ibv_set_ece(qp, &wrong), EINVAL);
    wrong = {.vendor_id = kVendorId, .options = 0, .comp_mask = 1};
    EXPECT_EQ(ibv_set_ece(qp, &wrong), EINVAL);
    connect(qp, qp->qp_num);
    EXPECT_EQ(ibv_set_ece(qp, &ece), EINVAL) << "it is connected";
    ibv_qp_attr attr{};
    ASSERT_EQ(ibv_modify_qp(qp, &attr, IBV_QP_STATE), 0);  // the state RESET
    ASSERT_EQ(ibv_query_ece(qp, &ece), 0);
    EXPECT_EQ(ece.options, kEceMultipath);
    EXPECT_EQ(ibv_destroy_qp(qp), 0);
    init = init_attr(IBV_QPT_UD);
    ibv_qp* ud = ibv_create_qp(pd_, &init);
    ASSERT_EQ(ibv_query_ece(ud, &ece), 0);
    EXPECT_EQ(ece.options, 0u);
    EXPECT_EQ(ibv_destroy_qp(ud), 0);
}

// The peer drops HELLO packets.
struct SilentPeerTest : VerbsTest {
    // Creates an RC QP in INIT, and returns in `rtr` the attributes that take it to RTR with that peer.
    ibv_qp* create(ibv_qp_attr& rtr) {
        ibv_qp_init_attr init = init_attr(IBV_QPT_RC);
        ibv_qp* qp = ibv_create_qp(pd_, &init);
        rtr = attr_for(IBV_QPS_INIT, 0);
        EXPECT_EQ(ibv_modify_qp(qp, &rtr, kInitMask), 0);
        rtr = attr_for(IBV_QPS_RTR, 0x1234);
        rtr.ah_attr.grh.dgid.raw[15] = 2;
        return qp;
    }
    // Returns the shortest time that one of `tries` QPs takes to RTR, and expects each to use rc. On a busy machine,
    // any of them may lose its core, but not all of them for the whole time of a handshake.
    std::chrono::nanoseconds time_to_rc(int tries, const ibv_ece* ece = nullptr) {
        auto shortest = std::chrono::nanoseconds::max();
        for (int i = 0; i < tries; ++i) {
            ibv_qp_attr attr;
            ibv_qp* qp = create(attr);
            if (ibv_ece agreed{}; ece != nullptr) {
                agreed = *ece;
                EXPECT_EQ(ibv_set_ece(qp, &agreed), 0);
            }
            const auto asked = std::chrono::steady_clock::now();
            EXPECT_EQ(ibv_modify_qp(qp, &attr, kRtrMask), 0);
            shortest = std::min<std::chrono::nanoseconds>(shortest, std::chrono::steady_clock::now() - asked);
            EXPECT_EQ(from(qp).transport.service(), wire::Service::kRc);
            EXPECT_EQ(from(qp).transport.mp(), nullptr);
            EXPECT_EQ(ibv_destroy_qp(qp), 0);
        }
        return shortest;
    }
};

TEST_F(SilentPeerTest, APeerThatDoesNotSpeakMpGetsRc) {
    EXPECT_GT(time_to_rc(1), std::chrono::milliseconds(200));
    EXPECT_LT(time_to_rc(20), std::chrono::milliseconds(200)) << "it is asked again";
}

TEST_F(SilentPeerTest, ADowngradeIsCountedAndReported) {
    ibv_qp_attr attr;
    ibv_qp* qp = create(attr);
    wire::Gid peer;
    std::memcpy(peer.data(), attr.ah_attr.grh.dgid.raw, peer.size());
    from(context_).interface->hello_peers().record_answer(peer, false);
    datapath::Worker& worker = from(qp).runtime->worker_of(from(qp).transport);
    const auto downgrades = [&] {
        const datapath::Worker::Hold hold(worker);
        return worker.core(hold).engine().counters()[transport::Counter::kDowngrades];
    };
    const uint64_t before = downgrades();
    testing::internal::CaptureStderr();
    ASSERT_EQ(ibv_modify_qp(qp, &attr, kRtrMask), 0);
    const std::string said = testing::internal::GetCapturedStderr();
    // An earlier test may have had the line for these ten seconds.
    EXPECT_TRUE(said.empty() || said.find("does not answer HELLO") != said.npos) << said;
    EXPECT_EQ(downgrades(), before + 1);
    ASSERT_EQ(ibv_destroy_qp(qp), 0);
    time_to_rc(3);
    EXPECT_EQ(downgrades(), before + 4) << "without a question";
}

// An answer that arrived in the meantime may still be unread, so the peer does not count as silent.
TEST_F(SilentPeerTest, TimeThatThisProcessIsOffItsCoreDoesNotCount) {
    ibv_qp_attr attr;
    ibv_qp* qp = create(attr);
    wire::Gid peer;
    std::memcpy(peer.data(), attr.ah_attr.grh.dgid.raw, peer.size());
    // Makes the peer a stranger, for which the handshake waits 250 ms.
    from(context_).interface->hello_peers().record_answer(peer, false);
    FILE* stopper = popen("sleep 0.1; kill -STOP $PPID; sleep 0.5; kill -CONT $PPID", "r");
    ASSERT_NE(stopper, nullptr);
    const auto asked = std::chrono::steady_clock::now();
    ASSERT_EQ(ibv_modify_qp(qp, &attr, kRtrMask), 0);
    EXPECT_GT(std::chrono::steady_clock::now() - asked, std::chrono::milliseconds(700));
    pclose(stopper);
    ASSERT_EQ(ibv_destroy_qp(qp), 0);
}

// If the programs have agreed by ECE, the handshake is skipped, even with a peer that spoke mp.
TEST_F(SilentPeerTest, AConnectionWithoutTheOptionIsRcAtOnce) {
    ibv_qp_attr attr;
    ibv_qp* qp = create(attr);
    wire::Gid peer;
    std::memcpy(peer.data(), attr.ah_attr.grh.dgid.raw, peer.size());
    ASSERT_EQ(ibv_destroy_qp(qp), 0);
    transport::PeerCapabilityCache& peers = from(context_).interface->hello_peers();
    peers.record_answer(peer, true);
    const ibv_ece ece{.vendor_id = kVendorId, .options = 0, .comp_mask = 0};
    EXPECT_LT(time_to_rc(20, &ece), std::chrono::milliseconds(200));
    peers.record_answer(peer, false);  // for the other tests
}

// The cause is a dead rail or a stopped process. The peer never counts as a standard endpoint, however often the
// handshake runs.
TEST_F(SilentPeerTest, TheSilenceOfAPeerThatSpokeMpIsATimeout) {
    ibv_qp_attr attr;
    ibv_qp* qp = create(attr);
    wire::Gid peer;
    std::memcpy(peer.data(), attr.ah_attr.grh.dgid.raw, peer.size());
    transport::PeerCapabilityCache& peers = from(context_).interface->hello_peers();
    peers.record_answer(peer, true);
    for (int i = 0; i < 2; ++i) {
        const auto asked = std::chrono::steady_clock::now();
        EXPECT_EQ(ibv_modify_qp(qp, &attr, kRtrMask), ETIMEDOUT);
        EXPECT_GT(std::chrono::steady_clock::now() - asked, std::chrono::milliseconds(900));
        EXPECT_EQ(qp->state, IBV_QPS_INIT);
    }
    peers.record_answer(peer, false);  // for the other tests
    ASSERT_EQ(ibv_destroy_qp(qp), 0);
}

TEST_F(VerbsTest, MulticastGroupsAreForDatagrams) {
    ibv_gid group{}, unicast{};
    const uint8_t mapped[16] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF, 239, 1, 2, 3};
    std::memcpy(group.raw, mapped, sizeof(mapped));
    ibv_query_gid(context_, 1, kGidIndex, &unicast);
    ibv_qp_init_attr init = init_attr(IBV_QPT_RC);
    ibv_qp* rc = ibv_create_qp(pd_, &init);
    init = init_attr(IBV_QPT_UD);
    ibv_qp* ud = ibv_create_qp(pd_, &init);
    EXPECT_EQ(ibv_attach_mcast(rc, &group, 0), EINVAL);
    EXPECT_EQ(ibv_attach_mcast(ud, &unicast, 0), EINVAL);
    EXPECT_EQ(ibv_attach_mcast(ud, &group, 0), 0);
    EXPECT_EQ(ibv_destroy_qp(ud), EBUSY);
    EXPECT_EQ(ibv_detach_mcast(ud, &group, 0), 0);
    EXPECT_EQ(ibv_detach_mcast(ud, &group, 0), EINVAL);
    EXPECT_EQ(ibv_destroy_qp(ud), 0);
    EXPECT_EQ(ibv_destroy_qp(rc), 0);
}

}  // namespace
}  // namespace rove::verbs
