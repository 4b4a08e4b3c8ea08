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

Request request(const Options& options, Request::OpCode opcode, void* source, const Remote& remote, uint64_t offset,
                size_t length) {
    Request one;
    one.opcode = opcode;
    one.source = source;
    one.target_id = remote.segment;
    one.target_offset = remote.address + options.offset + offset;
    one.length = length;
    one.priority = options.priority;
    one.transport_hint = static_cast<TransportType>(options.hint);
    return one;
}

namespace {

const char* const kStates[] = {"INITIAL", "PENDING", "INVALID", "CANCELED", "COMPLETED", "TIMEOUT", "FAILED"};

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
        std::printf("{\"size\": %zu, \"write_gbps\": %.3f, \"read_gbps\": %.3f}\n", size,
                    gigabits / seconds[Request::WRITE], gigabits / seconds[Request::READ]);
    }
    std::vector<NicLoadStats> loads;
    expect(engine->getNicLoadStats(loads), "getNicLoadStats");
    for (const NicLoadStats& load : loads) {
        if (load.inflight_bytes != 0)
            fail("%s: %" PRIu64 " bytes in flight when nothing is", load.device_name.c_str(), load.inflight_bytes);
    }
    engine->printTrafficStats();
    expect(engine->freeLocalMemory(memory), "freeLocalMemory");
    return 0;
}

// Requests for some time, in each slot a WRITE and then its READ, which is verified. Arrivals are sampled, so that a
// test sees gaps when it lets rails die.
struct Slot {
    BatchID batch = 0;
    Request::OpCode opcode = Request::WRITE;
    uint64_t seed = 0;
    size_t arrived = 0;  // bytes of the present request
};

int stream(const Options& options) {
    constexpr double kStep = 0.002;
    const auto engine = start(options);
    const Remote remote = open(*engine, options);
    const size_t size = options.sizes.front();
    uint8_t* memory = allocate(*engine, options.depth * size);
    std::vector<Slot> slots(options.depth);
    std::array<size_t, 7> states{};
    uint64_t seed = 1000, total = 0, requests = 0;
    std::vector<uint64_t> samples;
    double longest = 0;
    const double begun = now_s(), end = begun + options.seconds;
    std::printf("{\"begun\": %.6f}\n", begun);
    std::fflush(stdout);
    size_t running = 0;
    std::vector<double> submitted(options.depth);
    for (bool ends = false; !ends || running != 0;) {
        for (size_t i = 0; i < slots.size(); ++i) {
            Slot& slot = slots[i];
            uint8_t* at = memory + i * size;
            if (slot.batch == 0) {
                if (ends) continue;
                if (slot.opcode == Request::WRITE) peer::fill(at, size, slot.seed = ++seed);
                if (slot.opcode == Request::READ) std::memset(at, 0, size);
                slot.batch = engine->allocateBatch(1);
                const Status status =
                    engine->submitTransfer(slot.batch, {request(options, slot.opcode, at, remote, i * size, size)});
                if (!status.ok()) {
                    if (!options.tolerate) expect(status, "submitTransfer");
                    ++states[FAILED];
                    expect(engine->freeBatch(slot.batch), "freeBatch");
                    slot.batch = 0;
                    usleep(1000);
                    continue;
                }
                slot.arrived = 0;
                submitted[i] = now_s();
                ++running;
            }
            TransferStatus status;
            expect(engine->getTransferStatus(slot.batch, 0, status), "getTransferStatus");
            total += status.transferred_bytes - slot.arrived;
            slot.arrived = status.transferred_bytes;
            if (status.s == PENDING) continue;
            longest = std::max(longest, now_s() - submitted[i]);
            ++states[status.s];
            ++requests;
            --running;
            expect(engine->freeBatch(slot.batch), "freeBatch");
            slot.batch = 0;
            if (status.s != COMPLETED) {
                if (!options.tolerate)
                    fail("a request of slot %zu: %s after %.3f s", i, kStates[status.s], now_s() - begun);
                slot.opcode = Request::WRITE;
                continue;
            }
            if (slot.opcode == Request::READ) {
                const size_t differs = peer::first_difference(at, size, slot.seed);
                if (differs != size) fail("byte %zu of slot %zu is wrong after %.3f s", differs, i, now_s() - begun);
            }
            slot.opcode = slot.opcode == Request::WRITE ? Request::READ : Request::WRITE;
        }
        ends = ends || is_over(end);
        const double now = now_s();
        while (begun + static_cast<double>(samples.size() + 1) * kStep < now) samples.push_back(total);
    }
    std::printf("{\"requests\": %" PRIu64 ", \"completed\": %zu, \"failed\": %zu, \"timeout\": %zu, \"bytes\": %" PRIu64
                ", \"longest\": %.6f, \"step\": %.4f, \"samples\": [",
                requests, states[COMPLETED], states[FAILED], states[TIMEOUT], total, longest, kStep);
    for (size_t i = 0; i < samples.size(); ++i) std::printf("%s%" PRIu64, i == 0 ? "" : ", ", samples[i]);
    std::printf("]}\n");
    std::vector<NicLoadStats> loads;
    expect(engine->getNicLoadStats(loads), "getNicLoadStats");
    for (const NicLoadStats& load : loads)
        if (load.inflight_bytes != 0)
            fail("%s: %" PRIu64 " bytes in flight when nothing is", load.device_name.c_str(), load.inflight_bytes);
    engine->printTrafficStats();
    return 0;
}

