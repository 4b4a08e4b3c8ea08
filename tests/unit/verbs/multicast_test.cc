// SPDX-License-Identifier: Apache-2.0
// Tests multicast groups: QPs of the sending device that have joined a group receive the packets that the device sends
// to it.
#include <cstring>

#include "fixture.h"
#include "verbs/objects.h"

namespace rove::verbs {
namespace {

constexpr uint32_t kGroupQpn = 0xFFFFFF, kDatagramBytes = 100, kGrhBytes = 40;
constexpr size_t kSlot = 1024;  // the space of a receive in the buffer

class MulticastTest : public VerbsTest {
  protected:
    void SetUp() override {
        VerbsTest::SetUp();
        for (ibv_qp*& qp : qps_) {
            ibv_qp_init_attr attr = init_attr(IBV_QPT_UD);
            qp = ibv_create_qp(pd_, &attr);
            ASSERT_NE(qp, nullptr);
            start_ud(qp);
        }
        ibv_ah_attr attr = own_address();
        attr.grh.dgid = group_;
        ah_ = ibv_create_ah(pd_, &attr);
        ASSERT_NE(ah_, nullptr);
        for (size_t i = 0; i < kDatagramBytes; ++i) buffer_[i] = static_cast<uint8_t>(i * 7 + 1);
    }
    void TearDown() override {
        EXPECT_EQ(ibv_destroy_ah(ah_), 0);
        for (ibv_qp* qp : qps_) EXPECT_EQ(ibv_destroy_qp(qp), 0);
        VerbsTest::TearDown();
    }
    // Posts a receive with `slot` as its wr_id and its place in the buffer.
    void receive(ibv_qp* qp, uint64_t slot) const {
        ibv_sge at = sge(slot * kSlot, kSlot);
        ibv_recv_wr wr{.wr_id = slot, .next = nullptr, .sg_list = &at, .num_sge = 1}, *bad;
        ASSERT_EQ(ibv_post_recv(qp, &wr, &bad), 0);
    }
    void send(ibv_qp* qp) const {
        ibv_sge from = sge(0, kDatagramBytes);
        ibv_send_wr wr{}, *bad;
        wr.wr_id = kSendId;
        wr.opcode = IBV_WR_SEND;
        wr.send_flags = IBV_SEND_SIGNALED;
        wr.sg_list = &from;
        wr.num_sge = 1;
        wr.wr.ud = {.ah = ah_, .remote_qpn = kGroupQpn, .remote_qkey = 0x1234};
        ASSERT_EQ(ibv_post_send(qp, &wr, &bad), 0);
    }
    // Returns the wr_ids of the receives that complete until the device is silent for a while, and checks their data.
    std::vector<uint64_t> received(const ibv_qp* from) {
        std::vector<uint64_t> slots;
        for (int silent = 0; silent < 20'000; ++silent) {
            ibv_wc wc;
            if (ibv_poll_cq(cq_, 1, &wc) == 0) continue;
            silent = 0;
            EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
            if (wc.wr_id == kSendId) continue;
            EXPECT_EQ(wc.byte_len, kGrhBytes + kDatagramBytes);
            EXPECT_EQ(wc.src_qp, from->qp_num);
            EXPECT_EQ(std::memcmp(&buffer_[wc.wr_id * kSlot + kGrhBytes], buffer_.data(), kDatagramBytes), 0);
            slots.push_back(wc.wr_id);
        }
        return slots;
    }

    static constexpr uint64_t kSendId = 99;
    ibv_gid group_{.raw = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF, 239, 1, 2, 3}};
    ibv_qp* qps_[2] = {};
    ibv_ah* ah_ = nullptr;
};

TEST_F(MulticastTest, OwnMembersGetWhatTheDeviceSends) {
    ASSERT_EQ(ibv_attach_mcast(qps_[1], &group_, 0), 0);
    receive(qps_[0], 1);
    receive(qps_[1], 2);
    send(qps_[0]);
    EXPECT_EQ(received(qps_[0]), std::vector<uint64_t>{2});
    ASSERT_EQ(ibv_detach_mcast(qps_[1], &group_, 0), 0);
    receive(qps_[1], 3);
    send(qps_[0]);
    EXPECT_TRUE(received(qps_[0]).empty()) << "nobody is a member any more";
}

TEST_F(MulticastTest, ASenderThatIsAMemberGetsItsOwnUnlessBlocked) {
    for (ibv_qp* qp : qps_) ASSERT_EQ(ibv_attach_mcast(qp, &group_, 0), 0);
    receive(qps_[0], 1);
    receive(qps_[1], 2);
    send(qps_[0]);
    EXPECT_EQ(received(qps_[0]), (std::vector<uint64_t>{1, 2}));
    from(qps_[0]).transport.blocks_own_multicast = true;
    receive(qps_[0], 3);
    receive(qps_[1], 4);
    send(qps_[0]);
    EXPECT_EQ(received(qps_[0]), std::vector<uint64_t>{4});
    send(qps_[1]);
    EXPECT_EQ(received(qps_[1]), std::vector<uint64_t>{3}) << "only a QP's own datagrams are blocked";
    for (ibv_qp* qp : qps_) ASSERT_EQ(ibv_detach_mcast(qp, &group_, 0), 0);
}

}  // namespace
}  // namespace rove::verbs
