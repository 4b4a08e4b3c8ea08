// SPDX-License-Identifier: Apache-2.0
// Executes the lines of standard input and prints the results, for tests that read telemetry between two requests.
#include <cstring>
#include <iostream>
#include <sstream>

#include "peer.h"
#include "tent_check.h"

namespace check {

using namespace rove::tent;
using peer::fail;

// A line is PRIORITY BYTES [HINT [POLICY]]: a WRITE that the target verifies (for a file, this program), and the READ
// of it.
int obey(const Options& options) {
    const auto engine = start(options);
    const Remote remote = open(*engine, options);
    uint8_t* memory = allocate(*engine, remote.bytes);
    std::printf("{\"ready\": true}\n");
    std::fflush(stdout);
    uint64_t seed = 7000;
    for (std::string line; std::getline(std::cin, line);) {
        std::istringstream words(line);
        Options how = options;
        size_t bytes = 0;
        std::string policy;
        words >> how.priority >> bytes >> how.hint >> policy;
        if (bytes == 0 || bytes > remote.bytes) fail("'%s' is not understood", line.c_str());
        Status refused;
        TransferStatus status;
        for (const auto opcode : {Request::WRITE, Request::READ}) {
            if (opcode == Request::WRITE) peer::fill(memory, bytes, ++seed);
            if (opcode == Request::READ) std::memset(memory, 0, bytes);
            Request one = request(how, opcode, memory, remote, 0, bytes);
            one.policy_name = policy;
            const BatchID batch = engine->allocateBatch(1);
            refused = engine->submitTransfer(batch, {one});
            if (refused.ok()) status = wait(*engine, batch);
            expect(engine->freeBatch(batch), "freeBatch");
            if (!refused.ok() || status.s != COMPLETED) break;
            if (opcode == Request::WRITE && options.peer.starts_with("file:")) continue;
            if (opcode == Request::WRITE) verify_there(*engine, remote, remote.address, bytes, seed);
            if (opcode == Request::READ && peer::first_difference(memory, bytes, seed) != bytes)
                fail("READ brought a wrong byte");
        }
        std::printf("{\"code\": \"%s\", \"state\": %d}\n", name(refused.code()), status.s);
        std::fflush(stdout);
    }
    return 0;
}

}  // namespace check
