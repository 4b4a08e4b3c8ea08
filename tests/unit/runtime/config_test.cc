// SPDX-License-Identifier: Apache-2.0
// Tests the configuration: all keys are read, and each kind of mistake is refused.
#include "runtime/config.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "link/address.h"
#include "port/segmentation/segmentation.h"
#include "support/documented_ranges.h"

namespace rove::datapath {
namespace {

constexpr const char* kDevice = "[[device]]\nport = \"net_null0\"\naddresses = [\"10.0.0.1/24\", \"fd00::1/64\"]\n";

const std::string kPaths = std::string(kDevice) + "[device.impair]\npaths = 2\n[[device.impair.path]]\nindex = 1\n";

class ConfigTest : public testing::Test {
  protected:
    std::optional<Config> load(const std::string& text) {
        const auto path = std::filesystem::path(testing::TempDir()) / "rove_config_test.toml";
        std::ofstream(path) << text;
        file_ = path.string();
        error_.clear();
        return Config::load(file_, &error_);
    }
    // Expects that `text` is refused at `line` for `key`, and that the message has `part`.
    void refused(const std::string& text, int line, const std::string& key, const std::string& part) {
        EXPECT_FALSE(load(text)) << text;
        EXPECT_EQ(error_.rfind(file_ + ":" + std::to_string(line) + ": key '" + key + "': got ", 0), 0u) << error_;
        EXPECT_NE(error_.find(", allowed "), std::string::npos) << error_;
        EXPECT_NE(error_.find(part), std::string::npos) << error_;
    }
    std::string file_, error_;
};

TEST_F(ConfigTest, ReadsEveryKey) {
    const auto config = load(R"([runtime]
progress = "dedicated"
lcores = ["1", "3"]
eal = ["-m", "256"]
[transport]
window_packets = 128
ack_interval_packets = 16
quantum_packets = 8
min_probe_us = 500
high_service_levels = [6, 1]
low_service_levels = [0]
mode = "mp"
ordering = "sender-delay"
recovery = "go-back-n"
reorder = "static"
reorder_block_slots = 32
reorder_cap_slots = 512
reorder_arena_blocks = 1024
reorder_static_slots = 128
batch_acks = false
[transport.paths]
initial_window = 16
max_window = 128
delta = 24
probe_permille = 20
infer_losses = false
explore = false
control = "dcqcn"
choice = "reps"
vps = 4
min_rto_us = 300
sync_alpha = 0.5
[transport.dcqcn]
cnp_interval_us = 40
byte_counter = 5000000
[[device]]
port = "net_memif0,role=server"
addresses = ["10.0.0.1/24", "fd00::1/64"]
gateway_ipv4 = "10.0.0.254"
gateway_ipv6 = "fd00::fe"
link_rate_mbps = 2500
numa_node = 1
queues = 2
mtu = 1024
mac = "02:00:00:00:00:01"
vlan = 7
[[device.neighbour]]
address = "10.0.0.2"
mac = "02:00:00:00:00:02"
[device.impair]
loss = 0.01
duplicate = 0.02
corrupt = 0.03
reorder = 1
mark = 0.04
delay_us = 200
rate_mbps = 10000
queue_packets = 100
ecn_threshold_packets = 50
down = false
seed = 99
paths = 3
[[device.impair.path]]
index = 2
loss = 0
down = true
[[device.impair.path]]
index = 0
delay_us = 7
)");
    ASSERT_TRUE(config) << error_;
    EXPECT_EQ(config->progress, Progress::kDedicated);
    EXPECT_EQ(config->workers, 2u);
    EXPECT_EQ(config->lcores, (std::vector<std::string>{"1", "3"}));
    EXPECT_EQ(config->eal_args, (std::vector<std::string>{"-m", "256"}));
    EXPECT_EQ(config->transport.window_packets, 128u);
    EXPECT_EQ(config->transport.ack_interval_packets, 16u);
    EXPECT_EQ(config->transport.quantum_packets, 8u);
    EXPECT_EQ(config->transport.min_probe_ns, 500'000u);
    EXPECT_EQ(config->transport.mode, transport::Mode::kMp);
    const transport::ReorderConfig& reorder = config->transport.reorder;
    EXPECT_EQ(reorder.kind, transport::ReorderConfig::Kind::kStatic);
    EXPECT_EQ(reorder.block_slots, 32u);
    EXPECT_EQ(reorder.cap_slots, 512u);
    EXPECT_EQ(reorder.arena_blocks, 1024u);
    EXPECT_EQ(reorder.static_slots, 128u);
    EXPECT_FALSE(config->transport.batch_acks);
    const transport::PathsConfig& paths = config->transport.paths;
    EXPECT_EQ(paths.recovery, transport::PathsConfig::Recovery::kGoBackN);
    EXPECT_EQ(paths.initial_window, 16u);
    EXPECT_EQ(paths.max_window, 128u);
    EXPECT_EQ(paths.delta, 24u);
    EXPECT_EQ(paths.probe_permille, 20u);
    EXPECT_FALSE(paths.infer_losses);
    EXPECT_FALSE(paths.explore);
    EXPECT_EQ(paths.control, transport::PathsConfig::Control::kDcqcn);
    EXPECT_EQ(paths.choice, transport::PathsConfig::Choice::kReps);
    EXPECT_EQ(paths.vps, 4u);
    EXPECT_EQ(paths.first_vp, 0u);
    EXPECT_EQ(paths.min_rto_ns, 300'000u);
    EXPECT_EQ(paths.sync_alpha, 0.5);
    EXPECT_EQ(config->transport.ordering, transport::Ordering::kSenderDelay);
    EXPECT_EQ(config->priorities,
              (decltype(config->priorities){kLowPriority, kHighPriority, kMediumPriority, kMediumPriority,
                                            kMediumPriority, kMediumPriority, kHighPriority, kMediumPriority}));
    EXPECT_EQ(config->transport.dcqcn.cnp_interval_ns, 40'000u);
    EXPECT_EQ(config->transport.dcqcn.byte_counter, 5'000'000u);
    ASSERT_EQ(config->devices.size(), 1u);
    const DeviceConfig& device = config->devices[0];
    EXPECT_EQ(device.port, "net_memif0,role=server");
    EXPECT_EQ(device.addresses.size(), 2u);
    EXPECT_EQ(device.queues, 2u);
    EXPECT_EQ(device.link_rate_mbps, 2500u);
    EXPECT_EQ(device.numa_node, 1);
    EXPECT_EQ(device.gateway_ipv4, "10.0.0.254");
    EXPECT_EQ(device.gateway_ipv6, "fd00::fe");
    EXPECT_EQ(device.mtu, 1024u);
    EXPECT_TRUE(device.mtu_given);
    EXPECT_EQ(device.mac, parse_mac("02:00:00:00:00:01"));
    EXPECT_EQ(device.vlan, 7);
    ASSERT_EQ(device.neighbours.size(), 1u);
    EXPECT_EQ(device.neighbours[0].address, *parse_address("10.0.0.2"));
    EXPECT_EQ(device.neighbours[0].mac, *parse_mac("02:00:00:00:00:02"));
    PathSettings all{.loss = 0.01, .duplicate = 0.02, .corrupt = 0.03, .reorder = 1, .mark = 0.04};
    all.delay_us = 200, all.rate_mbps = 10'000, all.queue_packets = 100, all.ecn_threshold_packets = 50;
    EXPECT_EQ(device.impair.device, all);
    EXPECT_EQ(device.impair.seed, 99u);
    ASSERT_EQ(device.impair.paths.size(), 3u);
    EXPECT_EQ(device.impair.paths[1], all);
    PathSettings path = all;
    path.delay_us = 7;
    EXPECT_EQ(device.impair.paths[0], path);
    path = all;
    path.loss = 0, path.down = true;
    EXPECT_EQ(device.impair.paths[2], path);
}

TEST_F(ConfigTest, DefaultsAreSharedAndOneWorker) {
    const auto config = load(kDevice);
    ASSERT_TRUE(config) << error_;
    EXPECT_EQ(config->progress, Progress::kShared);
    EXPECT_EQ(config->workers, 1u);
    EXPECT_EQ(config->devices[0].mtu, 4096u);
    EXPECT_FALSE(config->devices[0].mtu_given);
    EXPECT_FALSE(config->devices[0].vlan);
    EXPECT_TRUE(config->devices[0].impair.none());
}

TEST_F(ConfigTest, RefusesUnknownKeys) {
    refused(std::string("speed = 1\n") + kDevice, 1, "speed", "unknown key, allowed runtime, transport, device");
    refused(std::string("[runtime]\nprogres = \"shared\"\n") + kDevice, 2, "runtime.progres", "unknown key");
    refused(std::string(kDevice) + "mut = 1024\n", 4, "device[0].mut", "mtu");
    refused(std::string(kDevice) + "[device.impair]\nlost = 0.1\n", 5, "device[0].impair.lost", "loss");
    refused(kPaths + "delay = 5\n", 8, "device[0].impair.path[0].delay", "delay_us");
}

TEST_F(ConfigTest, DevicesMayHaveNames) {
    EXPECT_EQ(load(kDevice)->devices[0].name, "");
    EXPECT_EQ(load(std::string(kDevice) + "name = \"rove-eth0.5\"\n")->devices[0].name, "rove-eth0.5");
    for (const char* name : {"rove", "rove-", "rove0", "eth0", "rove-a/b", "rove-a b"})
        refused(std::string(kDevice) + "name = \"" + name + "\"\n", 4, "device[0].name", "rove-eth0");
    refused(std::string(kDevice) + "name = \"rove-" + std::string(59, 'x') + "\"\n", 4, "device[0].name", "63 in all");
    const std::string named = "name = \"rove-a\"\n";
    refused("[[device]]\nport = \"mesh\"\n" + named + "[[device]]\nport = \"udp:127.0.0.1\"\n" + named, 6,
            "device[1].name", "a name that no other device has");
}

TEST_F(ConfigTest, RefusesWrongTypes) {
    refused(std::string(kDevice) + "mtu = \"1024\"\n", 4, "device[0].mtu", "an integer");
    refused(std::string(kDevice) + "vlan = 1.5\n", 4, "device[0].vlan", "got 1.5");
    refused("[[device]]\nport = 7\n", 2, "device[0].port", "got 7");
    refused("[[device]]\nport = \"x\"\naddresses = \"10.0.0.1\"\n", 3, "device[0].addresses", "addresses such as");
    refused("[[device]]\nport = \"x\"\naddresses = [1]\n", 3, "device[0].addresses", "got 1");
    refused(std::string("runtime = 3\n") + kDevice, 1, "runtime", "a table");
    refused("[device]\nport = \"x\"\n", 1, "device", "[[device]]");
    refused(std::string(kDevice) + "[device.impair]\nloss = \"much\"\n", 5, "device[0].impair.loss", "a number 0..1");
    refused(std::string(kDevice) + "[device.impair]\ndown = 1\n", 5, "device[0].impair.down", "true or false");
    refused(std::string(kDevice) + "impair.path = 1\n", 4, "device[0].impair.path", "[[device[0].impair.path]]");
}

TEST_F(ConfigTest, RefusesValuesOutOfRange) {
    refused(std::string(kDevice) + "mtu = 1500\n", 4, "device[0].mtu", "256, 512, 1024, 2048 or 4096");
    refused(std::string(kDevice) + "mtu = 128\n", 4, "device[0].mtu", "256..4096");
    refused(std::string(kDevice) + "vlan = 4095\n", 4, "device[0].vlan", "1..4094");
    refused(std::string(kDevice) + "mac = \"01:00:5e:00:00:01\"\n", 4, "device[0].mac", "unicast");
    refused(std::string(kDevice) + "gateway_ipv4 = \"fd00::1\"\n", 4, "device[0].gateway_ipv4", "an IPv4 address");
    refused(std::string(kDevice) + "[device.impair]\nloss = 1.5\n", 5, "device[0].impair.loss", "0..1");
    refused(std::string(kDevice) + "[device.impair]\nseed = -1\n", 5, "device[0].impair.seed", "got -1");
    refused(std::string(kDevice) + "impair.mark = 2\n", 4, "device[0].impair.mark", "0..1");
    refused(std::string(kDevice) + "impair.delay_us = -1\n", 4, "device[0].impair.delay_us", "0..1000000");
    refused(std::string(kDevice) + "impair.rate_mbps = 1000001\n", 4, "device[0].impair.rate_mbps", "0..1000000");
    refused(std::string(kDevice) + "impair.queue_packets = 0\n", 4, "device[0].impair.queue_packets", "1..2048");
    refused(std::string(kDevice) + "impair.ecn_threshold_packets = 2049\n", 4, "device[0].impair.ecn_threshold_packets",
            "0..2048");
    refused(std::string(kDevice) + "impair.paths = 33\n", 4, "device[0].impair.paths", "1..32");
    refused(kPaths + "[[device.impair.path]]\nindex = 2\n", 9, "device[0].impair.path[1].index", "0..1");
    refused(kPaths + "[[device.impair.path]]\nindex = 1\n", 9, "device[0].impair.path[1].index", "one table only");
    refused("[[device]]\nport = \"x\"\naddresses = [\"10.0.0.1/33\"]\n", 3, "device[0].addresses", "10.0.0.1/33");
    refused("[[device]]\nport = \"x\"\naddresses = []\n", 3, "device[0].addresses", "1 to 64");
    refused("[[device]]\nport = \"x\"\naddresses = [\"fd00::1/64\", \"fd00:0::1\"]\n", 3, "device[0].addresses",
            "each address once");
    for (const char* group : {"224.0.0.1/4", "ff02::1/64"})
        refused(std::string("[[device]]\nport = \"x\"\naddresses = [\"") + group + "\"]\n", 3, "device[0].addresses",
                group);
    refused(std::string("[transport]\nhigh_service_levels = [8]\n") + kDevice, 2, "transport.high_service_levels",
            "0..7");
    refused(std::string(kDevice) + "[[device]]\nport = \"net_null0,size=64\"\naddresses = [\"10.0.0.9\"]\n", 5,
            "device[1].port", "no other device");
    const std::string dcqcn = std::string("[transport.dcqcn]\nline_rate_bytes_per_s = 1_000_000\n");
    refused(dcqcn + kDevice, 1, "transport.dcqcn.min_rate_bytes_per_s", "at most line_rate_bytes_per_s");
    refused(dcqcn + "min_rate_bytes_per_s = 1_000\nadditive_bytes_per_s = 1_000_001\n" + kDevice, 4,
            "transport.dcqcn.additive_bytes_per_s", "at most line_rate_bytes_per_s");
    refused(std::string("[transport]\nwindow_packets = 0\n") + kDevice, 2, "transport.window_packets", "1..65536");
    refused(std::string("[runtime]\nprogress = \"both\"\n") + kDevice, 2, "runtime.progress",
            "\"shared\" or \"dedicated\"");
    refused(std::string("[runtime]\nlcores = [\"1\"]\n") + kDevice, 2, "runtime.lcores", "only with progress");
    refused(std::string("[runtime]\nprogress = \"dedicated\"\nlcores = [\"one\"]\n") + kDevice, 3, "runtime.lcores",
            "CPU");
}

TEST_F(ConfigTest, RefusesWhatIsMissing) {
    refused("[runtime]\nprogress = \"dedicated\"\n[[device]]\nport = \"x\"\naddresses = [\"10.0.0.1\"]\n", 1,
            "runtime.lcores", "got nothing");
    refused("[[device]]\naddresses = [\"10.0.0.1\"]\n", 1, "device[0].port", "got nothing");
    refused("[[device]]\nport = \"x\"\n", 1, "device[0].addresses", "got nothing");
    refused(kPaths + "[[device.impair.path]]\nloss = 1\n", 8, "device[0].impair.path[1].index", "got nothing");
    refused(std::string(kDevice) + "[[device.impair.path]]\nindex = 0\n", 4, "device[0].impair.paths", "got nothing");
    EXPECT_FALSE(load("# empty\n"));
    EXPECT_NE(error_.find("key 'device'"), std::string::npos) << error_;
}

TEST_F(ConfigTest, OfAnInterfaceTheKernelSaysWhatItIs) {
    const std::string interface = "[[device]]\nport = \"interface:eth0\"\n";
    const auto config = load(interface);
    ASSERT_TRUE(config) << error_;
    EXPECT_TRUE(config->devices[0].addresses.empty());
    for (const char* given : {"addresses = [\"10.0.0.1/24\"]", "vlan = 5", "mac = \"02:00:00:00:00:01\"",
                              "gateway_ipv4 = \"10.0.0.9\"", "queues = 2"}) {
        const std::string key(given, std::string_view(given).find(' '));
        refused(interface + given + "\n", 3, "device[0]." + key, "it is the kernel's");
    }
    const Config built_in = Config::built_in({"eth0", "eth1"});
    ASSERT_EQ(built_in.devices.size(), 2u);
    EXPECT_EQ(built_in.devices[1].port, "interface:eth1");
    EXPECT_EQ(Config::built_in({}).devices[0].port, "mesh");
}

TEST_F(ConfigTest, AUdpPortsAddressIsInItsName) {
    const auto config = load("[[device]]\nport = \"udp:fd00::7\"\nmtu = 1024\n");
    ASSERT_TRUE(config) << error_;
    EXPECT_EQ(config->devices[0].addresses, std::vector<std::string>{"fd00::7/0"});
    EXPECT_TRUE(config->devices[0].mtu_given);
    EXPECT_EQ(config->transport.paths.vps, kTrainPaths);
    EXPECT_EQ(Config::built_in({"eth0"}).transport.paths.vps, kTrainPaths);
    EXPECT_GT(Config::built_in({}).transport.paths.vps, kTrainPaths);
    EXPECT_TRUE(load("[[device]]\nport = \"udp\"\n")) << error_;  // uses the addresses of the routes, if there are any
    EXPECT_EQ(load(kDevice)->transport.paths.vps, transport::kVps);
    for (const char* name : {"udp:", "udp:eth0", "udp:10.0.0.1/24", "udp:224.0.0.1"})
        refused("[[device]]\nport = \"" + std::string(name) + "\"\n", 2, "device[0].port", "\"udp:ADDRESS\"");
    const std::string udp = "[[device]]\nport = \"udp:10.0.0.1\"\n";
    for (const char* line : {"addresses = [\"10.0.0.1/24\"]", "vlan = 5", "queues = 1", "mac = \"02:00:00:00:00:01\"",
                             "gateway_ipv4 = \"10.0.0.9\""})
        refused(udp + line, 3, "device[0]." + std::string(line).substr(0, std::string(line).find(' ')), "none with");
}

TEST_F(ConfigTest, NamesFileAndLineOfBadToml) {
    EXPECT_FALSE(load("[runtime]\nprogress = \n"));
    EXPECT_EQ(error_.rfind(file_ + ":2: ", 0), 0u) << error_;
    EXPECT_FALSE(Config::load("/nonexistent/rove.toml", &error_));
    EXPECT_NE(error_.find("/nonexistent/rove.toml"), std::string::npos) << error_;
}

TEST_F(ConfigTest, TheExamplesGiveTheRangesThatAreChecked) {
    size_t keys = 0;
    for (const char* example : {"pci-nic.toml", "impaired-a.toml"})
        for (const DocumentedRange& range : documented_ranges(std::string(ROVE_CONFIG_DIR "/") + example)) {
            const bool of_device = range.table.starts_with("device");
            const std::string table = range.table == "device" ? "" : "[" + range.table + "]\n";
            const std::string text = table + range.key + " = " + range.above() + "\n";
            EXPECT_FALSE(load(of_device ? kDevice + text : text + kDevice)) << text;
            EXPECT_NE(error_.find(range.key + "': got "), std::string::npos) << error_;
            EXPECT_NE(error_.find(" " + range.text()), std::string::npos) << error_;
            ++keys;
        }
    EXPECT_GE(keys, 36u);
}

TEST_F(ConfigTest, TheFilesThatComeWithRoveAreAccepted) {
    size_t files = 0;
    for (const auto& entry : std::filesystem::directory_iterator(ROVE_CONFIG_DIR)) {
        if (entry.path().extension() != ".toml") continue;
        ++files;
        EXPECT_TRUE(Config::load(entry.path(), &error_)) << error_;
    }
    EXPECT_GE(files, 2u);
}

}  // namespace
}  // namespace rove::datapath
