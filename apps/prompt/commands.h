// SPDX-License-Identifier: Apache-2.0
// Holds the commands of a prompt for DPDK's parser. A command's syntax is a line of words, alternatives separated by #,
// and <placeholders>.
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
// Returns "" or an error message.
using Action = std::function<std::string(const Words&)>;
using Make = std::function<Report(const Words&)>;

class Commands {
  public:
    Commands() = default;
    Commands(const Commands&) = delete;
    Commands& operator=(const Commands&) = delete;

    // Adds a command. An empty help hides it from the list, for a second spelling of another command. "<number>" makes
    // the parser require a number.
    void add(std::string syntax, std::string help, Action action);
    // Adds a `show` command that prints a table or, with --json, a line of JSON. If `make` returns null there is
    // nothing to show, and the command prints what `missing` returns.
    void show(
        const std::string& syntax, const std::string& help, const Make& make,
        const Action& missing = [](const Words&) { return std::string("nothing to show"); });
    // Adds a `show` command twice: as it is and followed by "all", like in dpdk-testpmd.
    void show_all(const std::string& syntax, const std::string& help, const Make& make);

    // Returns the parser's table, which ends with null and lives as long as this object. No command may be added
    // afterwards.
    cmdline_parse_ctx_t* compile();
    // Returns and clears the error message of the command that the parser ran last, or "".
    std::string take_wrong() { return std::exchange(wrong_, {}); }

    // list() returns all commands. explain() returns those that begin like `line`, which is not a command.
    std::string list() const;
    std::string explain(const std::string& line) const;

  private:
    struct Command {
        Commands* owner;
        std::string syntax, help;
        Action action;
        std::vector<std::string> words{};  // the syntax, word by word; the tokens point into it
        std::deque<cmdline_parse_token_string_t> tokens{};
        // A separate type of token, so that --json is not taken for a number.
        std::deque<cmdline_parse_token_num_t> numbers{};
        cmdline_parse_inst_t* parsed = nullptr;
        bool is_listed() const { return !help.empty() && !syntax.ends_with("--json"); }
    };
    static void run(void* result, cmdline*, void* data);
    static void compile(Command& command);

    std::deque<Command> commands_;  // a deque, because its elements never move
    std::vector<cmdline_parse_inst_t*> table_;
    std::string wrong_;
};

}  // namespace rove::prompt
