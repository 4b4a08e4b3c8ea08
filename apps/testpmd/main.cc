// SPDX-License-Identifier: Apache-2.0
// Implements rove-testpmd, which drives rove through verbs or the transfer engine. The exit status is 0 if all runs
// succeeded, 1 if one failed or something in the environment is missing, and 2 after a wrong command line.
#include <signal.h>

#include <cstdio>
#include <cstdlib>
#include <optional>

#include "app.h"
#include "commands.h"
#include "options.h"
#include "prompt/prompt.h"
#include "segment.h"

namespace {

using namespace rove::testpmd;

volatile sig_atomic_t signalled = 0;

int run(Options& options) {
    App app(options);
    if (!options.tent.empty()) try_engine(options);
    rove::prompt::Commands commands;
    add_commands(commands, app);
    std::optional<rove::prompt::Prompt> prompt;
    if (options.interactive || !options.cmdline_file.empty()) prompt.emplace(commands);
    if (!prompt || options.auto_start) {
        if (options.plan.mode != Mode::kTarget)
            if (const std::string wrong = app.start(); !wrong.empty()) throw Failure(wrong);
    }
    if (!options.cmdline_file.empty()) {
        if (const std::string wrong = prompt->execute_file(options.cmdline_file); !wrong.empty()) {
            app.end();
            throw Failure("--cmdline-file: " + wrong);
        }
    }
    if (options.interactive && !prompt->quit()) prompt->open();
    // Without a prompt, an initiator ends with its run.
    const auto over = [&] {
        if (signalled != 0 || (prompt && prompt->quit())) return true;
        return !options.interactive && options.plan.mode != Mode::kTarget && !app.running();
    };
    while (!over())
        if (app.turn() && options.interactive) prompt->poll();
    app.end();
    return app.failed() ? 1 : 0;
}

}  // namespace

int main(int argc, char** argv) {
    Options options = parse(argc, argv);
    setenv("ROVE_CONFIG", options.config.c_str(), 1);
    setenv("ROVE_EAL", options.eal.c_str(), 1);
    struct sigaction action {};
    action.sa_handler = [](int) { signalled = 1; };
    sigaction(SIGINT, &action, nullptr);
    sigaction(SIGTERM, &action, nullptr);
    signal(SIGPIPE, SIG_IGN);
    try {
        return run(options);
    } catch (const Failure& failure) {
        std::fprintf(stderr, "rove-testpmd: %s\n", failure.what());
        return 1;
    }
}
