// SPDX-License-Identifier: Apache-2.0
// Tests address handles, and neighbours that move.
#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <string>
#include <thread>
#include <tuple>

#include "fixture.h"
#include "link/neighbour.h"
#include "runtime/runtime.h"
#include "verbs/objects.h"

namespace rove::verbs {
namespace {

class AddressTest : public VerbsTest {
  protected:
    datapath::Runtime& runtime() const { return *static_cast<Device*>(context_->device)->runtime; }
    // Handles a request for our address from `address`, which has this MAC.
    void appear(const wire::MacAddress& mac, const std::string& address) {
        datapath::Neighbours neighbour(mac, {}, {*datapath::parse_subnet(address + "/24")}, {}, {});
        std::vector<uint8_t> frame(datapath::kMaxDiscoveryBytes);
        const size_t bytes = neighbour.ask(*datapath::parse_address("10.9.0.1"), frame.data(), 1);
        EXPECT_GT(runtime().interfaces()[0]->neighbours().handle(frame, bytes, runtime().now_ns()), 0u);
    }
    wire::MacAddress mac_of(ibv_ah* ah) const { return from(ah).path.next_hop->mac(); }
};

TEST_F(AddressTest, HandlesFollowANeighbourThatMoves) {
    const wire::MacAddress before{2, 0, 0, 0, 0, 3}, after{2, 0, 0, 0, 0, 4};
    appear(before, "10.9.0.3");
    ibv_ah_attr address = own_address();
    const wire::Gid gid = *datapath::parse_address("10.9.0.3");
    std::memcpy(address.grh.dgid.raw, gid.data(), gid.size());
    ibv_ah* ah = ibv_create_ah(pd_, &address);
    ibv_ah* gone = ibv_create_ah(pd_, &address);
    ASSERT_NE(ah, nullptr);
    EXPECT_EQ(mac_of(ah), before);
    EXPECT_EQ(ibv_destroy_ah(gone), 0);
    appear(after, "10.9.0.3");
    EXPECT_EQ(mac_of(ah), after) << "at once, and nobody was stopped for it";
    EXPECT_EQ(ibv_destroy_ah(ah), 0);
}

// rove asks the peer for mp for a quarter of a second, without an answer.
TEST_F(AddressTest, AQpThatIsBeingConnectedFollowsANeighbourThatMoves) {
    const wire::MacAddress before{2, 0, 0, 0, 0, 5}, after{2, 0, 0, 0, 0, 6};
    appear(before, "10.9.0.5");
    ibv_qp_init_attr init = init_attr(IBV_QPT_RC);
    ibv_qp* qp = ibv_create_qp(pd_, &init);
    ASSERT_NE(qp, nullptr);
    ibv_qp_attr attr = attr_for(IBV_QPS_INIT, 0);
    ASSERT_EQ(ibv_modify_qp(qp, &attr, kInitMask), 0);
    attr = attr_for(IBV_QPS_RTR, 1);
    const wire::Gid gid = *datapath::parse_address("10.9.0.5");
    std::memcpy(attr.ah_attr.grh.dgid.raw, gid.data(), gid.size());
    std::thread mover([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
        appear(after, "10.9.0.5");
    });
    EXPECT_EQ(ibv_modify_qp(qp, &attr, kRtrMask), 0);
    mover.join();
    EXPECT_EQ(from(qp).transport.path.next_hop->mac(), after);
    EXPECT_EQ(ibv_destroy_qp(qp), 0);
}

// The traffic class, hop limit and flow label of an IP header.
using Route = std::tuple<int, int, uint32_t>;
Route route_of(const uint8_t* ip) {
    if (ip[0] >> 4 == 4) return {ip[1], ip[8], 0};
    return {(ip[0] << 4 | ip[1] >> 4) & 0xFF, ip[7], (ip[1] & 15) << 16 | ip[2] << 8 | ip[3]};
}

class RouteTest : public AddressTest {
  protected:
    ibv_ah_attr to(int gid_index, uint8_t traffic_class, uint8_t hop_limit, uint32_t flow_label, uint8_t sl) const {
        ibv_ah_attr attr = own_address();
        ibv_query_gid(context_, 1, gid_index, &attr.grh.dgid);
        attr.grh.sgid_index = static_cast<uint8_t>(gid_index);
        attr.grh.traffic_class = traffic_class;
        attr.grh.hop_limit = hop_limit;
        attr.grh.flow_label = flow_label;
        attr.sl = sl;
        return attr;
    }
    static constexpr int kIpv6GidIndex = 2;
    static constexpr uint8_t kDscp = 46 << 2, kNotEct = 0, kEct0 = 2;
};

// The route as the receiver finds it in the GRH. rove sets the ECN bits itself.
TEST_F(RouteTest, ADatagramsPacketHasTheRouteOfItsHandle) {
    ibv_qp_init_attr init = init_attr(IBV_QPT_UD);
    ibv_qp* qp = ibv_create_qp(pd_, &init);
    start_ud(qp);
    const auto received = [&](ibv_ah_attr route) {
        ibv_sge target = sge(0, 40), nothing = sge(64, 0);
        ibv_recv_wr recv{}, *bad_recv;
        recv.sg_list = &target;
        recv.num_sge = 1;
        EXPECT_EQ(ibv_post_recv(qp, &recv, &bad_recv), 0);
        ibv_ah* ah = ibv_create_ah(pd_, &route);
        ibv_send_wr wr{}, *bad;
        wr.sg_list = &nothing;
        wr.num_sge = 1;
        wr.opcode = IBV_WR_SEND;
        wr.wr.ud = {.ah = ah, .remote_qpn = qp->qp_num, .remote_qkey = 0x1234};
        EXPECT_EQ(ibv_post_send(qp, &wr, &bad), 0);
        EXPECT_EQ(wait(cq_).opcode, IBV_WC_RECV);
        EXPECT_EQ(ibv_destroy_ah(ah), 0);
        return route_of(&buffer_[route.grh.sgid_index == kIpv6GidIndex ? 0 : 20]);
    };
    EXPECT_EQ(received(to(kGidIndex, kDscp | 3, 7, 0, 0)), Route(kDscp | kNotEct, 7, 0));
    EXPECT_EQ(received(to(kGidIndex, 0, 0, 0, 0)), Route(kNotEct, 64, 0)) << "a hop limit of 0 is the usual one";
    EXPECT_EQ(received(to(kIpv6GidIndex, kDscp | 3, 255, 0xABCDE, 0)), Route(kDscp | kNotEct, 255, 0xABCDE));
    EXPECT_EQ(received(to(kIpv6GidIndex, 4, 1, 0xF00001, 0)), Route(4 | kNotEct, 1, 1)) << "of 20 bits";
    EXPECT_EQ(ibv_destroy_qp(qp), 0);
}

TEST_F(RouteTest, AConnectionsPacketsHaveTheRouteThatModifySets) {
    ibv_qp_init_attr init = init_attr(IBV_QPT_RC);
    ibv_qp* qp = ibv_create_qp(pd_, &init);
    ibv_qp_attr attr = attr_for(IBV_QPS_INIT, 0);
    ASSERT_EQ(ibv_modify_qp(qp, &attr, kInitMask), 0);
    const auto sent = [&] {
        const datapath::Runtime::Pause pause(runtime());
        const transport::Path& path = from(qp).transport.path;
        return route_of(&path.headers.bytes[path.headers.l3_offset]);
    };
    attr = attr_for(IBV_QPS_RTR, qp->qp_num);
    attr.ah_attr = to(kIpv6GidIndex, kDscp, 9, 0x12345, 5);
    ASSERT_EQ(ibv_modify_qp(qp, &attr, kRtrMask), 0);
    EXPECT_EQ(sent(), Route(kDscp | kEct0, 9, 0x12345));
    EXPECT_EQ(from(qp).transport.priority, datapath::kHighPriority);
    attr = attr_for(IBV_QPS_RTS, 0);
    ASSERT_EQ(ibv_modify_qp(qp, &attr, kRtsMask), 0);

    attr.qp_state = IBV_QPS_SQD;
    ASSERT_EQ(ibv_modify_qp(qp, &attr, IBV_QP_STATE), 0);
    attr.ah_attr = to(kGidIndex, 8 << 2 | 1, 33, 0, 5);
    ASSERT_EQ(ibv_modify_qp(qp, &attr, IBV_QP_AV), 0);
    EXPECT_EQ(sent(), Route(8 << 2 | kEct0, 33, 0));
    attr.ah_attr.sl = 8;
    EXPECT_EQ(ibv_modify_qp(qp, &attr, IBV_QP_AV), EINVAL) << "there are 8 levels";
    EXPECT_EQ(ibv_destroy_qp(qp), 0);
}

}  // namespace
}  // namespace rove::verbs
