// SPDX-License-Identifier: Apache-2.0
// Tests configurations in JSON: the examples of TENT's documents, the additional keys of Mooncake's files, and the line
// numbers of mistakes.
#include "tent/config/json_config.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>

#include "tent/config/config.h"

namespace rove::tent {
namespace {

Config taken(const std::string& text) {
    Config config;
    const Status status = Config::parse(text, "t.json", {}, &config);
    EXPECT_TRUE(status.ok()) << status << "\n" << text;
    return config;
}

// Expects that the message begins with "t.json:LINE: " and contains `part`.
void refused(const std::string& text, Code code, int line, const std::string& part) {
    Config config;
    const Status status = Config::parse(text, "t.json", {}, &config);
    EXPECT_EQ(status.code(), code) << status << "\n" << text;
    EXPECT_EQ(status.message().rfind("t.json:" + std::to_string(line) + ": ", 0), 0u) << status;
    EXPECT_NE(status.message().find(part), std::string::npos) << status;
}

SelectorConfig selector(const std::string& text) {
    return taken(text).rdma.selector;
}

SlotConfig slots(const std::string& text) {
    return taken(text).slots;
}

// Mooncake accepts numbers as text (kvcache-ai/Mooncake#1743).
TEST(TentJsonConfig, AnIntegerMayBeText) {
    EXPECT_EQ(taken(R"({"rpc_server_port": "21812"})").rpc_server_port, 21812);
    EXPECT_EQ(taken(R"({"transports": {"rdma": {"num_lanes": "2"}}})").rdma.num_lanes, 2u);
    for (const char* wrong : {"65536", "-1", "21814.5", "1e3", "true", "\"21815x\"", "\" 21815\"", "\"\"", "\"0x55\"",
                              "\"65536\"", "\"+1\"", "\"99999999999999999999\""})
        refused(std::string("{\"rpc_server_port\": ") + wrong + "}", Code::kInvalidArgument, 1, "rpc_server_port");
    Config toml;
    EXPECT_FALSE(Config::parse("rpc_server_port = \"21812\"", "t.toml", {}, &toml).ok()) << "TOML has numbers";
}

TEST(TentJsonConfig, WhatEditorsOfOtherSystemsWrite) {
    EXPECT_EQ(taken("\xEF\xBB\xBF{\"rpc_server_port\": 21819}").rpc_server_port, 21819);
    EXPECT_EQ(taken("{\r\n  \"rpc_server_port\": 21818,\r\n  \"transports/tcp/enable\": true\r\n}\r\n").rpc_server_port,
              21818);
    refused("{\r\n  \"rpc_server_port\": 1,\r\n  \"nonsense\": 1\r\n}\r\n", Code::kInvalidArgument, 3, "nonsense");
}

TEST(TentJsonConfig, AFolderIsNoFile) {
    Config config;
    const Status status = Config::load(std::getenv("TMPDIR") != nullptr ? std::getenv("TMPDIR") : "/tmp", {}, &config);
    EXPECT_EQ(status.code(), Code::kMalformedJson);
    EXPECT_NE(status.message().find("it is a folder"), std::string::npos) << status;
}

// The keys and values of the examples in TENT's three documents.
TEST(TentJsonConfig, ExamplesOfSliceSpraying) {
    EXPECT_TRUE(selector(R"({"transports": {"rdma": {"enable_smart_scheduling": true}}})").enable_smart_scheduling);
    EXPECT_EQ(selector(R"({"transports": {"rdma": {"numa_penalties": [1.0, 5.0, 10.0]}}})").numa_penalties[2], 10);
    const SelectorConfig learned = selector(R"({
  "transports": {
    "rdma": {
      "bandwidth_learning_rate": 0.01,
      "ewma_min_bandwidth_multiplier": 0.1,
      "ewma_max_bandwidth_multiplier": 10.0
    }
  }
})");
    EXPECT_EQ(learned.bandwidth_learning_rate, 0.01);
    EXPECT_EQ(learned.ewma_max_bandwidth_multiplier, 10);
    const SelectorConfig scored =
        selector(R"({"transports": {"rdma": {"score_jitter_range": 1e-9, "score_epsilon": 1e-12}}})");
    EXPECT_EQ(scored.score_jitter_range, 1e-9);
    EXPECT_EQ(scored.score_epsilon, 1e-12);
    const SelectorConfig bounded = selector(R"({"transports": {"rdma": {
        "default_bandwidth_gbps": 400.0, "min_bandwidth_gbps": 10.0, "max_bandwidth_gbps": 800.0}}})");
    EXPECT_EQ(bounded.default_bandwidth_gbps, 400);
    const SelectorConfig sensitive = selector(R"({"transports": {"rdma": {
        "enable_smart_scheduling": true, "numa_penalties": [1.0, 100.0, 1000.0], "bandwidth_learning_rate": 0.001}}})");
    EXPECT_EQ(sensitive.numa_penalties[1], 100);
    EXPECT_FALSE(selector(R"({"transports": {"rdma": {"enable_smart_scheduling": false}}})").enable_smart_scheduling);
    // The document's example under "use more conservative", which has no table.
    const SelectorConfig cautious = selector(
        R"({"bandwidth_learning_rate": 0.001, "numa_penalties": [1.0, 10.0, 100.0], "score_jitter_range": 1e-12})");
    EXPECT_EQ(cautious.numa_penalties[1], 10);
    EXPECT_EQ(cautious.score_jitter_range, 1e-12);
}

