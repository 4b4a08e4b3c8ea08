// SPDX-License-Identifier: Apache-2.0
// The initiator's scenarios.
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cinttypes>
#include <cstdio>
#include <cstring>

#include "peer.h"
#include "tent_check.h"

namespace check {

using namespace rove::tent;
using peer::fail;
using peer::now_s;

namespace {

const char* const kStates[] = {"INITIAL", "PENDING", "INVALID", "CANCELED", "COMPLETED", "TIMEOUT", "FAILED"};

Request request(const Options& options, Request::OpCode opcode, void* source, const Remote& remote, uint64_t offset,
                size_t length) {
    Request one;
    one.opcode = opcode;
    one.source = source;
    one.target_id = remote.segment;
    one.target_offset = remote.address + offset;
    one.length = length;
    one.priority = options.priority;
    one.transport_hint = static_cast<TransportType>(options.hint);
    return one;
}

// Batches of WRITEs that the target verifies, and of READs that we verify.
int move(const Options& options) {
    const auto engine = start(options);
    const Remote remote = open(*engine, options);
    const size_t largest = *std::max_element(options.sizes.begin(), options.sizes.end());
    const size_t bytes = options.depth * largest;
    if (bytes > remote.bytes) fail("the target has %zu bytes, %zu are needed", remote.bytes, bytes);
    uint8_t* memory = allocate(*engine, bytes);
    uint64_t seed = 100;
    for (const size_t size : options.sizes) {
        double seconds[2] = {0, 0};
        for (size_t round = 0; round < options.rounds; ++round) {
            for (const auto opcode : {Request::WRITE, Request::READ}) {
                if (opcode == Request::WRITE) {
                    peer::fill(memory, options.depth * size, ++seed);
                } else {
                    std::memset(memory, 0, options.depth * size);
                }
                std::vector<Request> requests;
                for (size_t i = 0; i < options.depth; ++i)
                    requests.push_back(request(options, opcode, memory + i * size, remote, i * size, size));
                const BatchID batch = engine->allocateBatch(options.depth);
                const double begun = now_s();
                expect(engine->submitTransfer(batch, requests), "submitTransfer");
                if (options.lazy) {
                    TransferStatus status;
                    do {
                        usleep(50'000);
                        std::vector<TransferStatus> list;
                        expect(engine->getTransferStatus(batch, list), "getTransferStatus");
                        status = list.back();
                    } while (status.s == PENDING);
                }
                const TransferStatus status = wait(*engine, batch);
                seconds[opcode] += now_s() - begun;
                if (status.s != COMPLETED || status.transferred_bytes != options.depth * size)
                    fail("%s of %zu bytes: %s, %zu bytes", opcode == Request::WRITE ? "WRITE" : "READ", size,
                         kStates[status.s], status.transferred_bytes);
                expect(engine->freeBatch(batch), "freeBatch");
                if (opcode == Request::WRITE) {
                    verify_there(*engine, remote, remote.address, options.depth * size, seed);
                } else if (peer::first_difference(memory, options.depth * size, seed) != options.depth * size) {
                    fail("READ brought a wrong byte");
                }
            }
        }
        const double gigabits = 8e-9 * static_cast<double>(options.rounds * options.depth * size);
        std::printf("{\"size\": %zu, \"write_gbps\": %.3f, \"read_gbps\": %.3f}\n", size, gigabits / seconds[Request::WRITE],
                    gigabits / seconds[Request::READ]);
    }
    std::vector<NicLoadStats> loads;
    expect(engine->getNicLoadStats(loads), "getNicLoadStats");
    for (const NicLoadStats& load : loads) {
        if (load.inflight_bytes != 0) fail("%s: %" PRIu64 " bytes in flight when nothing is", load.name.c_str(), load.inflight_bytes);
    }
    engine->printTrafficStats();
    expect(engine->freeLocalMemory(memory), "freeLocalMemory");
    return 0;
}

constexpr Scenario kAll[] = {
    {"move", "batches of WRITEs and READs", move},
};

}  // namespace

const std::span<const Scenario> kScenarios(kAll);

}  // namespace check
