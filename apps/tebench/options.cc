// SPDX-License-Identifier: Apache-2.0
// Implements options.h. Options that Mooncake's tebench has as well have its names.
#include "options.h"

#include <strings.h>

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
const std::map<std::string, Operation> kOperations{{"read", Operation::kRead},
                                                   {"write", Operation::kWrite},
                                                   {"mix", Operation::kMix},
                                                   {"write_seed", Operation::kWriteSeed},
                                                   {"read_verify", Operation::kReadVerify}};
const std::map<std::string, tent::IntentType> kIntents{{"unspec", tent::IntentType::INTENT_UNSPEC},
                                                       {"foreground_get", tent::IntentType::FOREGROUND_GET},
                                                       {"background_prefetch", tent::IntentType::BACKGROUND_PREFETCH},
                                                       {"migration", tent::IntentType::MIGRATION},
                                                       {"checkpoint", tent::IntentType::CHECKPOINT},
                                                       {"weight_loading", tent::IntentType::WEIGHT_LOADING},
                                                       {"staging_internal", tent::IntentType::STAGING_INTERNAL}};
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

// Returns the priority of a class that states none: the one that its name suggests, or else a request's default.
int priority_by_name(const std::string& name) {
    const auto found = kPriorities.find(name);
    return found != kPriorities.end() ? found->second : tent::PRIO_HIGH;
}

double number_of(const std::string& text, const std::string& whole) {
    char* end = nullptr;
    const double value = std::strtod(text.c_str(), &end);
    if (text.empty() || *end != '\0' || !(value >= 0))
        refuse("--qos_classes: '" + text + "' in '" + whole + "' is not a number >= 0");
    return value;
}

// Parses "name:threads:slo_us:weight[:isolated_gbps]".
Class parse_class(const std::string& text) {
    std::vector<std::string> fields;
    std::istringstream in(text);
    for (std::string field; std::getline(in, field, ':');) fields.push_back(field);
    if (fields.size() != 4 && fields.size() != 5)
        refuse("--qos_classes: '" + text + "': name:threads:slo_us:weight[:isolated_gbps] is expected");
    Class one;
    one.name = fields[0];
    one.priority = priority_by_name(fields[0]);
    one.streams = static_cast<size_t>(number_of(fields[1], text));
    one.slo_us = number_of(fields[2], text);
    one.weight = number_of(fields[3], text);
    if (fields.size() == 5) one.isolated_gbps = number_of(fields[4], text);
    if (one.name.empty() || one.streams == 0 || one.weight == 0)
        refuse("--qos_classes: '" + text + "': the name must not be empty, and threads and weight must not be 0");
    return one;
}

// Parses a list of objects, or the file that `given` names. The keys are the fields' names in the results.
std::vector<Class> parse_json_classes(const std::string& given) {
    static const std::set<std::string> kKeys{"name",   "priority",      "threads",    "slo_us",
                                             "weight", "isolated_gbps", "block_size", "batch_size",
                                             "rate",   "deadline_us",   "intent_type"};
    std::vector<Class> classes;
    try {
        std::ifstream file(given);
        for (const Json& entry : given.starts_with('[') ? Json::parse(given) : Json::parse(file)) {
            for (const auto& [key, value] : entry.items())
                if (!kKeys.contains(key)) refuse("--workload_classes_json: unknown key '" + key + "'");
            Class one;
            one.name = entry.at("name");
            one.priority = entry.contains("priority") ? priority_of(entry.at("priority"), "--workload_classes_json")
                                                      : priority_by_name(one.name);
            one.streams = entry.value("threads", size_t{1});
            one.slo_us = entry.value("slo_us", 0.0);
            one.weight = entry.value("weight", 1.0);
            one.isolated_gbps = entry.contains("isolated_gbps") && !entry.at("isolated_gbps").is_null()
                                    ? entry.at("isolated_gbps").get<double>()
                                    : 0;
            one.block_size = entry.value("block_size", size_t{0});
            one.batch_size = entry.value("batch_size", size_t{0});
            one.rate = entry.value("rate", 0.0);
            one.deadline_us = entry.value("deadline_us", 0.0);
            const std::string intent = entry.value("intent_type", "unspec");
            if (!kIntents.contains(intent)) refuse("--workload_classes_json: unknown intent_type '" + intent + "'");
            one.intent = kIntents.at(intent);
            if (one.streams == 0 || one.weight <= 0 || one.rate < 0 || one.deadline_us < 0) {
                refuse("--workload_classes_json: class '" + one.name +
                       "': threads, weight, rate or deadline_us is out of bounds");
            }
            classes.push_back(one);
        }
    } catch (const Json::exception& error) {
        refuse(std::string("--workload_classes_json: ") + error.what());
    }
    if (classes.empty()) refuse("--workload_classes_json: the list is empty");
    return classes;
}