TEST(TentJsonConfig, ExamplesOfQualityOfService) {
    const Config filter = taken(R"({
  "transports": {
    "rdma": {
      "enable_priority_filtering": true,
      "local_rotation_interval_us": 200,
      "priority_promotion_timeout_us": 10000
    }
  }
})");
    EXPECT_EQ(filter.rdma.selector.local_rotation_interval_ns, 200'000u);
    EXPECT_EQ(filter.queues.promotion_timeout_ns, 10'000'000u);
    const SlotConfig shared = slots(R"({"transports": {"rdma": {
        "slot_rotation_interval_ms": 2, "shared_quota_shm_path": "/mooncake_rdma_slots"}}})");
    EXPECT_EQ(shared.interval_ns, 2'000'000u);
    EXPECT_EQ(shared.shm_path, "/mooncake_rdma_slots");
    EXPECT_EQ(slots(R"({"transports": {"rdma": {"enable_priority_filtering": true, "slot_rotation_interval_ms": 1,
        "shared_quota_shm_path": "/mooncake_rdma_slots"}}})")
                  .interval_ns,
              1'000'000u);
    EXPECT_EQ(
        slots(R"({"transports": {"rdma": {"enable_priority_filtering": true, "shared_quota_shm_path": ""}}})").shm_path,
        "");
    // The examples of its troubleshooting section, which have no tables.
    EXPECT_EQ(slots(R"({"slot_rotation_interval_ms": 1, "enable_priority_filtering": true})").interval_ns, 1'000'000u);
    EXPECT_EQ(slots(R"({"slot_rotation_interval_ms": 10})").interval_ns, 10'000'000u);
    EXPECT_EQ(slots(R"({"shared_quota_shm_path": "/mooncake_rdma_slots_v2"})").shm_path, "/mooncake_rdma_slots_v2");
}

TEST(TentJsonConfig, ExamplesOfTheTransportSelector) {
    const Config three = taken(R"({
  "policy": [
    {
      "name": "high_prio_fast",
      "segment_type": "memory",
      "priority": "high",
      "devices": ["mlx5_0", "mlx5_1", "mlx5_2"],
      "transports": ["nvlink", "rdma", "shm"]
    },
    {
      "name": "low_prio_slow",
      "segment_type": "memory",
      "priority": "low",
      "devices": ["mlx5_0"],
      "transports": ["rdma", "tcp"]
    },
    {
      "name": "file_storage",
      "segment_type": "file",
      "transports": ["gds", "io_uring", "rdma"]
    }
  ]
})");
    ASSERT_EQ(three.policies.size(), 3u);
    EXPECT_EQ(three.policies[0].devices.size(), 3u);
    EXPECT_EQ(three.policies[1].priority, Priority::kLow);
    EXPECT_EQ(three.policies[2].segment_type, SegmentType::kFile);
    EXPECT_EQ(three.policies[2].transports, (std::vector{Transport::GDS, Transport::IOURING, Transport::RDMA}));
    const Config small = taken(R"({"policy": [{"name": "small_transfers", "segment_type": "memory", "min_size": 0,
        "max_size": 1048576, "transports": ["shm", "nvlink"]}]})");
    EXPECT_EQ(small.policies[0].max_size, 1'048'576u);
    EXPECT_EQ(taken(R"({"policy": [{"name": "use_nic_0_only", "segment_type": "memory", "devices": ["mlx5_0"],
        "transports": ["rdma"]}]})")
                  .policies[0]
                  .devices,
              std::vector<std::string>{"mlx5_0"});
    const Config complete = taken(R"({"policy": [
        {"name": "high_priority_local", "segment_type": "memory", "same_machine": true, "priority": "high",
         "transports": ["nvlink", "shm"]},
        {"name": "high_priority_remote", "segment_type": "memory", "same_machine": false, "priority": "high",
         "local_memory": "cuda", "remote_memory": "cuda", "devices": ["mlx5_0", "mlx5_1", "mlx5_2"],
         "transports": ["rdma"]},
        {"name": "medium_priority", "segment_type": "memory", "priority": "medium", "transports": ["rdma"]},
        {"name": "bulk_transfer", "segment_type": "memory", "priority": "low", "min_size": 104857600,
         "transports": ["rdma", "tcp"]},
        {"name": "file_ops", "segment_type": "file", "transports": ["gds", "io_uring"]}]})");
    ASSERT_EQ(complete.policies.size(), 5u);
    EXPECT_EQ(complete.policies[1].local_memory, MemoryKind::kCuda);
    EXPECT_EQ(complete.policies[3].min_size, 104'857'600u);
}

