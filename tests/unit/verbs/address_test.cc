// SPDX-License-Identifier: Apache-2.0
// Address handles, and neighbours that move.
#include <algorithm>
#include <chrono>
#include <cstring>
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
    // 10.9.0.3, which has this MAC, asks who we are.
    void appear(const wire::MacAddress& mac) {
        datapath::Neighbours neighbour(mac, {}, {*datapath::parse_subnet("10.9.0.3/24")}, {}, {});
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
    appear(before);
    ibv_ah_attr address = own_address();
    const wire::Gid gid = *datapath::parse_address("10.9.0.3");
    std::memcpy(address.grh.dgid.raw, gid.data(), gid.size());
    ibv_ah* ah = ibv_create_ah(pd_, &address);
    ibv_ah* gone = ibv_create_ah(pd_, &address);
    ASSERT_NE(ah, nullptr);
    EXPECT_EQ(mac_of(ah), before);
    EXPECT_EQ(ibv_destroy_ah(gone), 0);
    appear(after);
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(5);
    while (mac_of(ah) != after && std::chrono::steady_clock::now() < deadline)
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
    EXPECT_EQ(mac_of(ah), after);
    EXPECT_EQ(ibv_destroy_ah(ah), 0);
}

}  // namespace
}  // namespace rove::verbs
