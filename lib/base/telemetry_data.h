// SPDX-License-Identifier: Apache-2.0
// DPDK's telemetry functions under the names that they have since 23.03.
#pragma once

#include <rte_telemetry.h>
#include <rte_version.h>

#include <cstdint>

#if RTE_VERSION < RTE_VERSION_NUM(23, 3, 0, 0)
inline int rte_tel_data_add_array_uint(rte_tel_data* array, uint64_t value) {
    return rte_tel_data_add_array_u64(array, value);
}
inline int rte_tel_data_add_dict_uint(rte_tel_data* dict, const char* name, uint64_t value) {
    return rte_tel_data_add_dict_u64(dict, name, value);
}
#endif
