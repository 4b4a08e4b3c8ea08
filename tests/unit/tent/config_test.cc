// SPDX-License-Identifier: Apache-2.0
// Tests the engine's configuration: all keys are read, and each kind of mistake is refused.
#include "tent/config/config.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <sstream>

#include "support/documented_ranges.h"

namespace rove::tent {
namespace {

Status parse(const std::string& text, Config* config, std::span<const Override> overrides = {}) {
    return Config::parse(text, "t.toml", overrides, config);
}

Config accepted(const std::string& text) {
    Config config;
    const Status status = parse(text, &config);
    EXPECT_TRUE(status.ok()) << status.ToString() << "\n" << text;
    return config;
}

// Expects that `text` is refused at `line` for `key`, and that the message has `part`.
void refused(const std::string& text, int line, const std::string& key, const std::string& part) {
    Config config;
    config.rpc_server_port = 77;
    const Status status = parse(text, &config);
    EXPECT_EQ(status.code(), Code::kInvalidArgument) << text;
    EXPECT_EQ(status.message().rfind("t.toml:" + std::to_string(line) + ": key '" + key + "': got ", 0), 0u)
        << status.message();
    EXPECT_NE(status.message().find(", allowed "), std::string::npos) << status.message();
    EXPECT_NE(status.message().find(part), std::string::npos) << status.message();
    EXPECT_EQ(config.rpc_server_port, 77) << "left as it was";
}

const std::string kRdma = "[transports.rdma]\n";

TEST(TentConfig, NicsOfTheTopologyAreToldWhatTheirPortsDoNotKnow) {
    const Config config = accepted("[[topology.nics]]\nname = \"rove1\"\nnuma_node = 3\nbandwidth_gbps = 2.5\n");
    std::vector<Device> devices{{.name = "rove0"}, {.name = "rove1", .bandwidth_bytes_per_s = 1}};
    ASSERT_TRUE(override_devices(config.topology, devices).ok());
    EXPECT_EQ(devices[0].numa_node, -1);
    EXPECT_EQ(devices[1].numa_node, 3);
    EXPECT_EQ(devices[1].bandwidth_bytes_per_s, 2.5e9 / 8);
    const Ranks ranks = numa_ranks(devices);
    ASSERT_GE(ranks.size(), 4u) << "nodes that the machine does not have";
    EXPECT_EQ(ranks[0], (std::vector<uint8_t>{0, 1}));
    EXPECT_EQ(ranks[3], (std::vector<uint8_t>{0, 0}));
    const std::vector<int> nodes = numa_nodes({}, config.topology);
    EXPECT_EQ(nodes.front(), 0);
    EXPECT_EQ(std::count(nodes.begin(), nodes.end(), 3), 1);
    devices.pop_back();
    EXPECT_EQ(override_devices(config.topology, devices).code(), Code::kInvalidArgument);
}

TEST(TentConfig, TheFileThatShowsEveryKeyShowsTheDefaults) {
    Config config;
    const Status status = Config::load(ROVE_CONFIG_DIR "/tent/engine.toml", {}, &config);
    ASSERT_TRUE(status.ok()) << status.ToString();
    const Config defaults = accepted("");
    const RdmaConfig &rdma = config.rdma, &expected = defaults.rdma;
    EXPECT_EQ(config.metadata_type, defaults.metadata_type);
    EXPECT_EQ(config.huge_pages, defaults.huge_pages);
    EXPECT_EQ(config.rpc_server_port, defaults.rpc_server_port);
    EXPECT_EQ(config.log_level, defaults.log_level);
    EXPECT_EQ(config.merge_requests, defaults.merge_requests);
    EXPECT_EQ(config.max_failover_attempts, defaults.max_failover_attempts);
    EXPECT_EQ(config.strict, defaults.strict);
    EXPECT_EQ(rdma.enable, expected.enable);
    EXPECT_EQ(rdma.selector.enable_smart_scheduling, expected.selector.enable_smart_scheduling);
    EXPECT_EQ(rdma.selector.numa_penalties, expected.selector.numa_penalties);
    EXPECT_EQ(rdma.selector.bandwidth_learning_rate, expected.selector.bandwidth_learning_rate);
    EXPECT_EQ(rdma.selector.ewma_min_bandwidth_multiplier, expected.selector.ewma_min_bandwidth_multiplier);
    EXPECT_EQ(rdma.selector.ewma_max_bandwidth_multiplier, expected.selector.ewma_max_bandwidth_multiplier);
    EXPECT_EQ(rdma.selector.score_jitter_range, expected.selector.score_jitter_range);
    EXPECT_EQ(rdma.selector.score_epsilon, expected.selector.score_epsilon);
    EXPECT_EQ(rdma.selector.default_bandwidth_gbps, expected.selector.default_bandwidth_gbps);
    EXPECT_EQ(rdma.selector.min_bandwidth_gbps, expected.selector.min_bandwidth_gbps);
    EXPECT_EQ(rdma.selector.max_bandwidth_gbps, expected.selector.max_bandwidth_gbps);
    EXPECT_EQ(rdma.selector.block_size, expected.selector.block_size);
    EXPECT_EQ(rdma.selector.enable_priority_filtering, expected.selector.enable_priority_filtering);
    EXPECT_EQ(rdma.selector.local_rotation_interval_ns, expected.selector.local_rotation_interval_ns);
    EXPECT_EQ(config.queues.promotion_timeout_ns, defaults.queues.promotion_timeout_ns);
    EXPECT_EQ(config.queues.promotion_interval_ns, defaults.queues.promotion_interval_ns);
    EXPECT_EQ(rdma.selector.batch_policy, expected.selector.batch_policy);
    EXPECT_EQ(config.slots.interval_ns, defaults.slots.interval_ns);
    EXPECT_EQ(config.slots.shm_path, "");
    EXPECT_EQ(config.slots.strict, defaults.slots.strict);
    EXPECT_EQ(rdma.rails.error_threshold, expected.rails.error_threshold);
    EXPECT_EQ(rdma.rails.error_window_ns, expected.rails.error_window_ns);
    EXPECT_EQ(rdma.rails.cooldown_ns, expected.rails.cooldown_ns);
    EXPECT_EQ(rdma.num_lanes, expected.num_lanes);
    EXPECT_EQ(config.max_timeout_ns, defaults.max_timeout_ns);
    EXPECT_EQ(config.block_size, defaults.block_size);
    EXPECT_EQ(config.max_retry_count, defaults.max_retry_count);
    EXPECT_EQ(config.num_workers, defaults.num_workers);
    EXPECT_EQ(rdma.gid_index, expected.gid_index);
    EXPECT_EQ(rdma.endpoint.max_qp_wr, expected.endpoint.max_qp_wr);
    EXPECT_EQ(rdma.endpoint.path_mtu, expected.endpoint.path_mtu);
    EXPECT_EQ(rdma.endpoint.send_timeout, expected.endpoint.send_timeout);
    EXPECT_EQ(config.store.ttl_s, defaults.store.ttl_s);
    EXPECT_EQ(config.enable_shm, defaults.enable_shm);
    EXPECT_EQ(config.enable_tcp, defaults.enable_tcp);
    EXPECT_EQ(config.enable_io_uring, defaults.enable_io_uring);
    EXPECT_EQ(config.metrics.enabled, defaults.metrics.enabled);
    EXPECT_EQ(config.metrics.http_host, defaults.metrics.http_host);
    EXPECT_EQ(config.metrics.http_port, defaults.metrics.http_port);
    // Its commented keys are also valid.
    std::ifstream file(ROVE_CONFIG_DIR "/tent/engine.toml");
    std::string uncommented;
    bool head = true;
    for (std::string line; std::getline(file, line);) {
        head = head && line.starts_with("#");
        const bool key = line.starts_with("# ") && (line.find(" = ") != std::string::npos || line.starts_with("# ["));
        uncommented += (key && !head ? line.substr(2) : line) + "\n";
    }
    Config all;
    const std::vector<Override> etcd{{"metadata_type", "etcd"}};  // the metadata type that these keys belong to
    ASSERT_TRUE(parse(uncommented, &all, etcd).ok());
    EXPECT_EQ(all.policies.size(), 1u);
    EXPECT_EQ(all.local_segment_name, "node-7");
    EXPECT_EQ(all.priority_matrix.nodes.at(0).at(1).at(0), "rove1");
}

TEST(TentConfig, TheExampleGivesTheRangesThatAreChecked) {
    size_t keys = 0;
    for (const DocumentedRange& range : documented_ranges(ROVE_CONFIG_DIR "/tent/engine.toml")) {
        if (range.table == "policy" || range.table == "topology.nics") continue;
        const std::string table = range.table.empty() ? "" : "[" + range.table + "]\n";
        refused(table + range.key + " = " + range.above() + "\n", table.empty() ? 1 : 2,
                (range.table.empty() ? "" : range.table + ".") + range.key, " " + range.text());
        ++keys;
    }
    EXPECT_GE(keys, 15u);
}

TEST(TentConfig, ReadsEveryKey) {
    const Config config = accepted(R"(metadata_type = "etcd"
metadata_servers = "10.0.0.1:2379"
metadata_ttl_secs = 7
metadata_ca_file = "ca.pem"
metadata_cert_file = "cert.pem"
metadata_key_file = "key.pem"
local_segment_name = "node-7"
secret_file = "/etc/rove/tent.secret"
tls_ca_file = "tent-ca.pem"
tls_cert_file = "tent.pem"
tls_key_file = "tent.key"
rpc_server_hostname = "10.0.0.7"
rpc_server_port = 15001
advertised_address = "node-7:80"
log_level = "info"
huge_pages = true
merge_requests = false
max_failover_attempts = 0
strict = true
[topology]
rdma_whitelist = ["rove0"]
rdma_blacklist = ["rove1", "rove2"]
[topology.priority_matrix]
"cpu:1" = [["rove1"], [], ["rove0"]]
[transports.rdma]
enable = false
enable_smart_scheduling = false
numa_penalties = [1, 2.5, 3]
bandwidth_learning_rate = 0.5
ewma_min_bandwidth_multiplier = 0.25
ewma_max_bandwidth_multiplier = 4
score_jitter_range = 0
score_epsilon = 1e-9
default_bandwidth_gbps = 25
min_bandwidth_gbps = 0.5
max_bandwidth_gbps = 100
enable_priority_filtering = false
local_rotation_interval_us = 300
priority_promotion_timeout_us = 20000
priority_promotion_interval_us = 2000
batch_allocation_policy = "per_slice"
slot_rotation_interval_ms = 5
shared_quota_shm_path = "/slots"
strict_slots = true
rail_error_threshold = 5
rail_error_window_secs = 2
rail_cooldown_secs = 0.02
num_lanes = 2
max_timeout_ns = 5000000000
workers.block_size = 131072
workers.max_retry_count = 3
workers.num_workers = 6
device.gid_index = 1
endpoint.max_qp_wr = 64
endpoint.max_rd_atomic = 8
endpoint.path_mtu = 1024
endpoint.service_level = 5
endpoint.traffic_class = 104
endpoint.hop_limit = 64
endpoint.send_timeout = 10
endpoint.send_retry_count = 2
endpoint.send_rnr_count = 3
endpoint.min_rnr_timer = 6
[transports.shm]
enable = false
[transports.tcp]
enable = false
[transports.io_uring]
enable = false
[metrics]
enabled = true
http_host = "0.0.0.0"
http_port = 9200
)");
    EXPECT_EQ(config.metadata_type, MetadataType::kEtcd);
    EXPECT_EQ(config.metadata_servers, "10.0.0.1:2379");
    EXPECT_EQ(config.store.ttl_s, 7u);
    EXPECT_EQ(config.store.tls.ca_file, "ca.pem");
    EXPECT_EQ(config.store.tls.cert_file, "cert.pem");
    EXPECT_EQ(config.store.tls.key_file, "key.pem");
    EXPECT_EQ(config.local_segment_name, "node-7");
    EXPECT_EQ(config.rpc_server_hostname, "10.0.0.7");
    EXPECT_EQ(config.rpc_server_port, 15001);
    EXPECT_EQ(config.secret_file, "/etc/rove/tent.secret");
    EXPECT_EQ(config.tls.ca_file, "tent-ca.pem");
    EXPECT_EQ(config.tls.cert_file, "tent.pem");
    EXPECT_EQ(config.tls.key_file, "tent.key");
    EXPECT_EQ(config.advertised_address, "node-7:80");
    EXPECT_EQ(config.log_level, LogLevel::kInfo);
    EXPECT_TRUE(config.huge_pages);
    EXPECT_FALSE(config.merge_requests);
    EXPECT_EQ(config.max_failover_attempts, 0u);
    EXPECT_TRUE(config.strict);
    EXPECT_EQ(config.rdma_whitelist, (std::vector<std::string>{"rove0"}));
    EXPECT_EQ(config.rdma_blacklist, (std::vector<std::string>{"rove1", "rove2"}));
    EXPECT_EQ(config.priority_matrix.nodes.at(1), (std::vector<std::vector<std::string>>{{"rove1"}, {}, {"rove0"}}));
    EXPECT_EQ(config.priority_matrix.where, "t.toml:23: key 'topology.priority_matrix'");
    const RdmaConfig& rdma = config.rdma;
    EXPECT_FALSE(rdma.enable);
    EXPECT_FALSE(rdma.selector.enable_smart_scheduling);
    EXPECT_EQ(rdma.selector.numa_penalties, (std::array<double, 3>{1, 2.5, 3}));
    EXPECT_EQ(rdma.selector.bandwidth_learning_rate, 0.5);
    EXPECT_EQ(rdma.selector.ewma_min_bandwidth_multiplier, 0.25);
    EXPECT_EQ(rdma.selector.ewma_max_bandwidth_multiplier, 4);
    EXPECT_EQ(rdma.selector.score_jitter_range, 0);
    EXPECT_EQ(rdma.selector.score_epsilon, 1e-9);
    EXPECT_EQ(rdma.selector.default_bandwidth_gbps, 25);
    EXPECT_EQ(rdma.selector.min_bandwidth_gbps, 0.5);
    EXPECT_EQ(rdma.selector.max_bandwidth_gbps, 100);
    EXPECT_FALSE(rdma.selector.enable_priority_filtering);
    EXPECT_EQ(rdma.selector.local_rotation_interval_ns, 300'000u);
    EXPECT_EQ(rdma.selector.block_size, 131'072u);
    EXPECT_EQ(config.queues.promotion_timeout_ns, 20'000'000u);
    EXPECT_EQ(config.queues.promotion_interval_ns, 2'000'000u);
    EXPECT_EQ(rdma.selector.batch_policy, BatchPolicy::kPerSlice);
    EXPECT_EQ(config.slots.interval_ns, 5'000'000u);
    EXPECT_EQ(config.slots.shm_path, "/slots");
    EXPECT_TRUE(config.slots.strict);
    EXPECT_EQ(rdma.rails.error_threshold, 5u);
    EXPECT_EQ(rdma.rails.error_window_ns, 2'000'000'000u);
    EXPECT_EQ(rdma.rails.cooldown_ns, 20'000'000u);
    EXPECT_EQ(rdma.num_lanes, 2u);
    EXPECT_EQ(config.max_timeout_ns, 5'000'000'000u);
    EXPECT_EQ(config.block_size, 131'072u);
    EXPECT_EQ(config.max_retry_count, 3u);
    EXPECT_EQ(config.num_workers, 6u);
    EXPECT_EQ(config.shards(), 6u);
    EXPECT_EQ(rdma.gid_index, 1);
    const EndpointConfig& endpoint = rdma.endpoint;
    EXPECT_EQ(endpoint.max_qp_wr, 64u);
    EXPECT_EQ(endpoint.max_rd_atomic, 8);
    EXPECT_EQ(endpoint.path_mtu, 1024u);
    EXPECT_EQ(endpoint.service_level, 5);
    EXPECT_EQ(endpoint.traffic_class, 104);
    EXPECT_EQ(endpoint.hop_limit, 64);
    EXPECT_EQ(endpoint.send_timeout, 10);
    EXPECT_EQ(endpoint.send_retry_count, 2);
    EXPECT_EQ(endpoint.send_rnr_count, 3);
    EXPECT_EQ(endpoint.min_rnr_timer, 6);
    EXPECT_FALSE(config.enable_shm || config.enable_tcp || config.enable_io_uring);
    EXPECT_TRUE(config.metrics.enabled);
    EXPECT_EQ(config.metrics.http_host, "0.0.0.0");
    EXPECT_EQ(config.metrics.http_port, 9200);
}

TEST(TentConfig, ReadsAPolicy) {
    const Config config = accepted(R"([[policy]]
name = "p"
segment_type = "memory"
same_machine = false
local_memory = "hip"
remote_memory = "*"
min_size = 0
max_size = 1048576
priority = "HIGH"
devices = ["mlx5_0"]
transports = ["nvlink", "rdma"]
[[policy]]
name = "q"
segment_type = "file"
priority = 2
devices = []
)");
    ASSERT_EQ(config.policies.size(), 2u);
    const Policy& p = config.policies[0];
    EXPECT_EQ(p.segment_type, SegmentType::kMemory);
    EXPECT_EQ(p.same_machine, false);
    EXPECT_EQ(p.local_memory, MemoryKind::kRocm);
    EXPECT_EQ(p.remote_memory, std::nullopt);
    EXPECT_EQ(p.max_size, 1'048'576u);
    EXPECT_EQ(p.priority, Priority::kHigh);
    EXPECT_EQ(p.transports, (std::vector<Transport>{Transport::NVLINK, Transport::RDMA}));
    EXPECT_EQ(p.where_devices, "t.toml:10: key 'policy[0].devices'");
    EXPECT_EQ(config.policies[1].segment_type, SegmentType::kFile);
    EXPECT_EQ(config.policies[1].priority, Priority::kLow);
    EXPECT_EQ(config.policies[1].same_machine, std::nullopt);
}

// The usage examples of the documents, in their order, with the values that they should set.
TEST(TentConfig, ExamplesOfTheDocumentsLoad) {
    const Config latency = accepted(kRdma +
                                    "enable_smart_scheduling = true\nnuma_penalties = [1.0, 100.0, 1000.0]\n"
                                    "bandwidth_learning_rate = 0.001\n");
    EXPECT_EQ(latency.rdma.selector.numa_penalties[2], 1000);
    const Config bulk = accepted(kRdma +
                                 "enable_smart_scheduling = true\nnuma_penalties = [1.0, 2.0, 3.0]\n"
                                 "bandwidth_learning_rate = 0.1\n");
    EXPECT_EQ(bulk.rdma.selector.bandwidth_learning_rate, 0.1);
    EXPECT_FALSE(accepted(kRdma + "enable_smart_scheduling = false\n").rdma.selector.enable_smart_scheduling);
    const Config cautious = accepted(kRdma +
                                     "bandwidth_learning_rate = 0.001\nnuma_penalties = [1.0, 10.0, 100.0]\n"
                                     "score_jitter_range = 1e-12\n");
    EXPECT_EQ(cautious.rdma.selector.score_jitter_range, 1e-12);
    const Config critical = accepted(kRdma +
                                     "enable_priority_filtering = true\nslot_rotation_interval_ms = 1\n"
                                     "shared_quota_shm_path = \"/mooncake_rdma_slots\"\n");
    EXPECT_EQ(critical.slots.interval_ns, 1'000'000u);
    EXPECT_EQ(critical.slots.shm_path, "/mooncake_rdma_slots");
    EXPECT_EQ(accepted(kRdma + "enable_priority_filtering = true\nshared_quota_shm_path = \"\"\n").slots.shm_path, "");
    EXPECT_EQ(accepted(kRdma + "slot_rotation_interval_ms = 10\nshared_quota_shm_path = \"/mooncake_rdma_slots\"\n")
                  .slots.interval_ns,
              10'000'000u);
    // The sample file of the original lacks the slash.
    EXPECT_EQ(accepted(kRdma + "shared_quota_shm_path = \"mooncake_quota_shm\"\n").slots.shm_path,
              "/mooncake_quota_shm");
}

TEST(TentConfig, RefusesUnknownKeysAndWrongValues) {
    refused("metrics = 1\n", 1, "metrics", "a table");
    refused("polices = []\n", 1, "polices", "unknown key");
    refused(kRdma + "enable_smart_sheduling = true\n", 2, "transports.rdma.enable_smart_sheduling", "unknown key");
    refused(kRdma + "workers.blocksize = 1\n", 2, "transports.rdma.workers.blocksize",
            "block_size, max_retry_count, num_workers");
    refused(kRdma + "enable = 1\n", 2, "transports.rdma.enable", "true or false");
    refused(kRdma + "bandwidth_learning_rate = 1.5\n", 2, "transports.rdma.bandwidth_learning_rate", "0..1");
    refused(kRdma + "bandwidth_learning_rate = nan\n", 2, "transports.rdma.bandwidth_learning_rate", "0..1");
    refused(kRdma + "slot_rotation_interval_ms = 0\n", 2, "transports.rdma.slot_rotation_interval_ms", "1..1000");
    refused(kRdma + "shared_quota_shm_path = \"/a/b\"\n", 2, "transports.rdma.shared_quota_shm_path", "/rove_slots");
    refused(kRdma + "endpoint.path_mtu = 1500\n", 2, "transports.rdma.endpoint.path_mtu", "1024");
    refused(kRdma + "device.gid_index = -2\n", 2, "transports.rdma.device.gid_index", "-1");
    refused("rpc_server_port = 65536\n", 1, "rpc_server_port", "0..65535");
    refused("metadata_type = \"etcd\"\n", 1, "metadata_servers", "10.0.0.1:2379");
    refused("tls_ca_file = \"a\"\n", 1, "tls_ca_file", "with tls_cert_file and tls_key_file");
    refused("tls_cert_file = \"a\"\n", 1, "tls_key_file", "the certificate's key");
    refused("metadata_key_file = \"a\"\n", 1, "metadata_key_file", "the certificate's key");
    refused("log_level = \"loud\"\n", 1, "log_level", "warning");
    refused("[[topology.nics]]\nname = \"rove0\"\nnuma_node = -2\n", 3, "topology.nics[0].numa_node", "0..1023");
    refused("[[topology.nics]]\nname = \"rove0\"\nbandwidth_gbps = 0.0\n", 3, "topology.nics[0].bandwidth_gbps", "");
    refused("[topology.priority_matrix]\n\"gpu:0\" = []\n", 2, "topology.priority_matrix.gpu:0", "cpu:N");
    refused("[topology.priority_matrix]\n\"cpu:0\" = [[],[],[],[]]\n", 2, "topology.priority_matrix.cpu:0", "3 lists");
}

TEST(TentConfig, T8_PenaltiesOfAnotherLengthThanTheRanksAreRefused) {
    refused(kRdma + "numa_penalties = [1.0, 5.0]\n", 2, "transports.rdma.numa_penalties", "3 numbers");
    refused(kRdma + "numa_penalties = [1.0, 5.0, 10.0, 20.0]\n", 2, "transports.rdma.numa_penalties", "3 numbers");
    refused(kRdma + "numa_penalties = [1.0, 5.0, 0]\n", 2, "transports.rdma.numa_penalties", "0.001");
}

TEST(TentConfig, T5_BandwidthsThatContradictEachOtherAreRefused) {
    refused(kRdma + "min_bandwidth_gbps = 900\n", 2, "transports.rdma.min_bandwidth_gbps", "max_bandwidth_gbps");
    refused(kRdma + "ewma_min_bandwidth_multiplier = 20\n", 2, "transports.rdma.ewma_min_bandwidth_multiplier",
            "ewma_max");
}

TEST(TentConfig, T15_PolicyErrorsNameTheKey) {
    const std::string policy = "[[policy]]\nname = \"p\"\nsegment_type = \"memory\"\n";
    refused("[[policy]]\nname = \"p\"\n", 1, "policy[0].segment_type", R"("memory" or "file")");
    refused("[[policy]]\nsegment_type = \"file\"\n", 1, "policy[0].name", "Request::policy_name");
    refused("[[policy]]\nname = \"p\"\nsegment_type = \"disk\"\n", 3, "policy[0].segment_type",
            R"("memory" or "file")");
    refused(policy + "priority = \"urgent\"\n", 4, "policy[0].priority", "\"high\" or 0");
    refused(policy + "priority = 3\n", 4, "policy[0].priority", "\"low\" or 2");
    refused(policy + "transports = [\"rdma\", \"roce\"]\n", 4, "policy[0].transports", "rdma, mnnvl, shm");
    refused(policy + "transports = [\"unspec\"]\n", 4, "policy[0].transports", "rdma");
    refused(policy + "local_memory = \"gpu\"\n", 4, "policy[0].local_memory", "\"cuda\"");
    refused(policy + "min_size = 2\nmax_size = 1\n", 4, "policy[0].min_size", "max_size");
    refused(policy + policy + "min_sise = 1\n", 7, "policy[1].min_sise", "unknown key");
}

TEST(TentConfig, T22_UnknownMetadataTypeHasACodeOfItsOwn) {
    Config config;
    const Status status = parse("metadata_type = \"consul\"\n", &config);
    EXPECT_EQ(status.code(), Code::kInvalidMetadataType);
    EXPECT_EQ(status.message(),
              "t.toml:1: key 'metadata_type': got 'consul', allowed \"p2p\" or \"etcd\" or "
              "\"redis\" or \"http\"");
}

TEST(TentConfig, TextThatIsNotTomlAndFilesThatAreNotThere) {
    Config config;
    EXPECT_EQ(parse("a = \n", &config).code(), Code::kMalformedJson);
    const Status status = Config::load("/nowhere/tent.toml", {}, &config);
    EXPECT_EQ(status.code(), Code::kMalformedJson);
    EXPECT_NE(status.message().find("/nowhere/tent.toml"), std::string::npos);
}

TEST(TentConfig, OverridesAreCheckedLikeTheFile) {
    Config config;
    const Override good[] = {{"transports/rdma/workers/block_size", "131072"},
                             {"transports.rdma.enable_smart_scheduling", "false"},
                             {"transports/rdma/numa_penalties", "[1, 2, 3]"},
                             {"metadata_servers", "10.0.0.1:2379"},
                             {"local_segment_name", "x\ny = 1"},
                             {"metadata_type", "redis"}};
    ASSERT_TRUE(parse("metadata_type = \"p2p\"\n[transports.rdma]\nnum_lanes = 3\n", &config, good).ok());
    EXPECT_EQ(config.block_size, 131'072u);
    EXPECT_FALSE(config.rdma.selector.enable_smart_scheduling);
    EXPECT_EQ(config.rdma.selector.numa_penalties[2], 3);
    EXPECT_EQ(config.rdma.num_lanes, 3u);
    EXPECT_EQ(config.metadata_type, MetadataType::kRedis);
    EXPECT_EQ(config.local_segment_name, "x\ny = 1");
    const Override bad[] = {{"transports/rdma/num_lanes", "many"}};
    const Status status = Config::load("", bad, &config);
    EXPECT_EQ(status.code(), Code::kInvalidArgument);
    EXPECT_EQ(status.message(),
              "configuration:1: key 'transports.rdma.num_lanes': got 'many', allowed an integer 1..64");
}

}  // namespace
}  // namespace rove::tent
