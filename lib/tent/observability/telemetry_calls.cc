// SPDX-License-Identifier: Apache-2.0
// See telemetry_calls.h.
#include "tent/observability/telemetry_calls.h"

#include <dlfcn.h>
#include <rte_version.h>

#include <optional>

// References to DPDK's functions where they are linked in. They are hidden, so that no library of the program can
// resolve them: a program may have a DPDK of its own. The u64 function is called uint since DPDK 23.03.
#if RTE_VERSION < RTE_VERSION_NUM(23, 3, 0, 0)
#define ROVE_ADD_UINT "rte_tel_data_add_dict_u64"
#else
#define ROVE_ADD_UINT "rte_tel_data_add_dict_uint"
#endif
extern "C" {
[[gnu::weak]] int linked_register_cmd(const char*, telemetry_cb, const char*) asm("rte_telemetry_register_cmd");
[[gnu::weak]] rte_tel_data* linked_alloc() asm("rte_tel_data_alloc");
[[gnu::weak]] int linked_start_dict(rte_tel_data*) asm("rte_tel_data_start_dict");
[[gnu::weak]] int linked_add_string(rte_tel_data*, const char*, const char*) asm("rte_tel_data_add_dict_string");
[[gnu::weak]] int linked_add_uint(rte_tel_data*, const char*, uint64_t) asm(ROVE_ADD_UINT);
[[gnu::weak]] int linked_add_container(rte_tel_data*, const char*, rte_tel_data*,
                                       int) asm("rte_tel_data_add_dict_container");
}

// (In g++ 12 no attribute makes an undefined weak function hidden.)
asm(".hidden rte_telemetry_register_cmd, rte_tel_data_alloc, rte_tel_data_start_dict, "
    "rte_tel_data_add_dict_string, " ROVE_ADD_UINT ", rte_tel_data_add_dict_container");

namespace rove::tent {

namespace {

constexpr const char* kVersion = "ROVE_1";  // set by lib/preload/version_script.py

template <class Function>
bool find(Function*& function, Function* linked, const char* name) {
    function = linked != nullptr ? linked : reinterpret_cast<Function*>(dlvsym(RTLD_DEFAULT, name, kVersion));
    return function != nullptr;
}

std::optional<TelemetryCalls> find_all() {
    TelemetryCalls calls{};
    const bool found = find(calls.register_cmd, linked_register_cmd, "rte_telemetry_register_cmd") &&
                       find(calls.alloc, linked_alloc, "rte_tel_data_alloc") &&
                       find(calls.start_dict, linked_start_dict, "rte_tel_data_start_dict") &&
                       find(calls.add_string, linked_add_string, "rte_tel_data_add_dict_string") &&
                       find(calls.add_uint, linked_add_uint, ROVE_ADD_UINT) &&
                       find(calls.add_container, linked_add_container, "rte_tel_data_add_dict_container");
    return found ? std::optional(calls) : std::nullopt;
}

}  // namespace

const TelemetryCalls* telemetry_calls() {
    static const std::optional<TelemetryCalls> calls = find_all();
    return calls ? &*calls : nullptr;
}

}  // namespace rove::tent
