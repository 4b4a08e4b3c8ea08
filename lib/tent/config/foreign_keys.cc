// SPDX-License-Identifier: Apache-2.0
// See foreign_keys.h.
#include "tent/config/foreign_keys.h"

#include <algorithm>
#include <mutex>
#include <set>
#include <string_view>

#include "tent/config/key_path.h"
#include "tent/observability/log.h"

namespace rove::tent {

namespace {

// A table includes all its keys.
constexpr std::string_view kForeign[] = {
    "enable_auto_failover_on_poll",
    "enable_progress_worker",
    "enable_runtime_queue",
    "qos",
    "rpc_server_threads",
    "runtime_queue",
    "use_legacy_transport_selection",
    "metrics/http_server_threads",
    "metrics/report_interval_seconds",
    "transports/ascend_direct",
    "transports/gds",
    "transports/mnnvl",
    "transports/mpcomm",
    "transports/nvlink",
    "transports/sunrise_link",
    "transports/tpu",
    "transports/ub",
    "transports/shm/cxl_mount_path",
    "transports/tcp/max_concurrent_tasks",
    "transports/tcp/max_retry_count",
    "transports/tcp/retry_base_delay_ms",
    "transports/tcp/retry_max_delay_ms",
    "transports/rdma/bind_address",
    "transports/rdma/deadline_bw_arbitration",
    "transports/rdma/disable_gpu_direct_rdma",
    "transports/rdma/gdr_cooldown_secs",
    "transports/rdma/gdr_error_threshold",
    "transports/rdma/log_slice_affinity",
    "transports/rdma/pci_relaxed_ordering",
    "transports/rdma/device/max_cqe",
    "transports/rdma/device/num_comp_channels",
    "transports/rdma/device/num_cq_list",
    "transports/rdma/device/port",
    "transports/rdma/endpoint/endpoint_store_cap",
    "transports/rdma/endpoint/flow_label",
    "transports/rdma/endpoint/max_dest_rd_atomic",
    "transports/rdma/endpoint/max_inline_bytes",
    "transports/rdma/endpoint/max_sge",
    "transports/rdma/endpoint/pkey_index",
    "transports/rdma/endpoint/qp_mul_factor",
    "transports/rdma/endpoint/qp_pools",
    "transports/rdma/endpoint/rq_psn",
    "transports/rdma/endpoint/sq_psn",
    "transports/rdma/endpoint/src_path_bits",
    "transports/rdma/endpoint/static_rate",
    "transports/rdma/workers/grace_period_ns",
    "transports/rdma/workers/rail_topo_path",
};
// Keys of a policy.
constexpr std::string_view kForeignInPolicy[] = {"qp_pool", "service_level", "traffic_class"};

bool is_only_off(const toml::node& node) {
    const toml::table* table = node.as_table();
    if (table == nullptr) return false;
    return table->empty() || (table->contains("enable") && table->at("enable").value<bool>() == false);
}

bool is_new(const std::string& key) {
    static std::mutex mutex;
    static std::set<std::string> warned;
    const std::lock_guard lock(mutex);
    return warned.insert(key).second;
}

void drop(const std::string& file, toml::table& table, std::string_view path, const std::string& prefix) {
    const toml::node* node = find_path(table, path);
    if (node == nullptr) return;
    std::string key = prefix + std::string(path);
    std::replace(key.begin(), key.end(), '/', '.');
    if (!is_only_off(*node) && is_new(key)) {
        log(LogLevel::kWarning, "%s:%u: key '%s' of Mooncake has no effect here", file.c_str(),
            std::max<uint32_t>(node->source().begin.line, 1), key.c_str());
    }
    erase_path(table, path);
}

}  // namespace

void drop_foreign_keys(const std::string& file, toml::table& root) {
    for (const std::string_view path : kForeign) drop(file, root, path, "");
    const toml::node* type = root.get("metadata_type");
    // Only a store has names of segments; with p2p they are HOST:PORT.
    if (type == nullptr || type->value<std::string>() == "p2p") drop(file, root, "local_segment_name", "");
    if (toml::array* policies = root["policy"].as_array())
        for (toml::node& policy : *policies)
            for (const std::string_view path : kForeignInPolicy)
                if (toml::table* table = policy.as_table()) drop(file, *table, path, "policy.");
}

}  // namespace rove::tent