// Requests of one slice over one rail end in the order of their submission, whatever they wait for.
int order(const Options& options) {
    const auto engine = start(options);
    const Remote remote = open(*engine, options);
    const size_t size = options.sizes.front();
    uint8_t* memory = allocate(*engine, size);
    std::vector<BatchID> batches;
    for (size_t i = 0; i < options.depth; ++i) {
        batches.push_back(engine->allocateBatch(1));
        const Request one = request(options, Request::WRITE, memory, remote, 0, size);
        expect(engine->submitTransfer(batches.back(), {one}), "submitTransfer");
    }
    const auto is_done = [&](size_t i) {
        TransferStatus status;
        expect(engine->getTransferStatus(batches[i], status), "getTransferStatus");
        if (status.s != PENDING && status.s != COMPLETED) fail("request %zu: %s", i, kStates[status.s]);
        return status.s == COMPLETED;
    };
    size_t done = 0;  // all before it are done
    for (const double end = now_s() + options.seconds; done < batches.size();) {
        if (now_s() > end) fail("request %zu is not done", done);
        for (size_t last = batches.size(); last-- > done;) {
            if (!is_done(last)) continue;
            for (; done < last; ++done)
                if (!is_done(done)) fail("request %zu is done before request %zu", last, done);
            ++done;
        }
    }
    for (const BatchID batch : batches) expect(engine->freeBatch(batch), "freeBatch");
    return 0;
}

constexpr Scenario kAll[] = {
    {"anew", "a target that registers its memory again between requests", anew},
    {"cancel", "a request that is cancelled under way", cancel},
    {"dead-hosts", "opening a live peer beside hosts that do not answer", dead_hosts},
    {"deadlines", "requests with deadlines of their own", deadlines},
    {"errors", "what is refused, and how", errors},
    {"crowd", "many buffers, and many requests under way at once", crowd},
    {"fanout", "HIGH requests to one peer, alone and beside LOW ones to all others", fanout},
    {"faults", "WRITEs and READs to two peers until standard input ends", faults},
    {"files", "WRITEs and READs of a file, and what is refused", files},
    {"gone", "a peer whose host dies", gone},
    {"hold", "an open segment, and no call for some time", hold},
    {"leave", "a program ends with an engine", leave},
    {"names", "segments by name, and a store that ends", names},
    {"obey", "what the lines of standard input say", obey},
    {"open", "opening a peer, once", open_once},
    {"order", "whether requests of one slice are done in the order of their submits", order},
    {"qos", "HIGH requests alone and beside LOW ones", qos},
    {"quit", "a target is told to end", quit},
    {"stale", "requests to memory that was registered anew, beside others", stale},
    {"two-peers", "requests to two peers", two_peers},
    {"visit", "WRITEs and READs to all peers at once, verified at both ends", visit},
    {"weights", "READs of memory that the target can only read itself", weights},
    {"stream", "WRITEs and READs that go on for some time", stream},
    {"move", "batches of WRITEs and READs", move},
};

}  // namespace

const std::span<const Scenario> kScenarios(kAll);

}  // namespace check
