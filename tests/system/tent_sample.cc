// SPDX-License-Identifier: Apache-2.0
// The C++ samples of the documents (tent-qos, tent-transport-selector) as a program: READs of our own segment. Ends
// with "ok".
#include <cstdio>
#include <cstring>

#include "tent/transfer_engine.h"

using namespace mooncake::tent;

namespace {

void check(const Status& status) {
    if (status.ok()) return;
    std::fprintf(stderr, "FAIL: %s\n", status.ToString().c_str());
    std::exit(1);
}

}  // namespace

int main() {
    constexpr size_t size = 300000;
    rove::tent::Settings settings;
    settings.set("rpc_server_hostname", "127.0.0.1");
    TransferEngine engine(settings);
    check(engine.startStatus());
    void *buffer = nullptr, *remote = nullptr;
    check(engine.allocateLocalMemory(&buffer, size));
    check(engine.allocateLocalMemory(&remote, size, "cpu:0"));
    std::memset(remote, 'r', size);
    SegmentID segment_id = 99;
    check(engine.openSegment(segment_id, ""));
    const BatchID batch_id = engine.allocateBatch(2);

    // Create request with default priority (HIGH)
    Request req;
    req.opcode = Request::OpCode::READ;
    req.source = buffer;
    req.target_id = segment_id;
    req.target_offset = reinterpret_cast<uint64_t>(remote);
    req.length = size;
    // req.priority is PRIO_HIGH by default

    // Or specify priority explicitly
    req.priority = PRIO_MEDIUM;  // or PRIO_HIGH, PRIO_LOW

    // Submit the request
    check(engine.submitTransfer(batch_id, {req}));

    Request r{};
    r.opcode = Request::WRITE;
    r.source = buffer;
    r.target_id = segment_id;
    r.target_offset = reinterpret_cast<uint64_t>(remote);
    r.length = 4096;
    r.transport_hint = TransportType::TCP;  // UNSPEC (default) defers to policy
    check(engine.submitTransfer(batch_id, {r}));

    TransferStatus status;
    do check(engine.getTransferStatus(batch_id, status));
    while (status.s == PENDING);
    if (status.s != COMPLETED || std::memcmp(buffer, remote, size) != 0) {
        std::fprintf(stderr, "FAIL: state %d\n", status.s);
        return 1;
    }
    std::puts("ok");
    return 0;
}
