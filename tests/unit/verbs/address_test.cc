// SPDX-License-Identifier: Apache-2.0
// Address handles, and neighbours that move.
#include <algorithm>
#include <chrono>
#include <cstring>
#include <string>
#include <thread>

#include "datapath/neighbour.h"
#include "datapath/runtime.h"
#include "fixture.h"
#include "verbs/objects.h"

namespace rove::verbs {
namespace {

class AddressTest : public VerbsTest {
  protected:
    datapath::Runtime& runtime() const { return *static_cast<Device*>(context_->device)->runtime; }
    // `address`, which has this MAC, asks who we are.
    void appear(const wire::MacAddress& mac, const std::string& address) {
        datapath::Neighbours neighbour(mac, {}, {*datapath::parse_subnet(address + "/24")}, {}, {});
        std::vector<uint8_t> frame(datapath::kMaxDiscoveryBytes);
        const size_t bytes = neighbour.ask(*datapath::parse_address("10.9.0.1"), frame.data());
        EXPECT_GT(runtime().devices()[0]->neighbours().handle(frame, bytes), 0u);
    }
    wire::MacAddress mac_of(ibv_ah* ah) const {
        const datapath::Runtime::Pause pause(runtime());
        const transport::Path& path = from(ah).path;
        EXPECT_TRUE(std::equal(path.flow.dst_mac.begin(), path.flow.dst_mac.end(), path.headers.bytes.begin()));
        return path.flow.dst_mac;
    }
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
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(5);
    while (mac_of(ah) != after && std::chrono::steady_clock::now() < deadline)
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
    EXPECT_EQ(mac_of(ah), after);
    EXPECT_EQ(ibv_destroy_ah(ah), 0);
}

// The peer is asked for mp for a quarter of a second, and says nothing.
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
    const auto mac = [&] {
        const datapath::Runtime::Pause pause(runtime());
        return from(qp).transport.path.flow.dst_mac;
    };
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(5);
    while (mac() != after && std::chrono::steady_clock::now() < deadline)
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
    EXPECT_EQ(mac(), after);
    EXPECT_EQ(ibv_destroy_qp(qp), 0);
}

}  // namespace
}  // namespace rove::verbs
