// SPDX-License-Identifier: Apache-2.0
// Parses the command line of rove-testpmd.
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
// Limit on the bytes of messages in flight for which an end keeps memory.
inline constexpr uint64_t kMaxMemory = 1u << 30;

// The parameters on which both ends must agree.
struct Plan {
    Mode mode = Mode::kTarget;
    uint32_t size = 65536;  // bytes of a message
    uint32_t qps = 1;       // in spray mode: threads
    uint32_t depth = 16;    // requests in flight on each
    uint32_t mtu = 4096;
    uint8_t service_level = 0;
    bool verify = false;
};

// Returns null for an acceptable plan, or else the reason why it is not.
const char* invalid(const Plan& plan);

struct Options {
    std::string eal;  // the arguments before "--"
    std::string config, peer, json, cmdline_file, pcap;
    uint16_t tcp_port = 18600;
    int gid_index = 1;
    Plan plan;
    uint8_t timeout = 14, retries = 7;  // attributes of new QPs (IBTA encodings)
    uint32_t batch = 1;
    double duration_s = 0;  // 0: until stopped
    uint64_t count = 0;     // 0: without a limit
    double rate_gbps = 0;   // 0: as fast as possible
    uint32_t stats_period_s = 0;
    // The options of spray mode.
    std::string tent;                                            // the engine's configuration file
    std::vector<std::pair<std::string, std::string>> tent_keys;  // keys of that file which options replace
    std::array<double, 3> priorities = {1, 0, 0};                // shares of HIGH, MEDIUM and LOW
    double read_share = 0;
    bool auto_start = false, interactive = false;
};

// Ends the program with status 2 and one line if the arguments are wrong, and with status 0 for --help.
Options parse(int argc, char** argv);

}  // namespace rove::testpmd
