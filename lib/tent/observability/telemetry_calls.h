// SPDX-License-Identifier: Apache-2.0
// The telemetry of DPDK in this process: of librove-verbs.so, which rove-run preloads, or of a program that has the
// verbs linked in. librove-tent.so does not depend on that library, whose static thread-local storage is too large for
// a library opened at run time, such as a Python module.
#pragma once

#include <rte_telemetry.h>

#include <cstdint>

namespace rove::tent {

struct TelemetryCalls {
    decltype(&rte_telemetry_register_cmd) register_cmd;
    decltype(&rte_tel_data_alloc) alloc;
    decltype(&rte_tel_data_start_dict) start_dict;
    decltype(&rte_tel_data_add_dict_string) add_string;
    int (*add_uint)(rte_tel_data* dict, const char* name, uint64_t value);
    decltype(&rte_tel_data_add_dict_container) add_container;
};

// Returns null if there is no telemetry. The functions are looked up once.
const TelemetryCalls* telemetry_calls();

}  // namespace rove::tent
