// SPDX-License-Identifier: Apache-2.0
// Opening peers: while hosts are silent, until one becomes silent, and without success.
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>

#include "peer.h"
#include "tent_check.h"

namespace check {

using namespace rove::tent;
using peer::fail;
using peer::now_s;

// Opens `peer` repeatedly while threads open the silent hosts 192.0.2.101 to .116.
int dead_hosts(const Options& options) {
    constexpr int kHosts = 16, kTimes = 10;
    const auto engine = start(options);
    std::atomic<int> begun{0};
    for (int i = 0; i < kHosts; ++i) {
        std::thread([&, i] {
            const std::string host = "192.0.2." + std::to_string(101 + i) + ":5555";
            for (SegmentID segment;;) {
                begun.fetch_add(1);
                if (engine->openSegment(segment, host).ok()) fail("%s was opened", host.c_str());
            }
        }).detach();
    }
    while (begun.load() < kHosts) usleep(1000);
    usleep(200'000);
    double slowest = 0;
    uint8_t* memory = allocate(*engine, 4096);
    for (int i = 0; i < kTimes; ++i) {
        const double before = now_s();
        const Remote remote = open(*engine, options);
        const BatchID batch = engine->allocateBatch(1);
        expect(engine->submitTransfer(batch, {request(options, Request::READ, memory, remote, 0, 4096)}), "submit");
        if (wait(*engine, batch).s != COMPLETED) fail("a READ beside dead hosts");
        expect(engine->freeBatch(batch), "freeBatch");
        expect(engine->closeSegment(remote.segment), "closeSegment");
        slowest = std::max(slowest, now_s() - before);
    }
    std::printf("{\"slowest\": %.6f}\n", slowest);
    std::fflush(stdout);
    _exit(0);  // the threads wait for hosts that do not answer
}

// Opens it once and reports whether that works, and why not.
int open_once(const Options& options) {
    const auto engine = start(options);
    SegmentID segment;
    expect(engine->openSegment(segment, options.peer), "openSegment");
    return 0;
}

// Asks a target to end.
int quit(const Options& options) {
    const auto engine = start(options);
    SegmentID segment;
    expect(engine->openSegment(segment, options.peer), "openSegment");
    expect(engine->sendNotification(segment, {"quit", ""}), "sendNotification");
    return 0;
}

// Ends with an engine while threads open and close a peer.
int leave(const Options& options) {
    const auto engine = start(options);
    std::atomic<int> opened{0};
    for (int i = 0; i < 4; ++i) {
        std::thread([&] {
            for (SegmentID segment;; opened.fetch_add(1)) {
                expect(engine->openSegment(segment, options.peer), "openSegment");
                expect(engine->closeSegment(segment), "closeSegment");
            }
        }).detach();
    }
    while (opened.load() < 10) usleep(1000);
    std::exit(0);
}

// Opens a segment and makes no call for some time.
int hold(const Options& options) {
    const auto engine = start(options);
    open(*engine, options);
    std::printf("{\"open\": true}\n");
    std::fflush(stdout);
    usleep(static_cast<useconds_t>(options.seconds * 1e6));
    return 0;
}

// Waits until a known peer is reported as lost.
int gone(const Options& options) {
    const auto engine = start(options);
    const Remote remote = open(*engine, options);
    uint8_t* memory = allocate(*engine, 4096);
    std::printf("{\"open\": true}\n");
    std::fflush(stdout);
    for (const double end = now_s() + options.seconds; now_s() < end; usleep(50'000)) {
        const BatchID batch = engine->allocateBatch(1);
        const Status status =
            engine->submitTransfer(batch, {request(options, Request::WRITE, memory, remote, 0, 4096)});
        if (status.ok()) {
            wait(*engine, batch);
        } else if (status.message().find("has ended") != std::string::npos) {
            std::printf("{\"gone\": true}\n");
            return 0;
        }
        expect(engine->freeBatch(batch), "freeBatch");
    }
    fail("the peer is still there");
}

}  // namespace check
