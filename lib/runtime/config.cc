// SPDX-License-Identifier: Apache-2.0
// Reads the TOML configuration. Each table is read by naming its keys; a key that was not named is unknown.
#include "runtime/config.h"

#include <toml++/toml.h>

#include <algorithm>
#include <cctype>
#include <limits>
#include <set>
#include <string_view>

#include "base/files.h"
#include "base/text.h"
#include "config/table.h"
#include "link/address.h"
#include "port/port_kind.h"
#include "port/port_name.h"
#include "port/segmentation/segmentation.h"
#include "transport/qp_table.h"

namespace rove::datapath {

namespace {

using config::Table;

constexpr const char* kAddressAllowed = "addresses such as \"10.0.0.1/24\" or \"fd00::1/64\"";
constexpr const char* kMacAllowed = "a unicast MAC address such as \"02:00:00:00:00:01\"";

// Returns true for an argument with which EAL loads a shared object ("-d FILE", also after options without a value) or
// a driver runs a command (net_failsafe's "exec(...)").
bool runs_code(std::string_view argument) {
    if (argument.find("exec(") != argument.npos) return true;
    if (!argument.starts_with('-') || argument.starts_with("--")) return false;
    const size_t option = argument.find_first_not_of("-hv");
    return option != argument.npos && argument[option] == 'd';
}

void read_runtime(Table table, Config& config) {
    table.choice("progress", config.progress, {{"shared", Progress::kShared}, {"dedicated", Progress::kDedicated}});
    constexpr const char* kLcoresAllowed =
        "CPU numbers as strings, one a worker, such as [\"1\", \"2\"]; only with progress = \"dedicated\"";
    config.lcores = table.strings("lcores", kLcoresAllowed);
    for (const std::string& cpu : config.lcores)
        if (cpu.find_first_not_of("0123456789") != std::string::npos || cpu.size() > 4)
            table.refuse(table.node("lcores"), "lcores", kLcoresAllowed);
    if (config.progress == Progress::kDedicated) table.require("lcores", kLcoresAllowed);
    if (config.lcores.empty() == (config.progress == Progress::kDedicated))
        table.refuse(table.node("lcores"), "lcores", kLcoresAllowed);
    config.workers = config.progress == Progress::kDedicated ? static_cast<uint32_t>(config.lcores.size()) : 1;
    config.eal_args = table.strings("eal", "EAL arguments such as [\"-m\", \"256\"]");
    if (std::ranges::any_of(config.eal_args, runs_code))
        table.refuse(table.node("eal"), "eal", "arguments that load and run nothing; pass others by rove-run --eal");
    table.refuse_unknown();
}

void read_dcqcn(Table table, transport::DcqcnConfig& dcqcn) {
    constexpr uint64_t kMaxRate = 125'000'000'000;  // 1 Tb/s
    table.uint("line_rate_bytes_per_s", dcqcn.line_rate_bytes_per_s, 1'000'000, kMaxRate);
    table.uint("min_rate_bytes_per_s", dcqcn.min_rate_bytes_per_s, 1'000, kMaxRate);
    table.microseconds("cnp_interval_us", dcqcn.cnp_interval_ns, 1, 1'000'000);
    table.microseconds("alpha_timer_us", dcqcn.alpha_timer_ns, 1, 1'000'000);
    table.microseconds("rate_timer_us", dcqcn.rate_timer_ns, 1, 1'000'000);
    table.uint("byte_counter", dcqcn.byte_counter, 1'000, 1'000'000'000'000);
    table.uint("additive_bytes_per_s", dcqcn.additive_bytes_per_s, 1, kMaxRate);
    table.uint("hyper_bytes_per_s", dcqcn.hyper_bytes_per_s, 1, kMaxRate);
    table.uint("fast_recovery_steps", dcqcn.fast_recovery_steps, 1, 100);
    table.require_together("", invalid(dcqcn));
    table.refuse_unknown();
}

// Gives `priority` to the service levels in `key`. Levels that had it by default get the middle one.
void read_service_levels(Table& table, const char* key, uint8_t priority, Config& config) {
    constexpr const char* kAllowed = "a list of service levels 0..7";
    const auto levels = table.integers(key, kAllowed);
    if (!levels) return;
    std::replace(config.priorities.begin(), config.priorities.end(), priority, kMediumPriority);
    for (const int64_t level : *levels) {
        if (level < 0 || level >= kServiceLevels) table.refuse(table.node(key), key, kAllowed);
        config.priorities[static_cast<size_t>(level)] = priority;
    }
}

void read_paths(Table table, transport::PathsConfig& paths) {
    using Control = transport::PathsConfig::Control;
    using Choice = transport::PathsConfig::Choice;
    table.choice("control", paths.control,
                 {{"adaptive", Control::kAdaptive},
                  {"mp-rdma", Control::kMpRdma},
                  {"dcqcn", Control::kDcqcn},
                  {"nscc", Control::kNscc},
                  {"fixed", Control::kFixed}});
    table.choice("choice", paths.choice,
                 {{"echo", Choice::kEcho}, {"reps", Choice::kReps}, {"random", Choice::kRandom}});
    if (table.any("vps") != nullptr) paths.first_vp = 0;
    table.uint("vps", paths.vps, 1, transport::kVps);
    table.uint("initial_window", paths.initial_window, 1, 4'096);
    table.uint("max_window", paths.max_window, 16, 8'192);
    table.uint("delta", paths.delta, 1, 4'096);
    table.uint("probe_permille", paths.probe_permille, 0, 1'000);
    table.boolean("infer_losses", paths.infer_losses);
    table.boolean("explore", paths.explore);
    table.microseconds("min_rto_us", paths.min_rto_ns, 10, 10'000'000);
    table.number("sync_alpha", paths.sync_alpha, 0, 100);
    table.require_together("", invalid(paths));
    table.refuse_unknown();
}

void read_reorder(Table& table, transport::ReorderConfig& reorder) {
    using Kind = transport::ReorderConfig::Kind;
    table.choice("reorder", reorder.kind, {{"eunomia", Kind::kEunomia}, {"static", Kind::kStatic}});
    table.uint("reorder_block_slots", reorder.block_slots, 16, 256);
    table.uint("reorder_cap_slots", reorder.cap_slots, 16, 16'384);
    table.uint("reorder_arena_blocks", reorder.arena_blocks, 64, 65'536);
    table.uint("reorder_static_slots", reorder.static_slots, 16, 4'096);
    table.require_together("reorder_", invalid(reorder));
}

void read_transport(Table table, Config& config) {
    using transport::Mode, transport::Ordering;
    using Recovery = transport::PathsConfig::Recovery;
    transport::Config& transport = config.transport;
    table.choice("mode", transport.mode, {{"auto", Mode::kAuto}, {"rc", Mode::kRc}, {"mp", Mode::kMp}});
    table.choice("recovery", transport.paths.recovery,
                 {{"selective-repeat", Recovery::kSelectiveRepeat}, {"go-back-n", Recovery::kGoBackN}});
    table.choice("ordering", transport.ordering,
                 {{"receiver-hold", Ordering::kReceiverHold},
                  {"sender-delay", Ordering::kSenderDelay},
                  {"optimistic", Ordering::kOptimistic}});
    table.uint("held_bytes", transport.held_bytes, 65'536, transport::HeldPool::kMaxBytes);
    table.boolean("batch_acks", transport.batch_acks);
    read_reorder(table, transport.reorder);
    if (auto paths = table.table("paths")) read_paths(*paths, transport.paths);
    table.uint("window_packets", transport.window_packets, 1, 65'536);
    table.uint("ack_interval_packets", transport.ack_interval_packets, 1, 4'096);
    table.uint("quantum_packets", transport.quantum_packets, 1, 4'096);
    table.microseconds("min_probe_us", transport.min_probe_ns, 1, 10'000'000);
    read_service_levels(table, "high_service_levels", kHighPriority, config);
    read_service_levels(table, "low_service_levels", kLowPriority, config);
    if (auto dcqcn = table.table("dcqcn")) read_dcqcn(*dcqcn, transport.dcqcn);
    table.refuse_unknown();
}

ImpairConfig read_impair(Table table) {
    ImpairConfig impair;
    PathSettings::visit(impair.device, table);
    table.uint("seed", impair.seed, 0, std::numeric_limits<int64_t>::max());
    uint32_t paths = 0;
    table.uint("paths", paths, 1, kMaxPaths);
    impair.paths.assign(paths, impair.device);
    std::vector<bool> given(paths);
    for (Table& path : table.tables("path")) {
        table.require("paths", "1.." + std::to_string(kMaxPaths) + "; the [[...path]] tables need it");
        const std::string allowed = "0.." + std::to_string(paths - 1) + ", each in one table only";
        path.require("index", allowed);
        uint32_t index = 0;
        path.uint("index", index, 0, paths - 1);
        if (given[index]) path.refuse(path.node("index"), "index", allowed);
        given[index] = true;
        PathSettings::visit(impair.paths[index], path);
        path.refuse_unknown();
    }
    table.refuse_unknown();
    return impair;
}

NeighbourConfig read_neighbour(Table table) {
    constexpr const char* kAllowed = "an address such as \"10.0.0.2\" or \"fd00::2\"";
    table.require("address", kAllowed);
    table.require("mac", kMacAllowed);
    NeighbourConfig neighbour;
    neighbour.address = *table.parsed("address", kAllowed, parse_address);
    neighbour.mac = *table.parsed("mac", kMacAllowed, parse_mac);
    table.refuse_unknown();
    return neighbour;
}

std::optional<std::string> read_gateway(Table& table, const char* key, bool ipv4) {
    const std::string allowed = ipv4 ? "an IPv4 address" : "an IPv6 address";
    const auto gateway = table.string(key, allowed);
    if (!gateway) return std::nullopt;
    const auto address = parse_address(*gateway);
    if (!address || wire::is_ipv4_mapped(*address) != ipv4) table.refuse(table.node(key), key, allowed);
    return gateway;
}

constexpr const char* kNameAllowed = "\"rove-\" and letters, digits, '-', '_' or '.', 63 in all, such as \"rove-eth0\"";
std::optional<std::string> parse_name(std::string_view name) {
    constexpr size_t kMaxBytes = 63;  // IBV_SYSFS_NAME_MAX, with the zero byte
    constexpr std::string_view kPrefix = "rove-";
    const auto allowed = [](unsigned char one) {
        return std::isalnum(one) != 0 || one == '-' || one == '_' || one == '.';
    };
    if (!name.starts_with(kPrefix) || name.size() == kPrefix.size() || name.size() > kMaxBytes) return std::nullopt;
    return std::ranges::all_of(name, allowed) ? std::optional<std::string>(name) : std::nullopt;
}

DeviceConfig read_device(Table table) {
    DeviceConfig device;
    device.name = table.parsed("name", kNameAllowed, parse_name).value_or("");
    const std::string port_allowed = port_forms() + ", an EAL vdev such as \"net_tap0,iface=...\" or a PCI address";
    table.require("port", port_allowed);
    device.port = *table.string("port", port_allowed);
    if (runs_code(device.port)) table.refuse(table.node("port"), "port", port_allowed);
    const PortKind* const kind = kind_of(device.port);
    if (kind != nullptr && kind->without_keys != nullptr)
        for (const char* key : {"addresses", "gateway_ipv4", "gateway_ipv6", "mac", "vlan", "queues", "neighbour"})
            if (const toml::node* const given = table.any(key); given != nullptr)
                table.refuse(*given, key, kind->without_keys);
    const bool has_own_addresses = kind != nullptr && kind->has_own_addresses;
    if (!has_own_addresses) table.require("addresses", kAddressAllowed);
    if (kind != nullptr && kind->addresses != nullptr) {
        const auto addresses = kind->addresses(device.port);
        if (!addresses) table.refuse(table.node("port"), "port", port_allowed);
        device.addresses = *addresses;
    } else {
        device.addresses = table.strings("addresses", kAddressAllowed);
    }
    if ((device.addresses.empty() && !has_own_addresses) || device.addresses.size() > 64)
        table.refuse(table.node("addresses"), "addresses", std::string("1 to 64 ") + kAddressAllowed);
    std::set<wire::Gid> known;
    for (const std::string& address : device.addresses) {
        const auto subnet = parse_subnet(address);
        if (!subnet || is_multicast(subnet->address) || subnet->address == wire::Gid{})
            table.refuse(table.node("addresses"), "addresses", kAddressAllowed);
        if (!known.insert(subnet->address).second)
            table.refuse(table.node("addresses"), "addresses", "each address once");
    }
    device.gateway_ipv4 = read_gateway(table, "gateway_ipv4", true);
    device.gateway_ipv6 = read_gateway(table, "gateway_ipv6", false);
    device.read_keys(table);
    device.mtu_given = table.any("mtu") != nullptr;
    if (!std::has_single_bit(device.mtu)) table.refuse(table.node("mtu"), "mtu", "256, 512, 1024, 2048 or 4096");
    device.mac = table.parsed("mac", kMacAllowed, parse_mac);
    uint16_t vlan = 0;
    table.uint("vlan", vlan, 1, 4094);
    if (vlan != 0) device.vlan = vlan;
    for (Table& neighbour : table.tables("neighbour")) device.neighbours.push_back(read_neighbour(neighbour));
    if (auto impair = table.table("impair")) device.impair = read_impair(*impair);
    table.refuse_unknown();
    return device;
}

void limit_paths(Config& config) {
    const auto in_trains = [](const DeviceConfig& device) {
        const PortKind* const kind = kind_of(device.port);
        return kind != nullptr && kind->has_segmentation;
    };
    transport::PathsConfig& paths = config.transport.paths;
    if (paths.vps == transport::kVps && std::ranges::any_of(config.devices, in_trains)) paths.vps = kTrainPaths;
}

}  // namespace

Config Config::built_in(const std::vector<std::string>& interfaces) {
    Config config;
    config.file = "built-in configuration";
    for (const std::string& name : interfaces) config.devices.emplace_back().port = "interface:" + name;
    if (interfaces.empty()) config.devices.emplace_back().port = "mesh";
    limit_paths(config);
    return config;
}

std::optional<Config> Config::load(const std::string& file, std::string* error) {
    try {
        const std::optional<std::string> content = content_of(file);
        if (!content) throw config::Refused{file + ": " + reason_of(errno)};
        const toml::table root = toml::parse(*content, file);
        Config config;
        config.file = file;
        Table table(file, "", root);
        if (auto runtime = table.table("runtime")) read_runtime(*runtime, config);
        if (auto transport = table.table("transport")) read_transport(*transport, config);
        table.require("device", "one or more tables [[device]]");
        std::set<std::string> ports, names;
        for (Table& device : table.tables("device")) {
            config.devices.push_back(read_device(device));
            const std::string& port = config.devices.back().port;
            if (!ports.emplace(without_options(port)).second)
                device.refuse(device.node("port"), "port", "a port that no other device has");
            const std::string& name = config.devices.back().name;
            if (!name.empty() && !names.insert(name).second)
                device.refuse(device.node("name"), "name", "a name that no other device has");
        }
        if (config.devices.size() > transport::QueuePairTable::kMaxPorts)
            table.refuse(table.node("device"), "device",
                         "1 to " + std::to_string(transport::QueuePairTable::kMaxPorts) + " tables");
        table.refuse_unknown();
        limit_paths(config);
        return config;
    } catch (const config::Refused& refused) {
        *error = refused.message;
    } catch (const toml::parse_error& bad) {
        *error = config::describe(file, bad);
    }
    return std::nullopt;
}

}  // namespace rove::datapath
