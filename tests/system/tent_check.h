// SPDX-License-Identifier: Apache-2.0
// The common part of tent_check's scenarios. Units: bytes, seconds.
#pragma once

#include <cstdint>
#include <memory>
#include <rove/tent.hpp>
#include <span>
#include <string>
#include <vector>

namespace check {

struct Options {
    std::string config, peer;
    std::vector<std::string> other_peers, set;
    size_t bytes = 64 << 20;
    uint64_t seed = 1;
    double seconds = 60;
    std::vector<size_t> sizes{1 << 20};
    size_t depth = 4, rounds = 8, offset = 0;
    int priority = 0, hint = 0;
    bool read_only = false, mapped = false, own = false, tolerate = false, lazy = false;
};

struct Remote {
    rove::tent::SegmentID segment = 0;
    uint64_t address = 0;  // address of its largest buffer
    size_t bytes = 0;
};

struct Scenario {
    const char* name;
    const char* help;
    int (*run)(const Options& options);
};
extern const std::span<const Scenario> kScenarios;

std::unique_ptr<rove::tent::TransferEngine> start(const Options& options);
// These end the program if the expectation fails.
void expect(const rove::tent::Status& status, const char* what);
void expect_code(const rove::tent::Status& status, rove::tent::Code code, const char* what);
uint8_t* allocate(rove::tent::TransferEngine& engine, size_t bytes,
                  rove::tent::Permission permission = rove::tent::Permission::kGlobalReadWrite);
rove::tent::TransferStatus wait(rove::tent::TransferEngine& engine, rove::tent::BatchID batch, double patience_s = 20);
Remote open(rove::tent::TransferEngine& engine, const Options& options);
// Returns true if `end` (of peer::now_s()) has passed, or after SIGUSR1, by which a test announces that it has seen
// enough.
bool is_over(double end);
void verify_there(rove::tent::TransferEngine& engine, const Remote& remote, uint64_t address, size_t bytes,
                  uint64_t seed);

rove::tent::Request request(const Options& options, rove::tent::Request::OpCode opcode, void* source,
                            const Remote& remote, uint64_t offset, size_t length);

// Scenarios of other files.
int anew(const Options& options);
int cancel(const Options& options);
int crowd(const Options& options);
int dead_hosts(const Options& options);
int deadlines(const Options& options);
int errors(const Options& options);
int fanout(const Options& options);
int faults(const Options& options);
int files(const Options& options);
int hold(const Options& options);
int leave(const Options& options);
int gone(const Options& options);
int names(const Options& options);
int obey(const Options& options);
int open_once(const Options& options);
int qos(const Options& options);
int quit(const Options& options);
int stale(const Options& options);
int two_peers(const Options& options);
int visit(const Options& options);
int weights(const Options& options);

}  // namespace check
