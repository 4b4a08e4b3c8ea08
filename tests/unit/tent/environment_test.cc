// SPDX-License-Identifier: Apache-2.0
// Tests that each documented environment variable has the effect of its key.
#include "tent/engine/environment.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

namespace rove::tent {
namespace {

// Sets an environment variable for its own lifetime.
class Variable {
  public:
    Variable(const char* name, const char* value) : name_(name) { setenv(name, value, 1); }
    Variable(const Variable&) = delete;
    Variable& operator=(const Variable&) = delete;
    ~Variable() { unsetenv(name_); }

  private:
    const char* const name_;
};

Status loaded(Config* config, std::string* names) {
    const std::vector<Override> overrides = environment_overrides(names);
    return Config::parse("", "nothing", overrides, config);
}

TEST(Environment, EachVariableIsItsKey) {
    using Names = std::vector<std::string>;
    struct Case {
        const char* variable;
        const char* value;
        bool (*is_there)(const Config&);
    };
    const Case cases[] = {
        {"MC_LOG_LEVEL", "info", [](const Config& c) { return c.log_level == LogLevel::kInfo; }},
        {"MC_GID_INDEX", "2", [](const Config& c) { return c.rdma.gid_index == 2; }},
        {"NCCL_IB_GID_INDEX", "3", [](const Config& c) { return c.rdma.gid_index == 3; }},
        {"MC_IB_TC", "96", [](const Config& c) { return c.rdma.endpoint.traffic_class == 96; }},
        {"MC_IB_SL", "1", [](const Config& c) { return c.rdma.endpoint.service_level == 1; }},
        {"MC_MTU", "1024", [](const Config& c) { return c.rdma.endpoint.path_mtu == 1024; }},
        {"MC_MAX_WR", "512", [](const Config& c) { return c.rdma.endpoint.max_qp_wr == 512; }},
        {"MC_NUM_QP_PER_EP", "2", [](const Config& c) { return c.rdma.num_lanes == 2; }},
        {"MC_SLICE_SIZE", "131072", [](const Config& c) { return c.block_size == 131'072; }},
        {"MC_RETRY_CNT", "5", [](const Config& c) { return c.max_retry_count == 5; }},
        {"MC_WORKERS_PER_CTX", "2", [](const Config& c) { return c.num_workers == 2; }},
        {"MC_TE_FILTERS", "rove0, rove1",
         [](const Config& c) {
             return c.rdma_whitelist == Names{"rove0", "rove1"};
         }},
        {"MC_TE_FILTERS_EXCLUDE", "rove2", [](const Config& c) { return c.rdma_blacklist == Names{"rove2"}; }},
        {"TENT_METRICS_ENABLED", "On", [](const Config& c) { return c.metrics.enabled; }},
        {"TENT_METRICS_HTTP_HOST", "::1", [](const Config& c) { return c.metrics.http_host == "::1"; }},
        {"TENT_METRICS_HTTP_PORT", "9200", [](const Config& c) { return c.metrics.http_port == 9200; }},
    };
    for (const auto& [variable, value, is_there] : cases) {
        Config config;
        std::string names;
        ASSERT_TRUE(loaded(&config, &names).ok());
        EXPECT_FALSE(is_there(config)) << variable << ": it is the default";
        const Variable set(variable, value);
        const Status status = loaded(&config, &names);
        EXPECT_TRUE(status.ok() && is_there(config)) << variable << ": " << status.ToString();
        EXPECT_EQ(names, std::string(" ") + variable);
    }
}

TEST(Environment, WhatIsEmptyIsNotThereAndWhatIsWrongIsRefused) {
    Config config;
    std::string names;
    const Variable empty("MC_SLICE_SIZE", "");
    EXPECT_TRUE(loaded(&config, &names).ok());
    EXPECT_EQ(names, "");
    const Variable wrong("MC_MTU", "77");
    EXPECT_FALSE(loaded(&config, &names).ok());
    EXPECT_EQ(names, " MC_MTU");
}

TEST(Environment, OfTwoForOneKeyTheOriginalsOrderHolds) {
    Config config;
    std::string names;
    const Variable one("MC_GID_INDEX", "1"), other("NCCL_IB_GID_INDEX", "2");
    ASSERT_TRUE(loaded(&config, &names).ok());
    EXPECT_EQ(config.rdma.gid_index, 2);
}

}  // namespace
}  // namespace rove::tent