TEST(TentJsonConfig, KeysOfMooncakeThatMeanNothingHereAreWarnedOfOnce) {
    const std::string text = R"({
  "local_segment_name": "node",
  "metadata_servers": "",
  "enable_progress_worker": false,
  "transports": {
    "rdma": {
      "device": {"max_cqe": 4096, "gid_index": 2},
      "endpoint": {"max_sge": 4, "path_mtu": 1024}
    },
    "ub": {"enable": true, "device_filter": []},
    "gds": {"enable": false}
  },
  "policy": [{"name": "p", "segment_type": "memory", "qp_pool": "bulk"}]
})";
    testing::internal::CaptureStderr();
    const Config config = taken(text);
    const std::string said = testing::internal::GetCapturedStderr();
    EXPECT_EQ(config.rdma.gid_index, 2);
    EXPECT_EQ(config.rdma.endpoint.path_mtu, 1024u);
    for (const char* line :
         {"2: key 'local_segment_name'", "4: key 'enable_progress_worker'", "7: key 'transports.rdma.device.max_cqe'",
          "8: key 'transports.rdma.endpoint.max_sge'", "10: key 'transports.ub'", "13: key 'policy.qp_pool'"}) {
        const std::string whole =
            std::string("rove-tent: warning: t.json:") + line + " of Mooncake has no effect here\n";
        EXPECT_NE(said.find(whole), std::string::npos) << whole << said;
    }
    EXPECT_EQ(said.find("gds"), std::string::npos) << said;
    testing::internal::CaptureStderr();
    taken(text);
    EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

TEST(TentJsonConfig, KeysMayBePaths) {
    EXPECT_FALSE(taken(R"({"transports/rdma/enable": false})").rdma.enable);
    EXPECT_EQ(taken(R"({"transports/rdma/num_lanes": 2, "transports": {"rdma": {"num_lanes": 3}}})").rdma.num_lanes, 3u)
        << "what stands in its place is stronger";
    EXPECT_EQ(taken(R"({"rpc_server_port": null})").rpc_server_port, 0);
}

TEST(TentJsonConfig, MistakesAreRefusedWithTheirLine) {
    refused("{\n  \"polices\": []\n}", Code::kInvalidArgument, 2, "key 'polices': got ");
    refused("{\n  \"transports\": {\n    \"rdma\": {\"enable\": 1}\n  }\n}", Code::kInvalidArgument, 3,
            "key 'transports.rdma.enable': got 1, allowed true or false");
    refused("{\n\"policy\": [\n{\"name\": \"p\",\n\"segment_type\": \"memory\",\n\"min_size\":\n-1\n}\n]\n}",
            Code::kInvalidArgument, 5, "key 'policy[0].min_size'");
    refused("{\n\"policy\": [\n  {\n  \"segment_type\": \"memory\"}]}", Code::kInvalidArgument, 3, "name");
    refused("{\n\"transports\": {\"rdma\": {\"numa_penalties\": [1.0,\n5.0,\n\"x\"]}}}", Code::kInvalidArgument, 4,
            "numa_penalties");
    refused("{\n\"rpc_server_port\": 1,\n\"rpc_server_port\": 2}", Code::kMalformedJson, 3, "twice");
    refused("{\n\"rpc_server_port\": 1,\n}", Code::kMalformedJson, 3, "syntax error");
    refused("{\"rpc_server_port\": 1", Code::kMalformedJson, 1, "syntax error");
    refused("{\"rpc_server_port\": 18446744073709551615}", Code::kMalformedJson, 1, "");
    refused("{\n\"metadata_type\": \"ftp\"}", Code::kInvalidMetadataType, 2, "metadata_type");
}

TEST(TentJsonConfig, AFileOrTheTextItself) {
    const std::string path = testing::TempDir() + "tent_json_config_test.json";
    std::ofstream(path) << "\n  {\"rpc_server_port\": 77}\n";
    Config config;
    ASSERT_TRUE(Config::load(path, {}, &config).ok());
    EXPECT_EQ(config.rpc_server_port, 77);
    const Override change{"rpc_server_port", "79"};
    ASSERT_TRUE(Config::load("{\"rpc_server_port\": 78}", {&change, 1}, &config).ok());
    EXPECT_EQ(config.rpc_server_port, 79);
    const Status missing = Config::load(path + ".none", {}, &config);
    EXPECT_EQ(missing.code(), Code::kMalformedJson);
    EXPECT_NE(missing.message().find("No such file"), std::string::npos) << missing;
    std::remove(path.c_str());
}

TEST(TentLog, SaysTenLinesInTenSecondsAndThenHowManyWereLeftOut) {
    LogLimit limit;
    uint64_t left_out = 99;
    const uint64_t start = 1'000'000'000'000;
    for (uint32_t i = 0; i < LogLimit::kLines; ++i) EXPECT_TRUE(limit.take(start + i, &left_out));
    EXPECT_EQ(left_out, 0u);
    for (int i = 0; i < 5; ++i) EXPECT_FALSE(limit.take(start + 100, &left_out));
    EXPECT_TRUE(limit.take(start + LogLimit::kSpanNs, &left_out));
    EXPECT_EQ(left_out, 5u);
}

}  // namespace
}  // namespace rove::tent
