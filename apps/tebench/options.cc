// SPDX-License-Identifier: Apache-2.0
// See options.h. Names are those of Mooncake's tebench, where it has the option.
#include "options.h"

#include <CLI/CLI.hpp>
#include <cctype>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

namespace rove::tebench {

namespace {

using Json = nlohmann::json;

constexpr int kBadUsage = 2;
const std::map<std::string, int> kPriorities{
    {"high", tent::PRIO_HIGH}, {"medium", tent::PRIO_MEDIUM}, {"low", tent::PRIO_LOW}};
const std::map<std::string, Operation> kOperations{
    {"read", Operation::kRead}, {"write", Operation::kWrite}, {"mix", Operation::kMix}};
const std::set<std::string> kTransports{"rdma", "shm", "tcp"};

[[noreturn]] void refuse(const std::string& why) {
    std::fprintf(stderr, "rove-tebench: %s\n", why.c_str());
    std::exit(kBadUsage);
}

int priority_of(const std::string& name, const char* option) {
    const auto found = kPriorities.find(name);
    if (found == kPriorities.end()) refuse(std::string(option) + ": '" + name + "': high, medium and low are allowed");
    return found->second;
}

double number_of(const std::string& text, const std::string& whole) {
    char* end = nullptr;
    const double value = std::strtod(text.c_str(), &end);
    if (text.empty() || *end != '\0' || !(value >= 0))
        refuse("--qos_classes: '" + text + "' in '" + whole + "' is no number >= 0");
    return value;
}

// "name:threads:slo_us:weight[:isolated_gbps]"; the name is the priority.
Class parse_class(const std::string& text) {
    std::vector<std::string> fields;
    std::istringstream in(text);
    for (std::string field; std::getline(in, field, ':');) fields.push_back(field);
    if (fields.size() != 4 && fields.size() != 5)
        refuse("--qos_classes: '" + text + "': name:threads:slo_us:weight[:isolated_gbps] is expected");
    Class one;
    one.name = fields[0];
    one.priority = priority_of(fields[0], "--qos_classes");
    one.streams = static_cast<size_t>(number_of(fields[1], text));
    one.slo_us = number_of(fields[2], text);
    one.weight = number_of(fields[3], text);
    if (fields.size() == 5) one.isolated_gbps = number_of(fields[4], text);
    if (one.streams == 0 || one.weight == 0) refuse("--qos_classes: '" + text + "': threads and weight are not 0");
    return one;
}

// A list of objects, or the name of its file. Their keys are what the class's fields are called in the results.
std::vector<Class> parse_json_classes(const std::string& given) {
    static const std::set<std::string> kKeys{"name",          "priority",   "threads",    "slo_us", "weight",
                                             "isolated_gbps", "block_size", "batch_size", "rate"};
    std::vector<Class> classes;
    try {
        std::ifstream file(given);
        for (const Json& entry : given.starts_with('[') ? Json::parse(given) : Json::parse(file)) {
            for (const auto& [key, value] : entry.items())
                if (!kKeys.contains(key)) refuse("--workload_classes_json: unknown key '" + key + "'");
            Class one;
            one.name = entry.at("name");
            one.priority = priority_of(entry.value("priority", one.name), "--workload_classes_json");
            one.streams = entry.value("threads", size_t{1});
            one.slo_us = entry.value("slo_us", 0.0);
            one.weight = entry.value("weight", 1.0);
            one.isolated_gbps = entry.value("isolated_gbps", 0.0);
            one.block_size = entry.value("block_size", size_t{0});
            one.batch_size = entry.value("batch_size", size_t{0});
            one.rate = entry.value("rate", 0.0);
            if (one.streams == 0 || one.weight <= 0 || one.rate < 0)
                refuse("--workload_classes_json: class '" + one.name + "': threads, weight or rate is out of bounds");
            classes.push_back(one);
        }
    } catch (const Json::exception& error) {
        refuse(std::string("--workload_classes_json: ") + error.what());
    }
    if (classes.empty()) refuse("--workload_classes_json: no class in it");
    return classes;
}

// In the order that CLI11 takes. One dash before a word does, as with Mooncake's tebench.
std::vector<std::string> words(int argc, char** argv) {
    std::vector<std::string> all;
    for (int i = argc - 1; i > 0; --i) {
        const std::string word = argv[i];
        const bool short_of_a_dash = word.size() > 2 && word[0] == '-' && std::isalpha(word[1]) != 0;
        all.push_back(short_of_a_dash ? "-" + word : word);
    }
    return all;
}

void require_order(size_t start, size_t most, const char* start_name, const char* most_name) {
    if (start > most) refuse(std::string(start_name) + " is greater than " + most_name);
}

}  // namespace

Options parse_options(int argc, char** argv) {
    Options options;
    std::vector<std::string> classes;
    std::string json_classes;
    CLI::App app{
        "Sweeps requests over the TENT engine. Without --target_seg_name it is the target: memory for others."};
    app.name(argv[0]);
    const CLI::AsSizeValue size(false);  // "64K" is 65536
    app.add_option("--config", options.config_file, "the engine's TOML file")->check(CLI::ExistingFile);
    app.add_option("--set", options.set, "KEY=VALUE of the engine's configuration, any number of times")
        ->check(
            [](const std::string& text) { return text.find('=') == std::string::npos ? "KEY=VALUE is expected" : ""; });
    app.add_option("--seg_name", options.segment_name, "name of our own segment");
    app.add_option("--metadata_type", options.metadata_type, "p2p, etcd, redis");
    app.add_option("--metadata_url_list", options.metadata_servers, "of etcd or redis");
    app.add_option("--rpc_server_port", options.rpc_port, "0: any that is free")->check(CLI::Range(0, 65535));
    app.add_option("--xport_type", options.transport, "only this transport")->check(CLI::IsMember(kTransports));
    app.add_option("--target_seg_name", options.targets, "segments of targets, separated by commas")->delimiter(',');
    app.add_option("--total_buffer_size", options.total_bytes, "memory that is registered")->transform(size);
    app.add_option("--target_offset", options.target_offset, "within the target's memory")->transform(size);
    app.add_option("--target_range_size", options.target_range, "bytes of it that are used; 0: all")->transform(size);
    app.add_option("--op_type", options.operation, "of the requests")
        ->type_name("TEXT")
        ->transform(CLI::CheckedTransformer(kOperations).description("{read,write,mix}"));
    app.add_flag("--check_consistency", options.check,
                 "compare every byte: after a WRITE, it is read back, outside the measured times");
    app.add_flag("--notifi", options.notify, "every batch comes with a notification");
    app.add_option("--tent_transport_hint", options.hint, "the transport of the first attempt: rdma, tcp, ...")
        ->check([](const std::string& name) {
            const bool known = name == "unspec" || tent::parseTransportType(name) != tent::UNSPEC;
            return known ? "" : "'" + name + "' is no transport";
        });
    const auto at_least_one = CLI::Range(size_t{1}, size_t{1} << 40);
    const auto sweep = [&](const char* start, size_t& start_value, const char* most, size_t& most_value,
                           const char* what) {
        app.add_option(start, start_value, std::string(what) + ": from")->transform(size)->check(at_least_one);
        app.add_option(most, most_value, std::string(what) + ": to, doubling")->transform(size)->check(at_least_one);
    };
    sweep("--start_block_size", options.start_block, "--max_block_size", options.max_block, "bytes of a request");
    sweep("--start_batch_size", options.start_batch, "--max_batch_size", options.max_batch, "requests of a batch");
    sweep("--start_num_threads", options.start_threads, "--max_num_threads", options.max_threads, "streams of batches");
    app.add_option("--worker_threads", options.worker_threads, "threads that drive the streams; 0: each has its own");
    app.add_option("--outstanding", options.outstanding, "batches of a stream under way at once")
        ->check(CLI::Range(1, 4096));
    app.add_option("--rate", options.rate, "open loop: batches per second, of all streams; 0: closed loop")
        ->check(CLI::NonNegativeNumber);
    app.add_option("--request_interval_us", options.interval_us, "closed loop: pause after a batch")
        ->check(CLI::NonNegativeNumber);
    app.add_option("--duration", options.duration_s, "seconds of a point")->check(CLI::PositiveNumber);
    app.add_option("--warmup", options.warmup_s, "seconds before it")->check(CLI::NonNegativeNumber);
    auto* of_classes = app.add_option("--qos_classes", classes,
                                      "name:threads:slo_us:weight[:isolated_gbps],...; names: high, medium, low")
                           ->delimiter(',');
    app.add_option(
           "--workload_classes_json,--qos_classes_json", json_classes,
           "[{name, priority, threads, slo_us, weight, isolated_gbps, block_size, batch_size, rate}, ...], or its file")
        ->excludes(of_classes);
    app.add_option("--qos_link_capacity_gbps", options.link_gbps, "for the utilization, GB/s")
        ->check(CLI::NonNegativeNumber);
    app.add_option("--qos_output_jsonl", options.jsonl_file, "a line of JSON for each point");
    app.add_option("--timeline", options.timeline_file, "CSV of the bytes that had arrived, every millisecond");
    try {
        app.parse(words(argc, argv));
    } catch (const CLI::CallForHelp& help) {
        std::exit(app.exit(help));
    } catch (const CLI::ParseError& error) {
        refuse(error.what());
    }
    require_order(options.start_block, options.max_block, "--start_block_size", "--max_block_size");
    require_order(options.start_batch, options.max_batch, "--start_batch_size", "--max_batch_size");
    require_order(options.start_threads, options.max_threads, "--start_num_threads", "--max_num_threads");
    for (const std::string& text : classes) options.classes.push_back(parse_class(text));
    if (!json_classes.empty()) options.classes = parse_json_classes(json_classes);
    if (options.classes.empty()) options.classes.push_back({.rate = options.rate});
    return options;
}

}  // namespace rove::tebench
