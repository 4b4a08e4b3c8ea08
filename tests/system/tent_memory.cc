// SPDX-License-Identifier: Apache-2.0
// Memory of the target that changes, and memory that it may only read.
#include <cstdio>
#include <cstring>

#include "peer.h"
#include "tent_check.h"

namespace check {

using namespace rove::tent;
using peer::fail;

namespace {

void move_once(TransferEngine& engine, const Request& one, const char* what) {
    const BatchID batch = engine.allocateBatch(1);
    expect(engine.submitTransfer(batch, {one}), what);
    const TransferStatus status = wait(engine, batch);
    if (status.s != COMPLETED) fail("%s: state %d", what, static_cast<int>(status.s));
    expect(engine.freeBatch(batch), "freeBatch");
}

}  // namespace

// The target registers its memory again under other keys between requests; none of them fails.
int anew(const Options& options) {
    const auto engine = start(options);
    const Remote remote = open(*engine, options);
    const size_t bytes = options.sizes.front();
    uint8_t* memory = allocate(*engine, bytes);
    for (uint64_t round = 0; round < options.rounds; ++round) {
        for (const auto opcode : {Request::WRITE, Request::READ}) {
            peer::fill(memory, bytes, opcode == Request::WRITE ? round : 0);
            move_once(*engine, request(options, opcode, memory, remote, 0, bytes),
                      opcode == Request::WRITE ? "WRITE" : "READ");
            verify_there(*engine, remote, remote.address, bytes, round);
            if (peer::first_difference(memory, bytes, round) != bytes) fail("READ brought a wrong byte");
            expect(engine->sendNotification(remote.segment, {"register anew", ""}), "sendNotification");
            verify_there(*engine, remote, remote.address, bytes, round);  // the target has done so
        }
    }
    return 0;
}

// READs of memory that the target can only read itself.
int weights(const Options& options) {
    const auto engine = start(options);
    const Remote remote = open(*engine, options);
    const size_t bytes = options.sizes.front();
    uint8_t* memory = allocate(*engine, bytes);
    move_once(*engine, request(options, Request::READ, memory, remote, 0, bytes), "READ");
    if (peer::first_difference(memory, bytes, options.seed) != bytes) fail("READ brought a wrong byte");
    const BatchID batch = engine->allocateBatch(1);
    expect_code(engine->submitTransfer(batch, {request(options, Request::WRITE, memory, remote, 0, bytes)}),
                Code::kInvalidArgument, "WRITE to a mapping that is read-only");
    return 0;
}

}  // namespace check
