// SPDX-License-Identifier: Apache-2.0
// What the command line of rove-testpmd says.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace rove::testpmd {

enum class Mode : uint8_t { kTarget, kWrite, kRead, kSend, kAtomic, kSpray };
const char* to_string(Mode mode);

inline constexpr uint32_t kMaxQps = 1024, kMaxThreads = 64, kMaxDepth = 1024;
inline constexpr uint64_t kMaxMemory = 1u << 30;  // bytes of messages in flight that an end keeps room for

// What both ends must agree on.
struct Plan {
    Mode mode = Mode::kTarget;
    uint32_t size = 65536;  // bytes a message
    uint32_t qps = 1;       // spray: threads
    uint32_t depth = 16;    // requests of each under way
    uint32_t mtu = 4096;
    uint8_t service_level = 0;
    bool verify = false;
};

// Null if acceptable; else what is not.
const char* invalid(const Plan& plan);

struct Options {
    std::string eal;  // what stands before "--"
    std::string config, peer, json, cmdline_file, pcap;
    uint16_t tcp_port = 18600;
    int gid_index = 1;
    Plan plan;
    uint8_t timeout = 14, retries = 7;  // of new QPs, as verbs has them
    uint32_t batch = 1;
    double duration_s = 0;  // 0: until stopped
    uint64_t count = 0;     // 0: any
    double rate_gbps = 0;   // 0: as fast as it goes
    uint32_t stats_period_s = 0;
    // Of spray.
    std::string tent;                                            // the engine's file
    std::vector<std::pair<std::string, std::string>> tent_keys;  // that options replace
    std::array<double, 3> priorities = {1, 0, 0};                // shares of HIGH, MEDIUM and LOW
    double read_share = 0;
    bool auto_start = false, interactive = false;
};

// Ends the program with one line and status 2 if the arguments are wrong; with status 0 for --help.
Options parse(int argc, char** argv);

}  // namespace rove::testpmd
