// SPDX-License-Identifier: Apache-2.0
// Implements rove-bridge, which joins a mesh to a port. The exit status is 0 after a request to end, 1 if something in
// the environment is missing, and 2 after a wrong command line.
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "bridge/bridge.h"
#include "bridge/report.h"
#include "options.h"
#include "prompt/prompt.h"
#include "prompt/table.h"

namespace {

using namespace rove::bridge;
using rove::prompt::Commands;
using rove::prompt::Words;

Bridge* running = nullptr;  // for the signal handler

void add_commands(Commands& commands, const Bridge& bridge, Report& cleared) {
    const auto report = [&bridge](Report (*make)(const Bridge&)) {
        return [&bridge, make](const Words&) { return make(bridge); };
    };
    // Reports whose counters restart at the last `clear stats`.
    const auto counted = [&bridge, &cleared](const char* name, Report (*make)(const Bridge&)) {
        return [&bridge, &cleared, name, make](const Words&) {
            return rove::prompt::difference(make(bridge), cleared[name]);
        };
    };
    commands.show_all("show port info", "MAC, MTU and link of both sides", report(report_link));
    commands.show_all("show port stats", "frames and bytes", counted("ports", report_ports));
    commands.show("show members", "members of the mesh: addresses, frames, bytes, drops",
                  counted("members", report_members));
    commands.show("show drops", "forwarded frames by destination, dropped frames by reason",
                  counted("frames", report_frames));
    commands.show("show neighbours", "hosts at the uplink", report(report_neighbours));
    commands.add("clear stats", "restart all counters", [&bridge, &cleared](const Words&) {
        cleared = {
            {"ports", report_ports(bridge)}, {"members", report_members(bridge)}, {"frames", report_frames(bridge)}};
        return std::string();
    });
}

int fail(const std::string& why) {
    std::fprintf(stderr, "rove-bridge: %s\n", why.c_str());
    return 1;
}

}  // namespace

int main(int argc, char** argv) {
    const Options options = parse_options(argc, argv);
    std::string error;
    const std::unique_ptr<Bridge> bridge = Bridge::open(options.bridge, &error);
    if (bridge == nullptr) return fail(error);
    running = bridge.get();
    struct sigaction action {};
    action.sa_handler = [](int) { running->stop(); };
    sigaction(SIGINT, &action, nullptr);
    sigaction(SIGTERM, &action, nullptr);
    signal(SIGPIPE, SIG_IGN);
    std::printf("bridge: uplink %s, MAC %s, path MTU %u\n", bridge->uplink_name().c_str(),
                rove::datapath::to_string(bridge->mac()).c_str(), bridge->path_mtu());
    std::fflush(stdout);

    Commands commands;
    Report cleared = Report::object();
    add_commands(commands, *bridge, cleared);
    rove::prompt::Prompt prompt(commands);
    if (!options.cmdline_file.empty())
        if (const std::string wrong = prompt.execute_file(options.cmdline_file); !wrong.empty())
            return fail("--cmdline-file: " + wrong);
    if (options.interactive && !prompt.quit()) {
        prompt.open();
        bridge->poller().add(STDIN_FILENO, [&] {
            prompt.poll();
            if (prompt.quit()) bridge->stop();
        });
    }
    if (prompt.quit()) return 0;
    start_telemetry(*bridge);
    bridge->run();
    stop_telemetry();
    return 0;
}
