// SPDX-License-Identifier: Apache-2.0
// Reads commands with DPDK's line editor and parser, which offer completion with the tabulator and help with "?".
#pragma once

#include <termios.h>

#include <string>

#include "prompt/commands.h"

struct cmdline;
struct rdline;

namespace rove::prompt {

class Prompt {
  public:
    // Adds `quit` and `help` to the commands, which must outlive the prompt. A process can have only one.
    explicit Prompt(Commands& commands);
    ~Prompt();
    Prompt(const Prompt&) = delete;
    Prompt& operator=(const Prompt&) = delete;

    // Executes a file's commands, one on each line; text after # is ignored. The first command that is wrong or fails
    // ends the file, since later ones may depend on it. Returns its number and the reason, or "".
    std::string execute_file(const std::string& file);
    // Executes one line. Returns "" or an error message.
    std::string execute(const std::string& line);
    // Takes over the terminal (or another stdin) and prints the prompt.
    void open();
    // Processes the available input, if any.
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
