// SPDX-License-Identifier: Apache-2.0
#include "options.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <sstream>

#include "runtime/config_file.h"

namespace rove::testpmd {

namespace {

namespace fs = std::filesystem;

constexpr int kBadUsage = 2;

constexpr const char* kAbout =
    "Drives rove between two processes: one is the target, the other writes to it, reads from it, ... through verbs,\n"
    "or sprays over all ports with the TENT engine.\n"
    "\n"
    "  rove-testpmd -- --config config/loopback-a.toml\n"
    "  rove-testpmd -- --config config/loopback-b.toml --mode write --peer 127.0.0.1 --duration 5\n"
    "\n"
    "Arguments before -- go to DPDK's EAL. QPs are spread over all ports of the configuration in turn.";
constexpr std::array<const char*, 3> kPriorities = {"high", "medium", "low"};

[[noreturn]] void refuse(const std::string& why) {
    std::fprintf(stderr, "rove-testpmd: %s\n", why.c_str());
    std::exit(kBadUsage);
}

void find_config(std::string& config) {
    std::error_code ignored;
    if (!config.empty()) {
        if (!fs::is_regular_file(config, ignored)) refuse("--config: no file " + config);
        return;
    }
    std::string error;
    const auto found = datapath::find_config_file("rove-testpmd", &error);
    if (!found) refuse(error);
    config = *found;
    if (!config.empty()) return;
    refuse("no --config, and neither ./rove.toml nor /etc/rove/rove.toml exists");
}

// Parses weights such as "high:20,low:80"; classes that are not named have weight 0.
std::string parse_mix(const std::string& text, std::array<double, 3>& shares) {
    shares = {};
    std::array<bool, 3> given{};
    std::istringstream parts(text + ",");  // so that an empty part after the last comma is found
    double sum = 0;
    for (std::string part; std::getline(parts, part, ',');) {
        const auto* found =
            std::find(kPriorities.begin(), kPriorities.end(), std::string_view(part).substr(0, part.find(':')));
        const char* number = part.c_str() + std::min(part.find(':'), part.size() - 1) + 1;
        char* end = nullptr;
        const double share = std::strtod(number, &end);
        if (found == kPriorities.end() || end == number || *end != '\0' || !(share >= 0 && share <= 1e6))
            return "'" + part + "': high, medium or low, a colon and a share of 0 or more are expected";
        const auto priority = static_cast<size_t>(found - kPriorities.begin());
        if (given[priority]) return "'" + part + "': " + *found + " has a share already";
        given[priority] = true;
        sum += shares[priority] = share;
    }
    return sum > 0 ? "" : "'" + text + "': at least one share is more than 0";
}

}  // namespace

const char* to_string(Mode mode) {
    static constexpr const char* kNames[] = {"target", "write", "read", "send", "atomic", "spray"};
    return kNames[static_cast<size_t>(mode)];
}

const char* invalid(const Plan& plan) {
    if (plan.mode < Mode::kWrite || plan.mode > Mode::kSpray) return "mode: write, read, send, atomic or spray";
    if (plan.size < 1 || plan.size > kMaxMemory) return "size: 1 to 1073741824 bytes";
    if (plan.mode == Mode::kAtomic && plan.size != 8) return "size: an atomic has 8 bytes";
    if (plan.mode == Mode::kSpray && (plan.qps < 1 || plan.qps > kMaxThreads)) return "threads: 1 to 64";
    if (plan.qps < 1 || plan.qps > kMaxQps) return "qps: 1 to 1024";
    if (plan.depth < 1 || plan.depth > kMaxDepth) return "depth: 1 to 1024";
    // Memory is needed twice: verification reads copies back, and SENDs have a second set of receives.
    if (2 * uint64_t{plan.size} * plan.qps * plan.depth > kMaxMemory)
        return "size x depth x qps or threads: at most 512 MiB";
    if (plan.mtu != 256 && plan.mtu != 512 && plan.mtu != 1024 && plan.mtu != 2048 && plan.mtu != 4096)
        return "mtu: 256, 512, 1024, 2048 or 4096";
    if (plan.service_level > 7) return "priority: service level 0 to 7";
    return nullptr;
}

Options parse(int argc, char** argv) {
    Options o;
    int first = 1;
    for (; first < argc && std::string(argv[first]) != "--"; ++first) {
        if (const std::string word = argv[first]; word == "--help" || word == "-h") break;
        o.eal += (o.eal.empty() ? "" : " ") + std::string(argv[first]);
    }
    if (first == argc && first > 1) refuse("no -- between EAL's arguments and rove-testpmd's own");
    if (first < argc && std::string(argv[first]) == "--") ++first;

    CLI::App app{kAbout, "rove-testpmd EAL-ARGUMENTS --"};
    Plan& p = o.plan;
    const CLI::Validator number(  // CLI::Range lets it through
        [](std::string& text) { return std::isnan(std::strtod(text.c_str(), nullptr)) ? "not a number" : ""; }, "");
    const std::map<std::string, Mode> modes{{"target", Mode::kTarget}, {"write", Mode::kWrite},
                                            {"read", Mode::kRead},     {"send", Mode::kSend},
                                            {"atomic", Mode::kAtomic}, {"spray", Mode::kSpray}};
    app.add_option("--config", o.config,
                   "configuration of ports and transport; default ./rove.toml, then /etc/rove/rove.toml")
        ->type_name("FILE");
    app.add_option_function<std::string>(
           "--mode", [&](const std::string& name) { p.mode = modes.at(name); },
           "mode: wait for peers (target), or drive one through verbs (write, read,\n"
           "send, atomic: fetch-and-add) or through the engine (spray); default target")
        ->check(CLI::IsMember({"target", "write", "read", "send", "atomic", "spray"}))
        ->type_name("MODE");
    app.add_option("--peer", o.peer, "address of the target, for the TCP connection that exchanges QP numbers")
        ->type_name("HOST");
    app.add_option("--tcp-port", o.tcp_port, "port of that connection; default 18600")->check(CLI::Range(1, 65535));
    auto* gid_index = app.add_option("--gid-index", o.gid_index,
                                     "GID index of the ports' addresses; default 1: the first configured one")
                          ->check(CLI::Range(0, 255));
    auto* size = app.add_option("--size", p.size,
                                "bytes of a message, or of a block in spray mode; default 65536, for atomics 8")
                     ->type_name("BYTES");
    auto* qps = app.add_option("--qps", p.qps, "queue pairs, 1 to 1024; default 1");
    auto* depth =
        app.add_option("--depth", p.depth, "requests in flight on each QP, or of each thread, 1 to 1024; default 16");
    auto* batch =
        app.add_option("--batch", o.batch, "requests posted together, as one list or batch, 1 to --depth; default 1");
    auto* mtu = app.add_option("--mtu", p.mtu,
                               "path MTU of new QPs: 256, 512, ... 4096; default: the largest that the ports allow");
    auto* duration = app.add_option("--duration", o.duration_s, "seconds of a run; default: until stop or Ctrl-C")
                         ->check(CLI::Range(0.001, 1e6))
                         ->check(number)
                         ->type_name("SECONDS");
    auto* count = app.add_option("--count", o.count, "requests of a run, which then ends even before --duration")
                      ->check(CLI::Range(int64_t{1}, INT64_MAX));
    auto* rate = app.add_option("--rate", o.rate_gbps,
                                "rate to offer in Gb/s. Latency then counts from the time when a request was due")
                     ->check(CLI::Range(1e-6, 1e4))
                     ->check(number)
                     ->type_name("GBPS");
    auto* service_level = app.add_option_function<unsigned>(
        "--priority", [&](unsigned level) { p.service_level = static_cast<uint8_t>(level); },
        "service level; by default 5 to 7 are served first, 1 last");
    service_level->check(CLI::Range(0, 7));
    auto* verify =
        app.add_flag("--verify", p.verify,
                     "compare every byte of every message. WRITEs are read back: the latency includes both,\n"
                     "in spray mode only the WRITE");
    app.add_option("--stats-period", o.stats_period_s,
                   "seconds between two tables of ports, their paths and priorities")
        ->check(CLI::Range(1, 86400))
        ->type_name("SECONDS");
    const std::string spray = "spray";
    auto* tent = app.add_option("--tent", o.tent,
                                "configuration of the engine, for both ends; config/tent/engine.toml has all keys")
                     ->check(CLI::ExistingFile)
                     ->type_name("FILE")
                     ->group(spray);
    std::vector<CLI::Option*> of_spray;
    of_spray.push_back(
        app.add_option("--threads", p.qps, "threads that submit, each with --depth requests, 1 to 64; default 1"));
    uint32_t slice_size = 0;
    auto* slice = app.add_option("--slice-size", slice_size, "smallest slice of a block in bytes; default 65536");
    of_spray.push_back(slice->check(CLI::Range(4096, 1 << 30))->type_name("BYTES"));
    std::string mix;
    auto* priorities =
        app.add_option("--priority-mix", mix, "shares of requests by priority, like high:20,low:80; default high:1");
    of_spray.push_back(priorities->type_name("MIX"));
    of_spray.push_back(
        app.add_option("--read-share", o.read_share, "share of READs among the requests, 0 to 1; default 0")
            ->check(CLI::Range(0.0, 1.0))
            ->check(number)
            ->type_name("SHARE"));
    for (CLI::Option* option : of_spray) option->group(spray);
    app.add_option("--json", o.json, "write a line of JSON for each run to this file")->type_name("FILE");
    app.add_option("--pcap", o.pcap, "capture all frames of all ports as pcapng (tools/wireshark/rove.lua decodes it)")
        ->type_name("FILE");
    app.add_option("--cmdline-file", o.cmdline_file, "execute the commands of this file first")->type_name("FILE");
    app.add_flag("-i,--interactive", o.interactive,
                 "show a prompt; try help, ? and the tabulator. The command start begins a run");
    auto* auto_start =
        app.add_flag("--auto-start", o.auto_start, "begin a run at once even with --interactive or --cmdline-file");
    const CLI::Validator filled([](std::string& text) { return text.empty() ? "is empty" : ""; }, "");
    for (CLI::Option* option : app.get_options()) option->check(filled);
    try {
        std::vector<std::string> words(std::reverse_iterator(argv + argc), std::reverse_iterator(argv + first));
        for (const std::string& word : words)  // CLI11 takes the next word as the value of "--option="
            if (word.starts_with("--") && word.find('=') == word.size() - 1)
                refuse(word.substr(0, word.size() - 1) + ": is empty");
        app.parse(words);
    } catch (const CLI::CallForHelp& help) {
        std::exit(app.exit(help));
    } catch (const CLI::ParseError& error) {
        refuse(error.what());
    }
    if (p.mode == Mode::kAtomic && size->count() == 0) p.size = 8;
    std::vector<CLI::Option*> foreign = of_spray;
    if (p.mode == Mode::kSpray)
        foreign = {qps, service_level};
    else if (p.mode == Mode::kTarget)  // the initiator decides
        for (CLI::Option* option :
             {size, qps, depth, batch, mtu, duration, count, rate, service_level, verify, auto_start})
            foreign.push_back(option);
    else
        foreign.push_back(tent);
    for (const CLI::Option* option : foreign)
        if (option->count() != 0) refuse(option->get_name() + ": not of --mode " + to_string(p.mode));
    if (priorities->count() != 0)
        if (const std::string wrong = parse_mix(mix, o.priorities); !wrong.empty()) refuse("--priority-mix: " + wrong);
    const auto replace = [&](const CLI::Option* option, const char* key, auto value) {
        if (option->count() != 0) o.tent_keys.emplace_back(key, std::to_string(value));
    };
    replace(gid_index, "transports/rdma/device/gid_index", o.gid_index);
    replace(mtu, "transports/rdma/endpoint/path_mtu", p.mtu);
    replace(slice, "transports/rdma/workers/block_size", slice_size);
    if (p.mode != Mode::kTarget) {
        if (o.peer.empty()) refuse(std::string("--mode ") + to_string(p.mode) + " needs --peer");
        if (const char* wrong = invalid(p)) refuse(std::string("--") + wrong);
        if (o.batch < 1 || o.batch > p.depth) refuse("--batch: 1 to --depth");
    } else if (!o.peer.empty()) {
        refuse("--peer: a target waits for its peers");
    }
    std::error_code ignored;
    if (!o.cmdline_file.empty() && !fs::is_regular_file(o.cmdline_file, ignored))
        refuse("--cmdline-file: no file " + o.cmdline_file);
    find_config(o.config);
    return o;
}

}  // namespace rove::testpmd
