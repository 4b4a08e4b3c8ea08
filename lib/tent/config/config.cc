// SPDX-License-Identifier: Apache-2.0
// Reads the engine's configuration. Each table is read by naming its keys; a key that was not named is unknown.
#include "tent/config/config.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "config/table.h"
#include "tent/config/foreign_keys.h"
#include "tent/config/json_config.h"
#include "tent/config/key_path.h"

namespace rove::tent {

namespace {

using config::Refused;
using config::Table;

constexpr uint64_t kMaxBytes = uint64_t{1} << 62;
constexpr double kMaxGbps = 1e6;
constexpr const char* kMemoryPatterns = R"("cpu", "cuda", "rocm", "hip", "npu" or "*")";

void check_bandwidths(const Table& table, const SelectorConfig& selector) {
    if (selector.min_bandwidth_gbps > selector.max_bandwidth_gbps)
        table.require_together("", "min_bandwidth_gbps: a number up to max_bandwidth_gbps");
    if (selector.ewma_min_bandwidth_multiplier > selector.ewma_max_bandwidth_multiplier)
        table.require_together("", "ewma_min_bandwidth_multiplier: a number up to ewma_max_bandwidth_multiplier");
}

void read_slots(Table& table, SlotConfig& slots) {
    uint64_t ms = slots.interval_ns / 1'000'000;
    table.uint("slot_rotation_interval_ms", ms, 1, 1'000);
    slots.interval_ns = ms * 1'000'000;
    // The documents have "" for no slots.
    const std::string allowed = "a name such as \"/rove_slots\", or \"\" for no slots";
    const toml::node* path = table.any("shared_quota_shm_path");
    if (path != nullptr) {
        const auto name = path->value_exact<std::string>();
        // shm_open(3) requires a slash at the front, which is added if it is missing.
        if (!name || name->find('/', 1) != std::string::npos || *name == "/" || name->size() > 254)
            table.refuse(*path, "shared_quota_shm_path", allowed);
        slots.shm_path = name->empty() || name->front() == '/' ? *name : "/" + *name;
    }
    table.boolean("strict_slots", slots.strict);
}

void read_endpoint(Table table, EndpointConfig& endpoint) {
    endpoint.read_keys(table);
    if ((endpoint.path_mtu & (endpoint.path_mtu - 1)) != 0)
        table.refuse(table.node("path_mtu"), "path_mtu", "256, 512, 1024, 2048 or 4096");
    table.refuse_unknown();
}

void read_rdma(Table table, Config& config) {
    RdmaConfig& rdma = config.rdma;
    table.boolean("enable", rdma.enable);
    rdma.selector.read_keys(table);
    check_bandwidths(table, rdma.selector);
    config.queues.read_keys(table);
    read_slots(table, config.slots);
    rdma.rails.read_keys(table);
    table.uint("num_lanes", rdma.num_lanes, 1, kMaxLanes);
    table.uint("max_timeout_ns", config.max_timeout_ns, 1'000'000, 3'600'000'000'000);
    if (auto workers = table.table("workers")) {
        workers->uint("block_size", config.block_size, 4'096, uint64_t{1} << 30);
        workers->uint("max_retry_count", config.max_retry_count, 0, 1'000);
        workers->uint("num_workers", config.num_workers, 1, 1'024);
        workers->refuse_unknown();
    }
    rdma.selector.block_size = config.block_size;
    if (auto device = table.table("device")) {
        int64_t index = rdma.gid_index;
        const std::string allowed = "-1 for the first suitable one, or 0..255";
        if (const toml::node* node = device->any("gid_index")) {
            const auto value = node->value_exact<int64_t>();
            if (!value || *value < -1 || *value > 255) device->refuse(*node, "gid_index", allowed);
            index = *value;
        }
        rdma.gid_index = static_cast<int>(index);
        device->refuse_unknown();
    }
    if (auto endpoint = table.table("endpoint")) read_endpoint(*endpoint, rdma.endpoint);
    table.refuse_unknown();
}

void read_enable(Table& transports, const char* name, bool& out) {
    auto table = transports.table(name);
    if (!table) return;
    table->boolean("enable", out);
    table->refuse_unknown();
}

std::optional<MemoryKind> read_memory(Table& table, const char* key) {
    const auto text = table.string(key, kMemoryPatterns);
    if (!text || *text == "*") return std::nullopt;
    const auto kind = parse_memory_kind(*text);
    if (!kind) table.refuse(table.node(key), key, kMemoryPatterns);
    return kind;
}

std::optional<Priority> read_priority(Table& table) {
    const toml::node* node = table.any("priority");
    if (node == nullptr) return std::nullopt;
    std::optional<Priority> priority;
    if (const auto text = node->value_exact<std::string>()) priority = parse_priority(*text);
    if (const auto number = node->value_exact<int64_t>()) priority = to_priority(*number);
    if (!priority) table.refuse(*node, "priority", R"("high" or 0, "medium" or 1, "low" or 2)");
    return priority;
}

// Reads a table [[policy]], in which every error is refused (T-15).
Policy read_policy(Table table) {
    Policy policy;
    const std::string name_allowed = "a name, for messages and Request::policy_name";
    table.require("name", name_allowed);
    policy.name = *table.string("name", name_allowed);
    table.require("segment_type", R"("memory" or "file")");
    table.choice("segment_type", policy.segment_type, {{"memory", SegmentType::kMemory}, {"file", SegmentType::kFile}});
    if (table.any("same_machine") != nullptr) table.boolean("same_machine", policy.same_machine.emplace());
    policy.local_memory = read_memory(table, "local_memory");
    policy.remote_memory = read_memory(table, "remote_memory");
    table.uint("min_size", policy.min_size, 0, kMaxBytes);
    table.uint("max_size", policy.max_size, 0, kMaxBytes);
    if (policy.min_size > policy.max_size) table.require_together("", "min_size: an integer up to max_size");
    policy.priority = read_priority(table);
    policy.devices = table.strings("devices", "names of devices such as [\"rove0\"]; [] for all");
    for (const std::string& name : table.strings("transports", "names of transports: " + transport_names())) {
        const auto transport = parse_transport(name);
        if (!transport) table.refuse(table.node("transports"), "transports", transport_names());
        policy.transports.push_back(*transport);
    }
    policy.where_name = table.where("name");
    policy.where_devices = table.where("devices");
    table.refuse_unknown();
    return policy;
}

void read_topology(Table table, Config& config) {
    const std::string allowed = "names of devices such as [\"rove0\"]";
    config.rdma_whitelist = table.strings("rdma_whitelist", allowed);
    config.rdma_blacklist = table.strings("rdma_blacklist", allowed);
    config.topology.where = table.where("nics");
    for (Table& nic : table.tables("nics")) {
        Nic& one = config.topology.nics.emplace_back();
        const std::string name_allowed = "the name of a device";
        nic.require("name", name_allowed);
        one.name = *nic.string("name", name_allowed);
        if (const toml::node* node = nic.any("numa_node")) {
            const auto value = node->value_exact<int64_t>();
            if (!value || *value < -1 || *value > 1'023) nic.refuse(*node, "numa_node", "-1 for any, or 0..1023");
            one.numa_node = static_cast<int>(*value);
        }
        if (nic.any("bandwidth_gbps") != nullptr)
            nic.number("bandwidth_gbps", one.bandwidth_gbps.emplace(), 1e-3, kMaxGbps);
        nic.refuse_unknown();
    }
    auto matrix = table.table("priority_matrix");
    if (matrix) {
        config.priority_matrix.where = table.where("priority_matrix");
        for (const std::string& key : matrix->keys()) {
            int node = -1;
            const char* const end = key.data() + key.size();
            const std::string ranks_allowed = "up to " + std::to_string(kRanks) +
                                              " lists of devices, by rank; the key is \"cpu:N\", N a NUMA node 0..1023";
            const bool named = key.starts_with("cpu:") && std::from_chars(key.data() + 4, end, node).ptr == end;
            const toml::array* lists = matrix->any(key)->as_array();
            if (!named || node < 0 || node > 1'023 || lists == nullptr || lists->size() > kRanks)
                matrix->refuse(matrix->node(key), key, ranks_allowed);
            auto& ranks = config.priority_matrix.nodes[node];
            for (const toml::node& list : *lists) {
                auto& names = ranks.emplace_back();
                if (!list.is_array()) matrix->refuse(list, key, ranks_allowed);
                for (const toml::node& name : *list.as_array()) {
                    const auto text = name.value_exact<std::string>();
                    if (!text) matrix->refuse(name, key, ranks_allowed);
                    names.push_back(*text);
                }
            }
        }
    }
    table.refuse_unknown();
}

void read_metadata(Table& table, Config& config) {
    table.choice("metadata_type", config.metadata_type,
                 {{"p2p", MetadataType::kP2p},
                  {"etcd", MetadataType::kEtcd},
                  {"redis", MetadataType::kRedis},
                  {"http", MetadataType::kHttp}});
}

// Returns the text of a key. A missing key and "" are the same.
std::string text(Table& table, std::string_view key, const std::string& allowed) {
    const toml::node* node = table.any(key);
    if (node == nullptr || node->value_exact<std::string>() == "") return {};
    return *table.string(key, allowed);
}

void read_tls_files(Table& table, const std::string& prefix, TlsFiles& files) {
    const std::string allowed = "the name of a PEM file";
    files.ca_file = text(table, prefix + "ca_file", allowed);
    files.cert_file = text(table, prefix + "cert_file", allowed);
    files.key_file = text(table, prefix + "key_file", allowed);
    if (files.cert_file.empty() != files.key_file.empty())
        table.require_together(prefix,
                               "key_file: the certificate's key in a PEM file, if and only if there is a certificate");
}

void read_log_level(Table& table, Config& config) {
    const std::string allowed = R"("error", "warning", "info" or "debug")";
    config.log_level = table.parsed("log_level", allowed, parse_log_level).value_or(config.log_level);
}

void read_all(Table& table, Config& config) {
    const std::string servers_allowed = "addresses of the store such as \"10.0.0.1:2379\"";
    if (config.metadata_type != MetadataType::kP2p) table.require("metadata_servers", servers_allowed);
    config.metadata_servers = text(table, "metadata_servers", servers_allowed);
    table.uint("metadata_ttl_secs", config.store.ttl_s, 2, 3'600);
    read_tls_files(table, "metadata_", config.store.tls);
    config.local_segment_name = text(table, "local_segment_name", "a name");
    config.rpc_server_hostname = text(table, "rpc_server_hostname", "a host name or address");
    config.advertised_address = text(table, "advertised_address", "HOST or HOST:PORT");
    config.secret_file = text(table, "secret_file", "the name of a file");
    read_tls_files(table, "tls_", config.tls);
    // Engines trust only certificates that their own authority has signed, not the ones of any authority that the
    // system trusts.
    if (config.tls.ca_file.empty() != config.tls.cert_file.empty())
        table.require_together("tls_", "ca_file: a PEM file, with tls_cert_file and tls_key_file");
    table.uint("rpc_server_port", config.rpc_server_port, 0, 65'535);
    read_log_level(table, config);
    table.boolean("huge_pages", config.huge_pages);
    table.boolean("merge_requests", config.merge_requests);
    table.uint("max_failover_attempts", config.max_failover_attempts, 0, 100);
    for (Table& policy : table.tables("policy")) config.policies.push_back(read_policy(policy));
    table.boolean("strict", config.strict);
    if (auto topology = table.table("topology")) read_topology(*topology, config);
    if (auto transports = table.table("transports")) {
        if (auto rdma = transports->table("rdma")) read_rdma(*rdma, config);
        read_enable(*transports, "shm", config.enable_shm);
        read_enable(*transports, "tcp", config.enable_tcp);
        read_enable(*transports, "io_uring", config.enable_io_uring);
        transports->refuse_unknown();
    }
    if (auto metrics = table.table("metrics")) {
        metrics->boolean("enabled", config.metrics.enabled);
        config.metrics.http_host = metrics->string("http_host", "an address to listen on").value_or("127.0.0.1");
        metrics->uint("http_port", config.metrics.http_port, 1, 65'535);
        metrics->refuse_unknown();
    }
    table.refuse_unknown();
}

// Puts the value, parsed as TOML or else as a string, at the place that the key names.
void apply(toml::table& root, const Override& change) {
    toml::table value;
    try {
        value = toml::parse("value = " + change.value);
        if (value.size() != 1) value = toml::table{{"value", change.value}};
    } catch (const toml::parse_error&) {
        value = toml::table{{"value", change.value}};
    }
    put_path(root, change.key, std::move(*value.get("value")));
}

Status read(const std::string& name, toml::table root, Table::TextNumbers text_numbers,
            std::span<const Override> overrides, Config* out) {
    for (const Override& change : overrides) apply(root, change);
    drop_foreign_keys(name, root);
    Table table(name, "", root, text_numbers);
    Config config;
    try {
        read_metadata(table, config);
    } catch (const Refused& refused) {
        return {Code::kInvalidMetadataType, refused.message};
    }
    try {
        read_all(table, config);
    } catch (const Refused& refused) {
        return {Code::kInvalidArgument, refused.message};
    }
    *out = std::move(config);
    return {};
}

}  // namespace

Status Config::load(const std::string& file, std::span<const Override> overrides, Config* out) {
    if (file.empty()) return parse("", "configuration", overrides, out);
    if (is_json(file)) return parse(file, "JSON", overrides, out);
    std::error_code ignored;
    if (std::filesystem::is_directory(file, ignored))
        return {Code::kMalformedJson, file + ": cannot be read: it is a folder"};
    std::ifstream stream(file);
    if (!stream) return {Code::kMalformedJson, file + ": cannot be read: " + std::strerror(errno)};
    const std::string text{std::istreambuf_iterator<char>(stream), {}};
    return parse(text, file, overrides, out);
}

Status Config::parse(const std::string& text, const std::string& name, std::span<const Override> overrides,
                     Config* out) {
    constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
    const std::string content = text.starts_with(kByteOrderMark) ? text.substr(kByteOrderMark.size()) : text;
    try {
        if (!is_json(content))
            return read(name, toml::parse(content, name), Table::TextNumbers::kRefused, overrides, out);
        toml::table root;
        Status status = read_json(content, name, &root);
        if (!status.ok()) return status;
        return read(name, std::move(root), Table::TextNumbers::kAccepted, overrides, out);
    } catch (const toml::parse_error& error) {
        return {Code::kMalformedJson, config::describe(name, error)};
    }
}

}  // namespace rove::tent
