// SPDX-License-Identifier: Apache-2.0
// Parses the command line of rove-tebench. Sizes are in bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <rove/tent.hpp>
#include <string>
#include <vector>

namespace rove::tebench {

// The content of kWriteSeed and kReadVerify depends only on the target's addresses, so that a later run can verify it.
enum class Operation : uint8_t { kRead, kWrite, kMix, kWriteSeed, kReadVerify };

// A class of streams with equal parameters. Without classes on the command line, one class holds all streams.
struct Class {
    std::string name = "all";
    int priority = tent::PRIO_HIGH;
    size_t streams = 0;  // 0: the sweep's number of threads
    double slo_us = 0;   // the objective in µs for a batch's duration; 0: none
    double weight = 1;
    double isolated_gbps = 0;               // GB/s of the class alone, if that was measured
    size_t block_size = 0, batch_size = 0;  // 0: the sweep's
    double rate = 0;                        // batches per second that all its streams submit together; 0: closed loop
    double deadline_us = 0;                 // a batch's deadline after its submission; 0: none
    tent::IntentType intent = tent::IntentType::INTENT_UNSPEC;
};

struct Options {
    // The engine's settings.
    std::string config_file, segment_name, transport;
    std::vector<std::string> set;
    std::string metadata_type, metadata_servers;
    int rpc_port = -1;
    // The segments to transfer to or from. Without any, this process is a target.
    std::vector<std::string> targets;
    size_t total_bytes = size_t{1} << 30;
    size_t target_offset = 0, target_range = 0;
    Operation operation = Operation::kRead;
    bool check = false, notify = false;
    std::string hint = "unspec";  // a name of TransportType
    size_t start_block = 4 << 10, max_block = 64 << 20;
    size_t start_batch = 1, max_batch = 1;
    size_t start_threads = 1, max_threads = 1;
    size_t worker_threads = 0;  // 0: one for each stream
    size_t outstanding = 1;
    double rate = 0;
    double interval_us = 0;
    double deadline_us = 0;  // the deadline of the first tight_streams streams
    size_t tight_streams = 0;
    tent::IntentType intent = tent::IntentType::INTENT_UNSPEC;  // the intent of classes that state none
    double duration_s = 5, warmup_s = 1;
    std::vector<Class> classes;
    bool has_classes = false;  // true if the command line names classes
    double link_gbps = 0;      // GB/s
    std::string jsonl_file, timeline_file;
};

// Ends the program with status 2 and a line that names the option if an argument is wrong.
Options parse_options(int argc, char** argv);

}  // namespace rove::tebench
