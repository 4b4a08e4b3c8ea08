// SPDX-License-Identifier: Apache-2.0
// Implements rove-tebench, which measures the TENT engine between two processes; docs/guide/tebench.md has examples.
// The exit status is 0 if all requests completed, 1 if a request, the engine or a file failed, and 2 after a wrong
// command line.
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>

#include "point.h"
#include "report.h"
#include "stream.h"

namespace {

using namespace rove::tebench;
namespace tent = rove::tent;

constexpr int kFailed = 1;
constexpr uint64_t kPatienceNs = 3'000'000'000;  // how long the initiator waits for a target to appear

std::atomic<bool> stop{false};

int fail(const std::string& why) {
    std::fprintf(stderr, "rove-tebench: %s\n", why.c_str());
    return kFailed;
}

std::unique_ptr<tent::TransferEngine> start(const Options& options) {
    tent::Settings settings{options.config_file, {}};
    const auto given = [&](const char* key, const std::string& value) {
        if (!value.empty()) settings.set(key, value);
    };
    given("local_segment_name", options.segment_name);
    given("metadata_type", options.metadata_type);
    given("metadata_servers", options.metadata_servers);
    if (options.rpc_port >= 0) settings.set("rpc_server_port", std::to_string(options.rpc_port));
    for (const char* transport : {"rdma", "shm", "tcp"})
        if (!options.transport.empty() && options.transport != transport)
            settings.set(std::string("transports/") + transport + "/enable", "false");
    for (const std::string& one : options.set)
        given(one.substr(0, one.find('=')).c_str(), one.substr(one.find('=') + 1));
    return std::make_unique<tent::TransferEngine>(settings);
}

int be_target(tent::TransferEngine& engine) {
    std::printf("target_seg_name %s\n", engine.getSegmentName().c_str());
    std::fflush(stdout);
    size_t notifications = 0;
    while (!stop.load()) {
        std::vector<tent::Notification> received;
        const tent::Status status = engine.receiveNotification(received);
        if (!status.ok()) return fail("receiveNotification: " + status.ToString());
        notifications += received.size();
        usleep(20'000);
    }
    std::printf("notifications %zu\n", notifications);
    return 0;
}

tent::Status find_target(tent::TransferEngine& engine, const std::string& name, const Options& options, Target* out) {
    const uint64_t deadline = now_ns() + kPatienceNs;
    tent::SegmentInfo info;
    while (true) {
        tent::Status status = engine.openSegment(out->segment, name);
        if (status.ok()) status = engine.getSegmentInfo(out->segment, info);
        if (status.ok() && !info.buffers.empty()) break;
        if (status.ok()) status = {tent::Code::kInvalidArgument, "segment '" + name + "' has registered no memory"};
        if (now_ns() >= deadline || stop.load()) return status;
        usleep(20'000);
    }
    const auto largest = std::max_element(info.buffers.begin(), info.buffers.end(),
                                          [](const auto& a, const auto& b) { return a.length < b.length; });
    if (options.target_offset >= largest->length || options.target_range > largest->length - options.target_offset) {
        return {tent::Code::kInvalidArgument, "--target_offset, --target_range_size: segment '" + name + "' has " +
                                                  std::to_string(largest->length) + " bytes"};
    }
    out->address = largest->base + options.target_offset;
    out->bytes = options.target_range != 0 ? options.target_range : largest->length - options.target_offset;
    return {};
}

int sweep(tent::TransferEngine& engine, const Options& options, Memory memory, const std::vector<Target>& targets) {
    Timeline timeline;
    if (!options.timeline_file.empty() && !timeline.open(options.timeline_file))
        return fail("--timeline " + options.timeline_file + ": " + std::strerror(errno));
    std::unique_ptr<std::FILE, int (*)(std::FILE*)> jsonl(nullptr, std::fclose);
    if (!options.jsonl_file.empty()) {
        jsonl.reset(std::fopen(options.jsonl_file.c_str(), "a"));
        if (jsonl == nullptr) return fail("--qos_output_jsonl " + options.jsonl_file + ": " + std::strerror(errno));
    }
    std::printf("%s\n", table_heading().c_str());
    std::fflush(stdout);
    for (size_t threads = options.start_threads; threads <= options.max_threads; threads *= 2) {
        for (size_t batch = options.start_batch; batch <= options.max_batch; batch *= 2) {
            for (size_t block = options.start_block; block <= options.max_block; block *= 2) {
                if (stop.load()) return 0;
                const auto result = run_point(engine, options, memory, targets, block, batch, threads,
                                              options.timeline_file.empty() ? nullptr : &timeline);
                if (!result) {
                    std::fprintf(stderr, "skipped: %zu x %zu bytes, %zu threads do not fit into the buffers\n", batch,
                                 block, threads);
                    continue;
                }
                if (!result->error.empty()) return fail(result->error);
                std::printf("%s\n%s", table_line(*result).c_str(), detail_lines(options, *result).c_str());
                std::fflush(stdout);
                if (jsonl == nullptr) continue;
                std::fprintf(jsonl.get(), "%s\n", json_line(options, *result).c_str());
                std::fflush(jsonl.get());
            }
        }
    }
    return 0;
}

}  // namespace

int main(int argc, char** argv) {
    const Options options = parse_options(argc, argv);
    signal(SIGINT, [](int) { stop.store(true); });
    signal(SIGTERM, [](int) { stop.store(true); });
    const auto engine = start(options);
    if (!engine->available()) return fail("engine: " + engine->startStatus().ToString());
    void* memory = nullptr;
    const tent::Status allocated = engine->allocateLocalMemory(&memory, options.total_bytes);
    if (!allocated.ok()) return fail("--total_buffer_size: " + allocated.ToString());
    if (options.targets.empty()) return be_target(*engine);
    std::vector<Target> targets(options.targets.size());
    for (size_t i = 0; i < targets.size(); ++i) {
        const tent::Status found = find_target(*engine, options.targets[i], options, &targets[i]);
        if (!found.ok()) return fail("--target_seg_name: " + found.ToString());
    }
    const int status = sweep(*engine, options, {static_cast<uint8_t*>(memory), options.total_bytes}, targets);
    engine->printTrafficStats();
    return status;
}
