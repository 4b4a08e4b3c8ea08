// SPDX-License-Identifier: Apache-2.0
// The engine's configuration in TOML or JSON, under the documented key names, checked as lib/datapath checks its own:
// unknown keys, wrong types and values out of range are refused with file, line, key and what is allowed.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "rove/tent_status.h"
#include "tent/engine/priority_queues.h"
#include "tent/observability/log.h"
#include "tent/placement/device_selector.h"
#include "tent/placement/transport_selector.h"
#include "tent/qos/slots.h"

namespace rove::tent {

enum class MetadataType : uint8_t { kP2p, kEtcd, kRedis, kHttp };

// Names of files in PEM.
struct TlsFiles {
    std::string ca_file;              // whom to trust; "": who the system trusts
    std::string cert_file, key_file;  // our certificate, with those between it and the authority; "": none
};

// How a metadata store is reached, and how long it keeps the name of a process that has ended.
struct StoreConfig {
    uint32_t ttl_s = 10;
    TlsFiles tls;  // metadata_ca_file, ...
};

// Keys of [transports.rdma] about rails (transports/rdma/rail.h). The documented cooldown of 30 s doubling to 300 s
// cannot take a rail into use within 50 ms of its return (T-19); a probe is one small packet, so it may come much
// sooner.
struct RailConfig {
    uint32_t error_threshold = 3;               // rail_error_threshold
    uint64_t error_window_ns = 10'000'000'000;  // rail_error_window_secs: errors further apart do not add up
    uint64_t cooldown_ns = 10'000'000;          // rail_cooldown_secs: first pause
};

// [transports.rdma.endpoint]: a connection to a device of a peer. Verbs' units.
struct EndpointConfig {
    uint32_t max_qp_wr = 256;  // slices posted at once on a QP
    uint8_t max_rd_atomic = 16;
    uint32_t path_mtu = 4096;
    uint8_t service_level = 0, traffic_class = 0, hop_limit = 16;
    uint8_t send_timeout = 14;  // 4.096 us x 2^n
    uint8_t send_retry_count = 7, send_rnr_count = 7, min_rnr_timer = 12;
};

inline constexpr uint32_t kMaxLanes = 64, kMaxWorkers = 8;

// [transports.rdma]
struct RdmaConfig {
    bool enable = true;
    SelectorConfig selector;
    RailConfig rails;
    EndpointConfig endpoint;
    int gid_index = -1;      // device.gid_index; -1: the first that suits
    uint32_t num_lanes = 1;  // QPs of a connection for each priority
};

// [metrics]
struct MetricsConfig {
    bool enabled = false;  // the Prometheus endpoint; DPDK telemetry is always there
    std::string http_host = "127.0.0.1";
    uint16_t http_port = 9100;
};

struct Override {
    std::string key;    // "transports/rdma/enable_smart_scheduling", or with dots
    std::string value;  // as TOML has it: "false", "65536", "[1, 2]"; what is none of these is a string
};

struct Config {
    MetadataType metadata_type = MetadataType::kP2p;
    std::string metadata_servers;  // "host:port,..."; needed but for p2p
    StoreConfig store;
    std::string local_segment_name;           // but for p2p; empty: made up
    std::string rpc_server_hostname;          // empty: found
    std::string advertised_address;           // HOST or HOST:PORT, where others reach it; empty: as it listens
    std::string secret_file;                  // empty: none, or the environment's
    TlsFiles tls;                             // tls_ca_file, ..., of engines; all of them or none
    uint16_t rpc_server_port = 0;             // 0: any that is free
    LogLevel log_level = LogLevel::kWarning;  // of the process
    bool huge_pages = false;                  // of memory that the engine allocates
    bool merge_requests = true;               // neighbours of one submit become one request (T-14)
    uint32_t max_failover_attempts = 3;       // to other transports; 0: none

    std::vector<Policy> policies;  // [[policy]]
    bool strict = false;           // a request that no policy matches is an error (T-16)

    // [topology]
    std::vector<std::string> rdma_whitelist, rdma_blacklist;  // names of devices; the whitelist wins
    PriorityMatrix priority_matrix;
    Topology topology;  // nics

    // Of all transports, though the documents have the keys in [transports.rdma].
    QueueConfig queues;
    SlotConfig slots;
    uint64_t max_timeout_ns = 10'000'000'000;  // of a request of which nothing is carried meanwhile
    uint64_t block_size = 65'536;  // workers.block_size: bytes; the least slice of a request that is cut (T-1)
    uint32_t max_retry_count = 8;  // workers.max_retry_count: of a slice
    uint32_t num_workers = 1;      // workers.num_workers
    uint32_t shards() const { return std::min(num_workers, kMaxWorkers); }  // core.h

    RdmaConfig rdma;
    bool enable_shm = true, enable_tcp = true, enable_io_uring = true;  // transports.shm.enable, ...
    MetricsConfig metrics;

    // Reads a file, TOML or JSON by its first character; an empty name is an empty file, and JSON itself ("{...}") is
    // taken for what it is. Overrides replace or add keys and are checked like the rest. Keys of Mooncake that mean
    // nothing here are warned of. kInvalidArgument: a key is not acceptable; kMalformedJson: neither TOML nor JSON;
    // kInvalidMetadataType. Then `*out` is as before.
    static Status load(const std::string& file, std::span<const Override> overrides, Config* out);
    // The same of text instead of a file; `name` is what messages call it.
    static Status parse(const std::string& text, const std::string& name, std::span<const Override> overrides,
                        Config* out);
};

}  // namespace rove::tent
