// SPDX-License-Identifier: Apache-2.0
// What can be said at a prompt: commands, each a line of text of words, alternatives with #, and <what the user fills
// in>, for DPDK's parser.
#pragma once

#include <cmdline_parse.h>
#include <cmdline_parse_num.h>
#include <cmdline_parse_string.h>

#include <deque>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "runtime/report.h"

namespace rove::prompt {

using datapath::Report;

using Words = std::vector<std::string>;
// Returns "" or what is wrong.
using Action = std::function<std::string(const Words&)>;
using Make = std::function<Report(const Words&)>;

class Commands {
  public:
    Commands() = default;
    Commands(const Commands&) = delete;
    Commands& operator=(const Commands&) = delete;

    // One that shall not be listed, since it is another's second spelling, has no help. "<number>" is a number to the
    // parser too.
    void add(std::string syntax, std::string help, Action action);
    // A `show` with a table and, by --json, a line of JSON. When `make` returns null there is no such thing, and
    // `missing` says so.
    void show(
        const std::string& syntax, const std::string& help, const Make& make,
        const Action& missing = [](const Words&) { return std::string("nothing to show"); });
    // The same, and with "all" behind, as dpdk-testpmd has it.
    void show_all(const std::string& syntax, const std::string& help, const Make& make);

    // For the parser, null at its end; no command may be added afterwards. Lives as long as this.
    cmdline_parse_ctx_t* compile();
    // What was wrong with the command that the parser has just run; "" if nothing.
    std::string take_wrong() { return std::exchange(wrong_, {}); }

    // All of them, and what was possible instead of `line`, which is none.
    std::string list() const;
    std::string explain(const std::string& line) const;

  private:
    struct Command {
        Commands* owner;
        std::string syntax, help;
        Action action;
        std::vector<std::string> words{};  // of syntax; what the tokens point to
        std::deque<cmdline_parse_token_string_t> tokens{};
        std::deque<cmdline_parse_token_num_t> numbers{};  // so that --json is none
        cmdline_parse_inst_t* parsed = nullptr;
        bool is_listed() const { return !help.empty() && !syntax.ends_with("--json"); }
    };
    static void run(void* result, cmdline*, void* data);
    static void compile(Command& command);

    std::deque<Command> commands_;  // never moved
    std::vector<cmdline_parse_inst_t*> table_;
    std::string wrong_;
};

}  // namespace rove::prompt
