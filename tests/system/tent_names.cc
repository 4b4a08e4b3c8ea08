// SPDX-License-Identifier: Apache-2.0
// Segments by name, with a metadata store that ends meanwhile.
#include <unistd.h>

#include <cstdio>

#include "peer.h"
#include "tent_check.h"

namespace check {

using namespace rove::tent;
using peer::fail;
using peer::now_s;

namespace {

// Waits until opening `name` returns `code`.
void wait_until(TransferEngine& engine, const std::string& name, Code code, const char* what) {
    Status status;
    for (const double end = now_s() + 10; now_s() < end; usleep(10'000)) {
        SegmentID segment;
        status = engine.openSegment(segment, name);
        if (status.ok()) expect(engine.closeSegment(segment), "closeSegment");
        if (status.code() == code) break;
    }
    expect_code(status, code, what);
    std::fflush(stdout);
}

}  // namespace

// `peer` was killed; the other one gets a request to end.
int names(const Options& options) {
    const auto engine = start(options);
    SegmentID segment;
    expect_code(engine->openSegment(segment, "nobody"), Code::kInvalidArgument, "no such name");
    const double begun = now_s();
    expect_code(engine->openSegment(segment, options.peer), Code::kRpcServiceError, "a process that was killed");
    if (now_s() - begun > 2) fail("it took %.1f s", now_s() - begun);
    expect(engine->openSegment(segment, options.other_peers.front()), "openSegment");
    expect(engine->sendNotification(segment, {"quit", ""}), "sendNotification");
    expect(engine->closeSegment(segment), "closeSegment");
    wait_until(*engine, options.other_peers.front(), Code::kInvalidArgument, "a process that has ended");
    wait_until(*engine, options.other_peers.front(), Code::kMetadataError, "no store");
    return 0;
}

}  // namespace check
