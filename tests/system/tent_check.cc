// SPDX-License-Identifier: Apache-2.0
// The TENT engine between two processes, every byte verified. `target` registers memory, prints its address, and makes
// the checks that the other side requests; the others are the initiator's scenarios. They print JSON lines and fail
// with a line on stderr.
#include "tent_check.h"

#include <sys/mman.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <cinttypes>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <sstream>

#include "peer.h"

namespace check {

using namespace rove::tent;
using peer::fail;
using peer::now_s;

std::unique_ptr<TransferEngine> start(const Options& options) {
    Settings settings{options.config, {}};
    settings.set("rpc_server_hostname", "127.0.0.1");
    for (const std::string& one : options.set) {
        const size_t equals = one.find('=');
        settings.set(one.substr(0, equals), one.substr(equals + 1));
    }
    auto engine = std::make_unique<TransferEngine>(settings);
    if (!engine->available()) fail("engine: %s", engine->startStatus().ToString().c_str());
    return engine;
}

void expect(const Status& status, const char* what) {
    if (!status.ok()) fail("%s: %s", what, status.ToString().c_str());
}

void expect_code(const Status& status, Code code, const char* what) {
    if (status.code() != code) fail("%s: %s instead of %s", what, status.ToString().c_str(), name(code));
    std::printf("{\"case\": \"%s\", \"code\": \"%s\"}\n", what, name(code));
}

uint8_t* allocate(TransferEngine& engine, size_t bytes, Permission permission) {
    void* memory = nullptr;
    expect(engine.allocateLocalMemory(&memory, bytes, MemoryOptions{.perm = permission}), "allocateLocalMemory");
    return static_cast<uint8_t*>(memory);
}

TransferStatus wait(TransferEngine& engine, BatchID batch, double patience_s) {
    const double deadline = now_s() + patience_s;
    TransferStatus status;
    do {
        expect(engine.getTransferStatus(batch, status), "getTransferStatus");
        if (status.s != PENDING) return status;
    } while (now_s() < deadline);
    fail("a batch is not done after %.0f s", patience_s);
}

Remote open(TransferEngine& engine, const Options& options) {
    Remote remote;
    const double deadline = now_s() + 10;
    Status status;
    do {
        status = engine.openSegment(remote.segment, options.peer);
        if (!status.ok()) usleep(20'000);
    } while (!status.ok() && now_s() < deadline);
    expect(status, "openSegment");
    SegmentInfo info;
    expect(engine.getSegmentInfo(remote.segment, info), "getSegmentInfo");
    if (info.buffers.empty()) fail("the target has registered nothing");
    for (const auto& buffer : info.buffers) {
        if (buffer.length <= remote.bytes) continue;
        remote.address = buffer.base;
        remote.bytes = buffer.length;
    }
    return remote;
}

// Makes the target verify its own memory.
void verify_there(TransferEngine& engine, const Remote& remote, uint64_t address, size_t bytes, uint64_t seed) {
    static uint64_t asked = 0;
    const uint64_t question = ++asked;
    std::ostringstream text;
    text << question << ' ' << seed << ' ' << address << ' ' << bytes << ' ' << engine.getSegmentName();
    expect(engine.sendNotification(remote.segment, {"check", text.str()}), "sendNotification");
    const double deadline = now_s() + 20;
    while (now_s() < deadline) {
        std::vector<Notification> received;
        expect(engine.receiveNotification(received), "receiveNotification");
        for (const Notification& one : received) {
            std::istringstream words(one.msg);
            uint64_t answered = 0, differs = 0;
            words >> answered >> differs;
            if (one.name != "checked" || answered != question) continue;
            if (differs != bytes) fail("the target's byte %" PRIu64 " of %zu is wrong", differs, bytes);
            return;
        }
        usleep(200);
    }
    fail("the target did not answer");
}

namespace {

volatile sig_atomic_t told = 0;  // SIGUSR1 has arrived

// Maps and registers memory that we can only read ourselves, filled with the first content.
uint8_t* map_read_only(TransferEngine& engine, const Options& options) {
    const int fd = memfd_create("weights", MFD_CLOEXEC);
    if (fd < 0 || ftruncate(fd, static_cast<off_t>(options.bytes)) != 0) fail("memfd_create: %s", strerror(errno));
    void* writable = mmap(nullptr, options.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    void* memory = mmap(nullptr, options.bytes, PROT_READ, MAP_PRIVATE, fd, 0);
    if (writable == MAP_FAILED || memory == MAP_FAILED) fail("mmap: %s", strerror(errno));
    peer::fill(static_cast<uint8_t*>(writable), options.bytes, options.seed);
    expect(engine.registerLocalMemory(memory, options.bytes, Permission::kGlobalReadOnly), "a read-only mapping");
    return static_cast<uint8_t*>(memory);
}

int run_target(const Options& options) {
    const auto engine = start(options);
    const Permission permission = options.read_only ? Permission::kGlobalReadOnly : Permission::kGlobalReadWrite;
    std::vector<uint8_t> own(options.own ? options.bytes : 0);
    if (options.own) expect(engine->registerLocalMemory(own.data(), own.size(), permission), "registerLocalMemory");
    uint8_t* memory = options.mapped ? map_read_only(*engine, options)
                      : options.own  ? own.data()
                                     : allocate(*engine, options.bytes, permission);
    // Peers may write there from the registration on.
    if (!options.mapped && options.seed != 0) peer::fill(memory, options.bytes, options.seed);
    std::printf("{\"segment\": \"%s\", \"address\": %" PRIu64 "}\n", engine->getSegmentName().c_str(),
                reinterpret_cast<uint64_t>(memory));
    std::fflush(stdout);
    const auto register_anew = [&] {
        Status status;
        const double deadline = now_s() + 10;
        do status = engine->unregisterLocalMemory(memory, options.bytes);  // tcp may be serving a peer from it
        while (status.code() == Code::kInvalidArgument && now_s() < deadline);
        expect(status, "unregisterLocalMemory");
        expect(engine->registerLocalMemory(memory, options.bytes, permission), "registerLocalMemory");
    };
    for (const double end = now_s() + options.seconds; now_s() < end && getppid() != 1;
         usleep(options.lazy ? 20'000 : 500)) {
        if (told != 0) {
            told = 0;
            register_anew();
        }
        std::vector<Notification> received;
        expect(engine->receiveNotification(received), "receiveNotification");
        for (const Notification& one : received) {
            std::printf("{\"notification\": \"%s\"}\n", one.name.c_str());
            std::fflush(stdout);
            if (one.name == "quit") return 0;
            if (one.name == "register anew") register_anew();
            std::istringstream words(one.msg);
            if (one.name == "register again") {
                // This uses another key at the same place.
                static uint8_t again[65536];
                std::string sender;
                words >> sender;
                (void)engine->unregisterLocalMemory(again, sizeof(again));
                expect(engine->registerLocalMemory(again, sizeof(again)), "registerLocalMemory");
                SegmentID segment;
                expect(engine->openSegment(segment, sender), "openSegment of the asker");
                expect(engine->sendNotification(segment,
                                                {"registered", std::to_string(reinterpret_cast<uint64_t>(again))}),
                       "the answer");
                expect(engine->closeSegment(segment), "closeSegment");
            }
            if (one.name != "check") continue;
            uint64_t question = 0, seed = 0, address = 0, bytes = 0;
            std::string sender;
            words >> question >> seed >> address >> bytes >> sender;
            const size_t differs = peer::first_difference(reinterpret_cast<uint8_t*>(address), bytes, seed);
            SegmentID segment;
            expect(engine->openSegment(segment, sender), "openSegment of the asker");
            expect(engine->sendNotification(segment,
                                            {"checked", std::to_string(question) + " " + std::to_string(differs)}),
                   "the answer");
            expect(engine->closeSegment(segment), "closeSegment");
        }
    }
    return 0;
}

}  // namespace

bool is_over(double end) {
    return told != 0 || now_s() >= end;
}

}  // namespace check

int main(int argc, char** argv) {
    std::signal(SIGUSR1, [](int) { check::told = 1; });
    check::Options options;
    CLI::App app{"The TENT engine between two processes, every byte verified."};
    app.require_subcommand(1);
    const auto common = [&](CLI::App* command) {
        command->add_option("--config", options.config, "the engine's TOML file");
        command->add_option("--set", options.set, "KEY=VALUE of the engine's configuration");
        command->add_option("--peer", options.peer, "HOST:PORT of the target");
        command->add_option("--other-peer", options.other_peers, "HOST:PORT of other targets")->delimiter(',');
        command->add_option("--bytes", options.bytes, "memory of the target; bytes under way");
        command->add_option("--seed", options.seed, "of the target's first content; 0: it is zero");
        command->add_option("--seconds", options.seconds, "how long, unless SIGUSR1 comes before");
        command->add_option("--sizes", options.sizes, "bytes of a request")->delimiter(',');
        command->add_option("--depth", options.depth, "requests of a batch, or under way");
        command->add_option("--rounds", options.rounds, "batches of each kind");
        command->add_option("--offset", options.offset, "of all requests, into the target's memory");
        command->add_option("--priority", options.priority, "0, 1, 2");
        command->add_option("--hint", options.hint, "transport_hint");
        command->add_flag("--read-only", options.read_only, "the target lets others only read");
        command->add_flag("--own", options.own, "the target's memory is the program's own; SIGUSR1 registers it anew");
        command->add_flag("--mapped", options.mapped, "the target can only read its memory itself");
        command->add_flag("--tolerate", options.tolerate, "failed requests are counted and are no failure");
        command->add_flag("--lazy", options.lazy, "sleep between looks at a batch; of a target: for longer");
        return command;
    };
    int status = 1;
    common(app.add_subcommand("target", "memory for others"))->callback([&] { status = check::run_target(options); });
    for (const auto& scenario : check::kScenarios)
        common(app.add_subcommand(scenario.name, scenario.help))->callback([&] { status = scenario.run(options); });
    CLI11_PARSE(app, argc, argv);
    return status;
}
