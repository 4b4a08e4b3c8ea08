// SPDX-License-Identifier: Apache-2.0
// An engine without ports on the loopback interface. It uses shm and tcp.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "tent/config/config.h"
#include "tent/engine/engine.h"

namespace rove::tent {

inline std::unique_ptr<Engine> start_local_engine(const std::vector<Override>& more = {}) {
    Config config;
    std::vector<Override> overrides{{"transports/rdma/enable", "false"}, {"rpc_server_hostname", "127.0.0.1"}};
    overrides.insert(overrides.end(), more.begin(), more.end());
    std::unique_ptr<Engine> engine;
    EXPECT_TRUE(Config::load("", overrides, &config).ok());
    EXPECT_TRUE(Engine::start(config, &engine).ok());
    return engine;
}

}  // namespace rove::tent
