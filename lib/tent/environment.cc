// SPDX-License-Identifier: Apache-2.0
// See environment.h. MC_TENT_CONF, the file, is transfer_engine.cc's; MC_REDIS_* are metadata/redis_store.cc's.
#include "tent/environment.h"

#include <cstdlib>
#include <sstream>

namespace rove::tent {

namespace {

struct Variable {
    const char* name;
    const char* key;
    bool is_list = false;  // "a,b"
};

constexpr Variable kVariables[] = {
    {"MC_GID_INDEX", "transports/rdma/device/gid_index"},
    {"MC_IB_TC", "transports/rdma/endpoint/traffic_class"},
    {"MC_IB_SL", "transports/rdma/endpoint/service_level"},
    {"MC_MTU", "transports/rdma/endpoint/path_mtu"},
    {"MC_MAX_WR", "transports/rdma/endpoint/max_qp_wr"},
    {"MC_NUM_QP_PER_EP", "transports/rdma/num_lanes"},
    {"MC_SLICE_SIZE", "transports/rdma/workers/block_size"},
    {"MC_RETRY_CNT", "transports/rdma/workers/max_retry_count"},
    {"MC_TE_FILTERS", "topology/rdma_whitelist", true},
    {"MC_TE_FILTERS_EXCLUDE", "topology/rdma_blacklist", true},
};

std::string quoted(const std::string& list) {
    std::string text;
    std::istringstream words(list);
    for (std::string word; std::getline(words, word, ',');) text += (text.empty() ? "\"" : ", \"") + word + "\"";
    return "[" + text + "]";
}

}  // namespace

std::vector<Override> environment_overrides(std::string* names) {
    std::vector<Override> overrides;
    for (const Variable& variable : kVariables) {
        const char* value = std::getenv(variable.name);
        if (value == nullptr || *value == 0) continue;
        overrides.push_back({variable.key, variable.is_list ? quoted(value) : value});
        *names += std::string(" ") + variable.name;
    }
    return overrides;
}

}  // namespace rove::tent
