// SPDX-License-Identifier: Apache-2.0
// The prompt: DPDK's line editor and parser, with completion by the tabulator and help by "?".
#pragma once

#include <termios.h>

#include <string>

#include "prompt/commands.h"

struct cmdline;
struct rdline;

namespace rove::prompt {

class Prompt {
  public:
    // Adds `quit` and `help` to the commands, which outlive it. One in a process.
    explicit Prompt(Commands& commands);
    ~Prompt();
    Prompt(const Prompt&) = delete;
    Prompt& operator=(const Prompt&) = delete;

    // The commands of a file, a line each; what is behind # is left out. Ends at the first that is wrong or fails, for
    // what follows relies on it; returns which and why, or "".
    std::string execute_file(const std::string& file);
    // Returns "" or what is wrong.
    std::string execute(const std::string& line);
    // Takes the terminal, or whatever stdin is, and shows itself.
    void open();
    // What has come on stdin, if anything.
    void poll();
    bool quit() const { return quit_; }

  private:
    Commands& commands_;
    cmdline* parser_;
    rdline* editor_ = nullptr;
    termios before_{};
    bool is_terminal_ = false, quit_ = false;
};

}  // namespace rove::prompt
