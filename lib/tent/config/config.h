// SPDX-License-Identifier: Apache-2.0
// The engine's configuration in TOML or JSON, with the documented key names. It is checked as rove's own configuration
// is (lib/config): unknown keys, wrong types and values out of range are refused with file, line, key and the allowed
// values.
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

// Names of PEM files.
struct TlsFiles {
    std::string ca_file;  // trusted authorities; "" for the system's
    // Own certificate with the ones between it and the authority, and its key; "" for no certificate.
    std::string cert_file, key_file;
};

// How a metadata store is reached, and how long it keeps the name of a process that has ended.
struct StoreConfig {
    uint32_t ttl_s = 10;
    TlsFiles tls;  // keys metadata_ca_file, metadata_cert_file, metadata_key_file
};

// A structure's read_keys() reads the keys of a value alone, each with its range. config.cc has the keys that depend on
// others.

// Keys of [transports.rdma] about rails (transports/rdma/rail.h). The documented cooldown of 30 s, which doubles up to
// 300 s, cannot bring a rail back into use within 50 ms of its return (T-19). A probe is one small packet, so it may
// come much sooner.
struct RailConfig {
    uint32_t error_threshold = 3;               // key rail_error_threshold
    uint64_t error_window_ns = 10'000'000'000;  // key rail_error_window_secs; errors further apart do not add up
    uint64_t cooldown_ns = 10'000'000;          // key rail_cooldown_secs, the first pause

    void read_keys(auto& table) {
        table.uint("rail_error_threshold", error_threshold, 1, 1'000'000);
        table.seconds("rail_error_window_secs", error_window_ns, 0.001, 86'400);
        table.seconds("rail_cooldown_secs", cooldown_ns, 0.001, 3'600);
    }
};

// Keys of [transports.rdma.endpoint]: a connection to a device of a peer, in the units of verbs.
struct EndpointConfig {
    uint32_t max_qp_wr = 256;  // slices posted at once on a QP
    uint8_t max_rd_atomic = 16;
    uint32_t path_mtu = 4096;
    uint8_t service_level = 0, traffic_class = 0, hop_limit = 16;
    uint8_t send_timeout = 14;  // 4.096 us x 2^n
    uint8_t send_retry_count = 7, send_rnr_count = 7, min_rnr_timer = 12;

    void read_keys(auto& table) {
        table.uint("max_qp_wr", max_qp_wr, 1, 32'768);
        table.uint("max_rd_atomic", max_rd_atomic, 1, 128);
        table.uint("path_mtu", path_mtu, 256, 4'096);
        table.uint("service_level", service_level, 0, 7);
        table.uint("traffic_class", traffic_class, 0, 255);
        table.uint("hop_limit", hop_limit, 1, 255);
        table.uint("send_timeout", send_timeout, 0, 31);
        table.uint("send_retry_count", send_retry_count, 0, 7);
        table.uint("send_rnr_count", send_rnr_count, 0, 7);
        table.uint("min_rnr_timer", min_rnr_timer, 0, 31);
    }
};

inline constexpr uint32_t kMaxLanes = 64, kMaxWorkers = 8;

// Keys of [transports.rdma].
struct RdmaConfig {
    bool enable = true;
    SelectorConfig selector;
    RailConfig rails;
    EndpointConfig endpoint;
    int gid_index = -1;      // key device.gid_index; -1 for the first suitable GID
    uint32_t num_lanes = 1;  // QPs of a connection for each priority
};

// Keys of [metrics].
struct MetricsConfig {
    bool enabled = false;  // Prometheus endpoint; DPDK telemetry is always available
    std::string http_host = "127.0.0.1";
    uint16_t http_port = 9100;
};

struct Override {
    std::string key;    // path with slashes or dots, such as "transports/rdma/enable_smart_scheduling"
    std::string value;  // TOML value such as "false", "65536" or "[1, 2]"; any other text is a string
};

struct Config {
    MetadataType metadata_type = MetadataType::kP2p;
    std::string metadata_servers;  // "host:port,..."; required except for p2p
    StoreConfig store;
    std::string local_segment_name;   // ignored for p2p; empty for a generated name
    std::string rpc_server_hostname;  // empty for a suitable address (control/place.h)
    // HOST or HOST:PORT at which others reach it; empty for the address on which it listens.
    std::string advertised_address;
    std::string secret_file;  // file with the secret, unless the environment has one; may be empty
    TlsFiles tls;             // keys tls_ca_file, tls_cert_file and tls_key_file for engines; all three, or all empty
    uint16_t rpc_server_port = 0;             // 0 for any free port
    LogLevel log_level = LogLevel::kWarning;  // level of the whole process
    bool huge_pages = false;                  // applies to memory that the engine allocates
    bool merge_requests = true;               // merges neighbouring requests of one submit (T-14)
    uint32_t max_failover_attempts = 3;       // failovers to other transports; 0 for no failover

    std::vector<Policy> policies;  // tables [[policy]]
    bool strict = false;           // true if a request that no policy matches is an error (T-16)

    // Keys of [topology].
    std::vector<std::string> rdma_whitelist, rdma_blacklist;  // names of devices; the whitelist wins
    PriorityMatrix priority_matrix;
    Topology topology;  // key nics

    // These apply to all transports, though the documents have the keys in [transports.rdma].
    QueueConfig queues;
    SlotConfig slots;
    uint64_t max_timeout_ns = 10'000'000'000;  // time without progress after which a request ends as TIMEOUT
    uint64_t block_size = 65'536;  // key workers.block_size, in bytes; the least slice of a request that is cut (T-1)
    uint32_t max_retry_count = 8;  // key workers.max_retry_count, for a slice
    uint32_t num_workers = 1;      // key workers.num_workers
    uint32_t shards() const { return std::min(num_workers, kMaxWorkers); }  // number of shards (core.h)

    RdmaConfig rdma;
    // Keys transports.shm.enable, transports.tcp.enable, transports.io_uring.enable.
    bool enable_shm = true, enable_tcp = true, enable_io_uring = true;
    MetricsConfig metrics;

    // Reads a file, as TOML or JSON by its first character. An empty name is an empty file, and a name that is JSON
    // itself ("{...}") is parsed as such. Overrides replace or add keys and are checked like the rest. Keys of Mooncake
    // without meaning here cause a warning. Returns kInvalidArgument if a key is not acceptable, kMalformedJson if the
    // file cannot be read or is neither TOML nor JSON, or kInvalidMetadataType. On an error `*out` does not change.
    static Status load(const std::string& file, std::span<const Override> overrides, Config* out);
    // Reads text instead of a file. `name` is the name of the text in messages.
    static Status parse(const std::string& text, const std::string& name, std::span<const Override> overrides,
                        Config* out);
};

}  // namespace rove::tent