// Returns the arguments in the order that CLI11 expects (reversed). A single dash before a long option is accepted,
// like in Mooncake's tebench.
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
    std::string json_classes, segment_type = "DRAM", segment_types, backend = "tent";
    bool arbitrates = false;
    CLI::App app{
        "Measures requests over the TENT engine. Without --target_seg_name it is a target, which offers memory."};
    app.name(argv[0]);
    const CLI::AsSizeValue size(false);  // 1 K is 1024
    app.add_option("--config", options.config_file, "the engine's TOML file")->check(CLI::ExistingFile);
    app.add_option("--set", options.set, "set a key of the engine's configuration: KEY=VALUE; may be repeated")
        ->check(
            [](const std::string& text) { return text.find('=') == std::string::npos ? "KEY=VALUE is expected" : ""; });
    app.add_option("--seg_name", options.segment_name, "name of the own segment");
    const auto only = [](const char* what, const char* why) {
        return CLI::Validator(
            [what, why](std::string& text) {
                return strcasecmp(text.c_str(), what) == 0 ? "" : "'" + text + "': " + why;
            },
            what);
    };
    app.add_option("--seg_type", segment_type, "type of the own memory")
        ->check(only("DRAM", "memory of GPUs is not supported"));
    app.add_option("--seg_type_mix", segment_types, "like --seg_type")
        ->check(only("DRAM", "memory of GPUs is not supported"));
    app.add_option("--backend", backend, "engine to measure")->check(only("tent", "only tent is allowed"));
    app.add_option("--metadata_type", options.metadata_type, "type of the metadata store: p2p, etcd, redis, http");
    app.add_option("--metadata_url_list", options.metadata_servers, "addresses of the metadata store");
    app.add_option("--rpc_server_port", options.rpc_port, "port of the control plane; 0: any free one")
        ->check(CLI::Range(0, 65535));
    app.add_option("--xport_type", options.transport, "use only this transport")->check(CLI::IsMember(kTransports));
    app.add_option("--target_seg_name", options.targets, "segments of targets, separated by commas")->delimiter(',');
    app.add_option("--total_buffer_size", options.total_bytes, "bytes of memory to register")->transform(size);
    app.add_option("--target_offset", options.target_offset, "offset of the range in the target's memory")
        ->transform(size);
    app.add_option("--target_range_size", options.target_range, "bytes of the range; 0: up to the end")
        ->transform(size);
    app.add_option("--op_type", options.operation, "operation of the requests")
        ->type_name("TEXT")
        ->transform(CLI::CheckedTransformer(kOperations).description("{read,write,mix,write_seed,read_verify}"));
    app.add_flag("--check_consistency", options.check,
                 "compare every byte; WRITEs are read back outside the measured time");
    app.add_flag("--notifi", options.notify, "send a notification with every batch");
    app.add_option("--tent_transport_hint", options.hint, "the transport of the first attempt: rdma, tcp, ...")
        ->check([](const std::string& name) {
            const bool known = name == "unspec" || tent::parseTransportType(name) != tent::UNSPEC;
            return known ? "" : "'" + name + "' is not a transport";
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
    app.add_option("--outstanding", options.outstanding, "batches of a stream in flight")->check(CLI::Range(1, 4096));
    app.add_option("--rate", options.rate, "open loop: batches per second, of all streams; 0: closed loop")
        ->check(CLI::NonNegativeNumber);
    app.add_option("--request_interval_us", options.interval_us, "closed loop: pause after a batch")
        ->check(CLI::NonNegativeNumber);
    app.add_option("--deadline_us", options.deadline_us, "deadline of a batch of the tight streams; 0: none")
        ->check(CLI::NonNegativeNumber);
    app.add_option("--deadline_tight_threads", options.tight_streams,
                   "number of tight streams, which are the first ones");
    app.add_flag("--deadline_bw_arbitration", arbitrates, "accepted for Mooncake's scripts; has no effect");
    app.add_option("--tent_intent_type", options.intent,
                   "intent of the requests; accepted for Mooncake's scripts, has no effect")
        ->type_name("TEXT")
        ->transform(CLI::CheckedTransformer(kIntents).description("{unspec,foreground_get,...}"));
    app.add_option("--duration", options.duration_s, "seconds to measure each point")->check(CLI::PositiveNumber);
    app.add_option("--warmup", options.warmup_s, "seconds before the measurement")->check(CLI::NonNegativeNumber);
    auto* of_classes =
        app.add_option(
               "--qos_classes", classes,
               "name:threads:slo_us:weight[:isolated_gbps],...; the names high, medium and low also set the priority")
            ->delimiter(',');
    app.add_option(
           "--workload_classes_json,--qos_classes_json", json_classes,
           "[{name, priority, threads, slo_us, weight, isolated_gbps, block_size, batch_size, rate, deadline_us, "
           "intent_type}, ...], or its file")
        ->excludes(of_classes);
    app.add_option("--qos_link_capacity_gbps", options.link_gbps, "capacity of the links in GB/s, for the utilization")
        ->check(CLI::NonNegativeNumber);
    app.add_option("--qos_output_jsonl", options.jsonl_file, "append a line of JSON for each point to this file");
    app.add_option("--timeline", options.timeline_file,
                   "write a CSV file of the bytes that have arrived, every millisecond");
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
    options.has_classes = !options.classes.empty();
    if (options.classes.empty()) options.classes.push_back({.rate = options.rate, .intent = options.intent});
    const bool is_of_seeds = options.operation == Operation::kWriteSeed || options.operation == Operation::kReadVerify;
    if (options.check && is_of_seeds) refuse("--check_consistency: cannot be combined with write_seed and read_verify");
    if (options.tight_streams > options.max_threads && !options.has_classes)
        refuse("--deadline_tight_threads is greater than --max_num_threads");
    if (arbitrates) options.set.push_back("transports/rdma/deadline_bw_arbitration=true");
    return options;
}

}  // namespace rove::tebench
