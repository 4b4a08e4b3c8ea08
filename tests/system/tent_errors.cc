// SPDX-License-Identifier: Apache-2.0
// Scenarios of failures: requests that are refused or cancelled, or whose peer dies.
#include <unistd.h>

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <iostream>
#include <string>

#include "peer.h"
#include "tent_check.h"

namespace check {

using namespace rove::tent;
using peer::fail;
using peer::now_s;

// Checks that each case gets its own code and that the engine works as before afterwards.
int errors(const Options& options) {
    const auto engine = start(options);
    const Remote remote = open(*engine, options);
    constexpr size_t kBytes = 1 << 20;
    uint8_t* memory = allocate(*engine, kBytes);
    std::vector<uint8_t> foreign(4096);
    const BatchID batch = engine->allocateBatch(4);
    const Request good = request(options, Request::READ, memory, remote, 0, 4096);
    const auto refused = [&](const char* what, Code code, auto&& change) {
        Request one = good;
        change(one);
        expect_code(engine->submitTransfer(batch, {good, one}), code, what);
    };
    refused("source not registered", Code::kAddressNotRegistered, [&](Request& r) { r.source = foreign.data(); });
    refused("source beyond its buffer", Code::kAddressNotRegistered, [&](Request& r) { r.length = kBytes + 1; });
    refused("target before its buffer", Code::kAddressNotRegistered,
            [&](Request& r) { r.target_offset = remote.address - 1; });
    refused("target beyond its buffer", Code::kAddressNotRegistered,
            [&](Request& r) { r.target_offset = remote.address + remote.bytes - 4095; });
    refused("target wraps around", Code::kAddressNotRegistered,
            [&](Request& r) { r.target_offset = UINT64_MAX - 100; });
    refused("length 0", Code::kInvalidArgument, [&](Request& r) { r.length = 0; });
    refused("priority 3", Code::kInvalidArgument, [&](Request& r) { r.priority = 3; });
    refused("priority -1", Code::kInvalidArgument, [&](Request& r) { r.priority = -1; });
    refused("opcode 7", Code::kInvalidArgument, [&](Request& r) { r.opcode = static_cast<Request::OpCode>(7); });
    refused("hint of what is not there", Code::kInvalidArgument,
            [&](Request& r) { r.transport_hint = TransportType::NVLINK; });
    refused("hint of no transport", Code::kInvalidArgument,
            [&](Request& r) { r.transport_hint = static_cast<TransportType>(99); });
    refused("policy of no name", Code::kInvalidArgument, [&](Request& r) { r.policy_name = "none of this name"; });
    refused("segment not open", Code::kInvalidEntry, [&](Request& r) { r.target_id = 99; });
    expect_code(engine->submitTransfer(batch, {good, good, good, good, good}), Code::kTooManyRequests, "batch full");
    expect_code(engine->submitTransfer(batch + 1, {good}), Code::kInvalidArgument, "no such batch");
    TransferStatus status;
    expect_code(engine->getTransferStatus(batch, 0, status), Code::kInvalidArgument, "no such task");
    expect(engine->getTransferStatus(batch, status), "status of an empty batch");
    if (status.s != COMPLETED) fail("an empty batch is complete");

    // More slices in one submit than the engine has room for: none is accepted.
    uint8_t* large = allocate(*engine, remote.bytes);
    const std::vector<Request> many(262'144 / std::min<size_t>(512, remote.bytes >> 16) + 1,
                                    request(options, Request::READ, large, remote, 0, remote.bytes));
    const BatchID full = engine->allocateBatch(many.size());
    expect_code(engine->submitTransfer(full, many), Code::kTooManyRequests, "engine full");
    expect(engine->getTransferStatus(full, status), "status");
    if (status.s != COMPLETED || status.transferred_bytes != 0) fail("a refused batch has begun");
    expect(engine->freeBatch(full), "freeBatch");
    expect_code(engine->freeBatch(full), Code::kInvalidArgument, "batch freed twice");

    SegmentID segment;
    expect_code(engine->openSegment(segment, "nonsense"), Code::kInvalidArgument, "segment name");
    expect_code(engine->openSegment(segment, "127.0.0.1:1"), Code::kRpcServiceError, "nobody there");
    expect_code(engine->closeSegment(99), Code::kInvalidEntry, "close what is not open");
    expect_code(engine->registerLocalMemory(nullptr, 4096), Code::kInvalidArgument, "register null");
    expect_code(engine->registerLocalMemory(foreign.data(), 4096, MemoryOptions{.location = "gpu:x"}),
                Code::kInvalidArgument, "location");
    void* memory_there = nullptr;
    for (const char* nowhere : {"cpu:1023", "cpu:-1", "cpu:1x", "cpu:", "cpu:99999999999"}) {
        const MemoryOptions there{.location = nowhere};
        expect_code(engine->registerLocalMemory(foreign.data(), 4096, there), Code::kInvalidArgument, nowhere);
        expect_code(engine->allocateLocalMemory(&memory_there, 4096, there), Code::kInvalidArgument, nowhere);
    }
    expect_code(engine->unregisterLocalMemory(foreign.data(), 4096), Code::kAddressNotRegistered, "unregister");
    expect_code(engine->freeLocalMemory(foreign.data()), Code::kAddressNotRegistered, "free");
    expect_code(engine->sendNotification(remote.segment, {std::string(256, 'x'), ""}), Code::kInvalidArgument,
                "long name");
    expect_code(engine->sendNotification(remote.segment, {"x", std::string(4096, 'x')}), Code::kInvalidArgument,
                "long message");
    expect(engine->probePeerAliveByID(remote.segment), "probe");
    Request write = good;
    write.opcode = Request::WRITE;
    if (options.read_only)
        expect_code(engine->submitTransfer(batch, {write}), Code::kInvalidArgument, "write what others only read");

    expect(engine->submitTransfer(batch, {good, good}, Notification{"done", "both"}), "submitTransfer");
    status = wait(*engine, batch);
    if (status.s != COMPLETED || peer::first_difference(memory, 4096, options.seed) != 4096)
        fail("a good request fails");
    return 0;
}

// A request whose deadline passes in flight, one whose deadline has passed, and one with enough time.
int deadlines(const Options& options) {
    const auto engine = start(options);
    const Remote remote = open(*engine, options);
    const size_t size = options.sizes.front();
    uint8_t* memory = allocate(*engine, size);
    const auto now_ns = [] { return static_cast<uint64_t>(now_s() * 1e9); };
    const auto carry = [&](size_t length, uint64_t deadline_ns) {
        Request one = request(options, Request::WRITE, memory, remote, 0, length);
        one.deadline_ns = deadline_ns;
        const BatchID batch = engine->allocateBatch(1);
        expect(engine->submitTransfer(batch, {one}), "submitTransfer");
        const double begun = now_s();
        TransferStatus status = wait(*engine, batch);
        std::printf("{\"state\": %d, \"reason\": \"%s\", \"bytes\": %zu, \"seconds\": %.3f}\n", status.s, status.reason,
                    status.transferred_bytes, now_s() - begun);
        expect(engine->getTransferStatus(batch, 0, status), "getTransferStatus");
        expect(engine->freeBatch(batch), "freeBatch");
        return status;
    };
    if (carry(4096, 0).s != COMPLETED) fail("without a deadline");
    TransferStatus status = carry(size, now_ns() + 100'000'000);
    if (status.s != TIMEOUT || status.transferred_bytes >= size) fail("a deadline under way");
    if (std::strcmp(status.reason, "its deadline has passed") != 0) fail("its reason: '%s'", status.reason);
    if (carry(size, now_ns() - 1).s != TIMEOUT) fail("a deadline that has passed");
    status = carry(65536, now_ns() + 5'000'000'000);
    if (status.s != COMPLETED || *status.reason != 0)
        fail("a deadline far away: state %d '%s'", status.s, status.reason);
    return 0;
}

int cancel(const Options& options) {
    const auto engine = start(options);
    const Remote remote = open(*engine, options);
    const size_t size = options.sizes.front();
    uint8_t* memory = allocate(*engine, 2 * size);
    const BatchID batch = engine->allocateBatch(2);
    Request first = request(options, Request::WRITE, memory, remote, 0, size);
    first.priority = PRIO_LOW;
    expect(engine->submitTransfer(batch, {first}), "submitTransfer");
    expect(engine->submitTransfer(batch, {request(options, Request::WRITE, memory + size, remote, size, 65536)}),
           "submitTransfer");
    expect_code(engine->cancelTransfer(batch, 2), Code::kInvalidArgument, "no such task");
    const double begun = now_s();
    TransferStatus status;
    do expect(engine->getTransferStatus(batch, 0, status), "getTransferStatus");
    while (status.transferred_bytes == 0 && now_s() < begun + 10);
    expect(engine->cancelTransfer(batch, 0), "cancelTransfer");
    const TransferStatus overall = wait(*engine, batch);
    TransferStatus other;
    expect(engine->getTransferStatus(batch, 0, status), "getTransferStatus");
    expect(engine->getTransferStatus(batch, 1, other), "getTransferStatus");
    if (overall.s != CANCELED || status.s != CANCELED || other.s != COMPLETED)
        fail("states %d, %d, %d", overall.s, status.s, other.s);
    if (status.transferred_bytes >= size) fail("all of it was carried");
    std::printf("{\"canceled_after\": %zu, \"seconds\": %.3f}\n", status.transferred_bytes, now_s() - begun);
    return 0;
}

// LOW requests that never end, and meanwhile HIGH ones to memory that the target registers again before each.
int stale(const Options& options) {
    const auto engine = start(options);
    const Remote remote = open(*engine, options);
    const size_t size = options.sizes.front();
    uint8_t* memory = allocate(*engine, size + 65536);
    BatchID bulk[2] = {0, 0};
    uint64_t completed = 0;
    const auto keep_going = [&] {
        for (BatchID& one : bulk) {
            TransferStatus status;
            if (one != 0) expect(engine->getTransferStatus(one, status), "getTransferStatus");
            if (one != 0 && status.s == PENDING) continue;
            if (one != 0 && status.s != COMPLETED) fail("a LOW request: state %d, %s", status.s, status.reason);
            if (one != 0) expect(engine->freeBatch(one), "freeBatch");
            completed += one != 0;
            one = engine->allocateBatch(1);
            Request low = request(options, Request::WRITE, memory, remote, 0, size);
            low.priority = PRIO_LOW;
            expect(engine->submitTransfer(one, {low}), "submitTransfer");
        }
    };
    size_t states[FAILED + 1] = {};
    for (size_t round = 0; round < options.rounds; ++round) {
        expect(engine->sendNotification(remote.segment, {"register again", engine->getSegmentName()}),
               "sendNotification");
        uint64_t address = 0;
        while (address == 0) {
            keep_going();
            std::vector<Notification> received;
            expect(engine->receiveNotification(received), "receiveNotification");
            for (const Notification& one : received)
                if (one.name == "registered") address = std::stoull(one.msg);
        }
        Request high = request(options, Request::WRITE, memory + size, remote, 0, 64);
        high.target_offset = address;
        const BatchID batch = engine->allocateBatch(1);
        expect(engine->submitTransfer(batch, {high}), "submitTransfer");
        TransferStatus status;
        do {
            keep_going();
            expect(engine->getTransferStatus(batch, status), "getTransferStatus");
        } while (status.s == PENDING);
        ++states[status.s];
        if (status.s == FAILED && *status.reason == 0) fail("no reason");
        expect(engine->freeBatch(batch), "freeBatch");
    }
    for (const BatchID one : bulk)
        if (wait(*engine, one).s != COMPLETED) fail("a LOW request failed at the end");
    std::printf("{\"low_completed\": %" PRIu64 ", \"high_completed\": %zu, \"high_failed\": %zu}\n", completed,
                states[COMPLETED], states[FAILED]);
    std::fflush(stdout);
    std::string line;
    std::getline(std::cin, line);  // until the test has read the telemetry
    return 0;
}

// Two peers, one of which may die and return: each has its requests.
int two_peers(const Options& options) {
    const auto engine = start(options);
    const Remote remotes[] = {open(*engine, options), [&] {
                                  Options other = options;
                                  other.peer = options.other_peers.front();
                                  return open(*engine, other);
                              }()};
    const size_t size = options.sizes.front();
    uint8_t* memory = allocate(*engine, 2 * size);
    struct State {
        BatchID batch = 0;
        double submitted = 0, slowest = 0, slowest_failure = 0, retry = 0;
        uint64_t completed = 0, failed = 0, refused = 0, since_failure = 0;
    } states[2];
    std::printf("{\"begun\": %.6f}\n", now_s());
    std::fflush(stdout);
    const double end = now_s() + options.seconds;
    for (bool ends = false; !ends || states[0].batch != 0 || states[1].batch != 0; ends = ends || is_over(end)) {
        const double now = now_s();
        for (size_t i = 0; i < 2; ++i) {
            State& state = states[i];
            if (state.batch == 0) {
                if (ends || now < state.retry) continue;
                SegmentInfo info;  // its memory may be elsewhere after a restart
                Remote remote = remotes[i];
                if (state.failed + state.refused != 0 && state.since_failure == 0) {
                    if (!engine->getSegmentInfo(remote.segment, info).ok() || info.buffers.empty()) {
                        ++state.refused;
                        state.retry = now + 0.05;
                        continue;
                    }
                    remote.address = info.buffers.front().base;
                }
                state.batch = engine->allocateBatch(1);
                state.submitted = now_s();
                if (engine
                        ->submitTransfer(state.batch,
                                         {request(options, Request::WRITE, memory + i * size, remote, 0, size)})
                        .ok())
                    continue;
                ++state.refused;
                state.retry = now + 0.05;
                expect(engine->freeBatch(state.batch), "freeBatch");
                state.batch = 0;
                continue;
            }
            TransferStatus status;
            expect(engine->getTransferStatus(state.batch, status), "getTransferStatus");
            if (status.s == PENDING) continue;
            const double took = now_s() - state.submitted;
            if (status.s == COMPLETED) {
                ++state.completed;
                if (state.failed != 0 && ++state.since_failure == 1) {
                    std::printf("{\"served_again\": %zu}\n", i);
                    std::fflush(stdout);
                }
                state.slowest = std::max(state.slowest, took);
            } else {
                ++state.failed;
                state.since_failure = 0;
                state.slowest_failure = std::max(state.slowest_failure, took);
            }
            expect(engine->freeBatch(state.batch), "freeBatch");
            state.batch = 0;
        }
    }
    for (const State& state : states) {
        std::printf("{\"completed\": %" PRIu64 ", \"failed\": %" PRIu64 ", \"refused\": %" PRIu64
                    ", \"after\": %" PRIu64 ", \"slowest\": %.6f, \"slowest_failure\": %.6f}\n",
                    state.completed, state.failed, state.refused, state.since_failure, state.slowest,
                    state.slowest_failure);
    }
    return 0;
}

// HIGH requests of 64 KiB, one after the other, alone and with LOW ones that never end.
int qos(const Options& options) {
    const auto engine = start(options);
    const Remote remote = open(*engine, options);
    constexpr size_t kSmall = 65536;
    const size_t size = options.sizes.front();
    uint8_t* memory = allocate(*engine, size + kSmall);
    for (const bool beside : {false, true}) {
        std::vector<double> took;
        uint64_t low_bytes = 0;
        BatchID low = 0;
        const double begun = now_s();
        while (now_s() < begun + options.seconds) {
            const BatchID batch = engine->allocateBatch(1);
            const double submitted = now_s();
            expect(
                engine->submitTransfer(batch, {request(options, Request::WRITE, memory + size, remote, size, kSmall)}),
                "submitTransfer");
            TransferStatus status;
            do {
                if (beside && low == 0) {
                    low = engine->allocateBatch(1);
                    Request bulk = request(options, Request::WRITE, memory, remote, 0, size);
                    bulk.priority = PRIO_LOW;
                    expect(engine->submitTransfer(low, {bulk}), "submitTransfer");
                }
                if (low != 0) {
                    expect(engine->getTransferStatus(low, status), "getTransferStatus");
                    if (status.s != PENDING) {
                        low_bytes += status.transferred_bytes;
                        expect(engine->freeBatch(low), "freeBatch");
                        low = 0;
                    }
                }
                expect(engine->getTransferStatus(batch, status), "getTransferStatus");
            } while (status.s == PENDING);
            if (status.s != COMPLETED) fail("a HIGH request: state %d", status.s);
            took.push_back(now_s() - submitted);
            expect(engine->freeBatch(batch), "freeBatch");
        }
        if (low != 0) low_bytes += wait(*engine, low, 30).transferred_bytes;
        std::sort(took.begin(), took.end());
        std::printf(
            "{\"beside_low\": %s, \"requests\": %zu, \"p50_us\": %.1f, \"p99_us\": %.1f, \"low_bytes\": %" PRIu64 "}\n",
            beside ? "true" : "false", took.size(), 1e6 * took[took.size() / 2], 1e6 * took[took.size() * 99 / 100],
            low_bytes);
    }
    return 0;
}

}  // namespace check
