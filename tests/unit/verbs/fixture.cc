// SPDX-License-Identifier: Apache-2.0
// Defines the fixtures of fixture.h.
#include "fixture.h"

#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace rove::verbs {

namespace {

constexpr char kConfig[] = R"(
[runtime]
progress = "shared"
[[device]]
port = "net_null0,no-rx=1"
addresses = ["10.9.0.1/24", "fd09::1/64"]
mtu = 4096
[[device.neighbour]]            # who never says anything
address = "10.9.0.2"
mac = "02:00:00:00:00:02"
)";

// Runs before the first call for devices, because the runtime starts once per process.
const bool configured = [] {
    char path[] = "/tmp/rove-verbs-test-XXXXXX";
    const int fd = mkstemp(path);
    const bool written = write(fd, kConfig, sizeof(kConfig) - 1) == static_cast<ssize_t>(sizeof(kConfig) - 1);
    close(fd);
    setenv("ROVE_CONFIG", path, 1);
    int count = 0;
    ibv_free_device_list(ibv_get_device_list(&count));
    unlink(path);
    return written;
}();

ibv_device* find_device(ibv_device** list) {
    for (ibv_device** device = list; *device != nullptr; ++device) {
        if (std::strcmp(ibv_get_device_name(*device), "rove0") == 0) return *device;
    }
    return nullptr;
}

}  // namespace

void VerbsTest::SetUp() {
    ASSERT_TRUE(configured);
    ibv_device** list = ibv_get_device_list(nullptr);
    ASSERT_NE(list, nullptr);
    ibv_device* device = find_device(list);
    ASSERT_NE(device, nullptr);
    context_ = ibv_open_device(device);
    ibv_free_device_list(list);
    pd_ = ibv_alloc_pd(context_);
    cq_ = ibv_create_cq(context_, 256, this, nullptr, 0);
    mr_ = ibv_reg_mr(pd_, buffer_.data(), buffer_.size(), kAllAccess | IBV_ACCESS_MW_BIND);
    ASSERT_NE(mr_, nullptr);
}

void VerbsTest::TearDown() {
    EXPECT_EQ(ibv_dereg_mr(mr_), 0);
    EXPECT_EQ(ibv_destroy_cq(cq_), 0);
    EXPECT_EQ(ibv_dealloc_pd(pd_), 0);
    EXPECT_EQ(ibv_close_device(context_), 0);
}

ibv_qp_init_attr VerbsTest::init_attr(ibv_qp_type type, ibv_srq* srq) const {
    return {.send_cq = cq_,
            .recv_cq = cq_,
            .srq = srq,
            .cap = {.max_send_wr = 8, .max_recv_wr = 8, .max_send_sge = 2, .max_recv_sge = 2, .max_inline_data = 64},
            .qp_type = type};
}

ibv_ah_attr VerbsTest::own_address() const {
    ibv_ah_attr attr{};
    ibv_query_gid(context_, 1, kGidIndex, &attr.grh.dgid);
    attr.grh.sgid_index = kGidIndex;
    attr.grh.hop_limit = 64;
    attr.is_global = 1;
    attr.port_num = 1;
    return attr;
}

ibv_qp_attr VerbsTest::attr_for(ibv_qp_state state, uint32_t peer_qpn) const {
    ibv_qp_attr attr{};
    attr.qp_state = state;
    attr.path_mtu = IBV_MTU_1024;
    attr.qkey = 0x1234;
    attr.dest_qp_num = peer_qpn;
    attr.qp_access_flags = kAllAccess;
    attr.ah_attr = own_address();
    attr.port_num = 1;
    attr.max_rd_atomic = attr.max_dest_rd_atomic = 4;
    attr.min_rnr_timer = 1;
    attr.timeout = 14;
    attr.retry_cnt = attr.rnr_retry = 3;
    return attr;
}

void VerbsTest::connect(ibv_qp* qp, uint32_t peer_qpn) const {
    for (auto [state, mask] : {std::pair{IBV_QPS_INIT, kInitMask}, {IBV_QPS_RTR, kRtrMask}, {IBV_QPS_RTS, kRtsMask}}) {
        ibv_qp_attr attr = attr_for(state, peer_qpn);
        ASSERT_EQ(ibv_modify_qp(qp, &attr, mask), 0) << "to state " << state;
    }
}

void VerbsTest::start_ud(ibv_qp* qp) const {
    for (auto [state, mask] : {std::pair{IBV_QPS_INIT, kInitUdMask},
                               {IBV_QPS_RTR, int{IBV_QP_STATE}},
                               {IBV_QPS_RTS, IBV_QP_STATE | IBV_QP_SQ_PSN}}) {
        ibv_qp_attr attr = attr_for(state, 0);
        ASSERT_EQ(ibv_modify_qp(qp, &attr, mask), 0) << "to state " << state;
    }
}

ibv_wc VerbsTest::wait(ibv_cq* cq) const {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(2);
    ibv_wc wc{};
    while (ibv_poll_cq(cq, 1, &wc) == 0) {
        if (std::chrono::steady_clock::now() > end) {
            ADD_FAILURE() << "no completion";
            break;
        }
    }
    return wc;
}

ibv_sge VerbsTest::sge(size_t offset, uint32_t length) const {
    return {.addr = reinterpret_cast<uintptr_t>(buffer_.data()) + offset, .length = length, .lkey = mr_->lkey};
}

void ConnectedTest::SetUp() {
    VerbsTest::SetUp();
    ibv_qp_init_attr attr = init_attr(IBV_QPT_RC);
    a_ = ibv_create_qp(pd_, &attr);
    b_ = ibv_create_qp(pd_, &attr);
    ASSERT_NE(a_, nullptr);
    ASSERT_NE(b_, nullptr);
    connect(a_, b_->qp_num);
    connect(b_, a_->qp_num);
}

void ConnectedTest::TearDown() {
    EXPECT_EQ(ibv_destroy_qp(a_), 0);
    EXPECT_EQ(ibv_destroy_qp(b_), 0);
    VerbsTest::TearDown();
}

}  // namespace rove::verbs
