// SPDX-License-Identifier: Apache-2.0
// A device without a network: a null port that loops back packets to its own address. All of lib/verbs works on it.
#pragma once

#include <gtest/gtest.h>
#include <infiniband/verbs.h>

#include <cstdint>
#include <vector>

namespace rove::verbs {

inline constexpr int kGidIndex = 1;  // 10.9.0.1
inline constexpr size_t kPage = 4096;
inline constexpr int kInitMask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
inline constexpr int kInitUdMask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY;
inline constexpr int kRtrMask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                                IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
inline constexpr int kRtsMask =
    IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
inline constexpr int kAllAccess =
    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;

class VerbsTest : public testing::Test {
  protected:
    void SetUp() override;
    void TearDown() override;

    ibv_qp_init_attr init_attr(ibv_qp_type type, ibv_srq* srq = nullptr) const;
    ibv_ah_attr own_address() const;
    ibv_qp_attr attr_for(ibv_qp_state state, uint32_t peer_qpn) const;
    // Takes a QP from RESET to RTS, connected to `peer_qpn` of this device.
    void connect(ibv_qp* qp, uint32_t peer_qpn) const;
    void start_ud(ibv_qp* qp) const;
    // Waits up to two seconds for a completion.
    ibv_wc wait(ibv_cq* cq) const;
    ibv_sge sge(size_t offset, uint32_t length) const;

    ibv_context* context_ = nullptr;
    ibv_pd* pd_ = nullptr;
    ibv_cq* cq_ = nullptr;
    ibv_mr* mr_ = nullptr;
    std::vector<uint8_t> buffer_ = std::vector<uint8_t>(64 * 1024);
};

// Two RC QPs of the device, connected to each other.
class ConnectedTest : public VerbsTest {
  protected:
    void SetUp() override;
    void TearDown() override;
    ibv_qp* a_ = nullptr;
    ibv_qp* b_ = nullptr;
};

}  // namespace rove::verbs
