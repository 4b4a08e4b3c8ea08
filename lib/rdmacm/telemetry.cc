// SPDX-License-Identifier: Apache-2.0
// The counters of the connection manager in DPDK's telemetry: /rove/cm.
#include "base/telemetry_data.h"
#include "rdmacm/state.h"

namespace rove::verbs::ucma {

void RdmaCmServer::report(rte_tel_data* data) {
    const std::lock_guard guard(mutex_);
    rte_tel_data_start_dict(data);
    for (size_t i = 0; i < cm::kCounters; ++i) {
        const auto counter = static_cast<cm::Counter>(i);
        rte_tel_data_add_dict_uint(data, to_string(counter), cm_->counters()[counter]);
    }
    const cm::Cm::Usage usage = cm_->usage();
    rte_tel_data_add_dict_uint(data, "listeners", usage.listeners);
    rte_tel_data_add_dict_uint(data, "connections", usage.connections);
    rte_tel_data_add_dict_uint(data, "lingering", usage.lingering);
}

void RdmaCmServer::start_telemetry() {
    rte_telemetry_register_cmd(
        "/rove/cm",
        [](const char*, const char*, rte_tel_data* data) {
            instance().report(data);
            return 0;
        },
        "The connection manager of rdma_cm: MADs and connections, and what there is now. No parameters.");
}

}  // namespace rove::verbs::ucma
