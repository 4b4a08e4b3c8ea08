// SPDX-License-Identifier: Apache-2.0
// ATOMIC WRITE and FLUSH (IBTA 1.5, annex A19) with the constants of rdma-core 45 and later, some of which an older
// <infiniband/verbs.h> lacks.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>

namespace rove::transport {

inline constexpr uint8_t kWrFlush = 14, kWrAtomicWrite = 15;     // ibv_wr_opcode
inline constexpr auto kWcFlush = static_cast<ibv_wc_opcode>(8);  // ibv_wc_opcode
inline constexpr auto kWcAtomicWrite = static_cast<ibv_wc_opcode>(9);
inline constexpr uint64_t kSendOpFlush = 1u << 11, kSendOpAtomicWrite = 1u << 12;   // ibv_qp_create_send_ops_flags
inline constexpr int kAccessFlushGlobal = 1 << 8, kAccessFlushPersistent = 1 << 9;  // ibv_access_flags
// device_cap_flags_ex of ibv_query_device_ex. FLUSH_PERSISTENT is missing: no memory is known to survive a loss of
// power.
inline constexpr uint64_t kDeviceFlushGlobal = 1ull << 38, kDeviceAtomicWrite = 1ull << 40;
inline constexpr uint8_t kFlushGlobal = 1, kFlushPersistent = 2;  // ibv_placement_type
inline constexpr uint8_t kFlushRange = 0, kFlushRegion = 1;       // ibv_selectivity_level
inline constexpr uint32_t kAtomicWriteBytes = 8;

}  // namespace rove::transport
