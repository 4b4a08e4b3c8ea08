// SPDX-License-Identifier: Apache-2.0
// Many buffers and many requests: the cost of 10 000 and 100 000 of them, every byte verified.
#include <cinttypes>
#include <cstdio>
#include <memory>
#include <vector>

#include "peer.h"
#include "tent_check.h"

namespace check {

using namespace rove::tent;
using peer::fail;
using peer::now_s;

namespace {

constexpr size_t kRequests = 1000;  // per batch

size_t count_pending(TransferEngine& engine, const std::vector<BatchID>& batches) {
    size_t pending = 0;
    for (const BatchID batch : batches) {
        std::vector<TransferStatus> list;
        expect(engine.getTransferStatus(batch, list), "getTransferStatus");
        for (const TransferStatus& one : list) pending += one.s == PENDING;
    }
    return pending;
}

}  // namespace

// Registers `rounds` buffers, and sends `depth` WRITEs of the first of `sizes` in all.
int crowd(const Options& options) {
    const size_t size = options.sizes.front(), bytes = options.depth * size, each = bytes / options.rounds;
    const auto engine = start(options);
    const Remote remote = check::open(*engine, options);
    if (bytes > remote.bytes || each * options.rounds != bytes || each % size != 0) fail("the sizes do not fit");
    std::vector<uint8_t> memory(bytes);
    peer::fill(memory.data(), bytes, options.seed + 1);

    const size_t before = peer::resident_bytes();
    double begun = now_s();
    for (size_t at = 0; at < bytes; at += each) expect(engine->registerLocalMemory(&memory[at], each), "a buffer");
    const double registering_s = now_s() - begun;
    const size_t registered = peer::resident_bytes();
    SegmentInfo info;
    expect(engine->getSegmentInfo(LOCAL_SEGMENT_ID, info), "what we publish");
    if (info.buffers.size() != options.rounds) fail("%zu buffers are published", info.buffers.size());

    std::vector<BatchID> batches;
    begun = now_s();
    for (size_t first = 0; first < options.depth; first += kRequests) {
        std::vector<Request> requests;
        for (size_t i = first; i < std::min(first + kRequests, options.depth); ++i)
            requests.push_back(request(options, Request::WRITE, &memory[i * size], remote, i * size, size));
        batches.push_back(engine->allocateBatch(requests.size()));
        expect(engine->submitTransfer(batches.back(), requests), "submitTransfer");
    }
    const double submitting_s = now_s() - begun;
    const size_t under_way = count_pending(*engine, batches), resident = peer::resident_bytes();
    for (const BatchID batch : batches)
        if (wait(*engine, batch).s != COMPLETED) fail("a batch is not complete");
    const double all_s = now_s() - begun;
    for (const BatchID batch : batches) expect(engine->freeBatch(batch), "freeBatch");
    verify_there(*engine, remote, remote.address, bytes, options.seed + 1);
    begun = now_s();
    for (size_t at = 0; at < bytes; at += each) expect(engine->unregisterLocalMemory(&memory[at], each), "a buffer");
    std::printf(
        "{\"buffers\": %zu, \"requests\": %zu, \"under_way\": %zu, \"registering_s\": %.3f, "
        "\"unregistering_s\": %.3f, \"submitting_s\": %.3f, \"all_s\": %.3f, \"bytes_per_buffer\": %.0f, "
        "\"bytes_per_request\": %.0f}\n",
        options.rounds, options.depth, under_way, registering_s, now_s() - begun, submitting_s, all_s,
        static_cast<double>(registered - before) / static_cast<double>(options.rounds),
        static_cast<double>(resident - registered) / static_cast<double>(options.depth));
    return 0;
}

}  // namespace check
