// SPDX-License-Identifier: Apache-2.0
// See environment.h. MC_TENT_CONF, the file, is transfer_engine.cc's; MC_REDIS_* are metadata/redis_store.cc's.
#include "tent/engine/environment.h"

#include <strings.h>

#include <cstdlib>
#include <mutex>
#include <sstream>

#include "tent/observability/log.h"

namespace rove::tent {

namespace {

enum class Kind { kPlain, kList, kBoolean };  // a list is "a,b", true is also "1", "yes" and "on"

struct Variable {
    const char* name;
    const char* key;
    Kind kind = Kind::kPlain;
};

// If two variables set one key, the later row wins, like in Mooncake.
constexpr Variable kVariables[] = {
    {"MC_LOG_LEVEL", "log_level"},
    {"MC_GID_INDEX", "transports/rdma/device/gid_index"},
    {"NCCL_IB_GID_INDEX", "transports/rdma/device/gid_index"},
    {"MC_IB_TC", "transports/rdma/endpoint/traffic_class"},
    {"MC_IB_SL", "transports/rdma/endpoint/service_level"},
    {"MC_MTU", "transports/rdma/endpoint/path_mtu"},
    {"MC_MAX_WR", "transports/rdma/endpoint/max_qp_wr"},
    {"MC_NUM_QP_PER_EP", "transports/rdma/num_lanes"},
    {"MC_SLICE_SIZE", "transports/rdma/workers/block_size"},
    {"MC_RETRY_CNT", "transports/rdma/workers/max_retry_count"},
    {"MC_WORKERS_PER_CTX", "transports/rdma/workers/num_workers"},
    {"MC_TE_FILTERS", "topology/rdma_whitelist", Kind::kList},
    {"MC_TE_FILTERS_EXCLUDE", "topology/rdma_blacklist", Kind::kList},
    {"TENT_METRICS_ENABLED", "metrics/enabled", Kind::kBoolean},
    {"TENT_METRICS_HTTP_HOST", "metrics/http_host"},
    {"TENT_METRICS_HTTP_PORT", "metrics/http_port"},
};

// Variables of Mooncake that have no meaning here.
constexpr const char* kForeign[] = {
    "MC_CUSTOM_TOPO_JSON",
    "MC_DISABLE_GPU_DIRECT_RDMA",
    "MC_IB_PCI_RELAXED_ORDERING",
    "MC_IB_PORT",
    "MC_LOG_RDMA_SLICE_AFFINITY",
    "MC_MAX_CQE_PER_CTX",
    "MC_MAX_EP_PER_CTX",
    "MC_MAX_INLINE",
    "MC_MAX_SGE",
    "MC_NUM_COMP_CHANNELS_PER_CTX",
    "MC_NUM_CQ_PER_CTX",
    "MC_PKEY_INDEX",
    "MC_RDMA_BIND_ADDRESS",
    "MC_TENT_RPC_THREADS",
};

void warn_of_foreign() {
    static std::once_flag once;
    std::call_once(once, [] {
        for (const char* name : kForeign)
            if (secure_getenv(name) != nullptr) log(LogLevel::kWarning, "variable %s has no effect here", name);
    });
}

std::string quoted(const std::string& list) {
    std::string text;
    std::istringstream words(list);
    for (std::string word; std::getline(words, word, ',');) {
        word.erase(0, word.find_first_not_of(" \t"));
        word.erase(word.find_last_not_of(" \t") + 1);
        if (!word.empty()) text += (text.empty() ? "\"" : ", \"") + word + "\"";
    }
    return "[" + text + "]";
}

std::string boolean(const std::string& text) {
    for (const char* yes : {"1", "yes", "on", "true"})
        if (strcasecmp(text.c_str(), yes) == 0) return "true";
    for (const char* no : {"0", "no", "off", "false"})
        if (strcasecmp(text.c_str(), no) == 0) return "false";
    return text;
}

std::string translate(Kind kind, const char* value) {
    if (kind == Kind::kList) return quoted(value);
    return kind == Kind::kBoolean ? boolean(value) : value;
}

}  // namespace

std::vector<Override> environment_overrides(std::string* names) {
    warn_of_foreign();
    std::vector<Override> overrides;
    for (const Variable& variable : kVariables) {
        const char* value = secure_getenv(variable.name);
        if (value == nullptr || *value == 0) continue;
        overrides.push_back({variable.key, translate(variable.kind, value)});
        *names += std::string(" ") + variable.name;
    }
    return overrides;
}

}  // namespace rove::tent
