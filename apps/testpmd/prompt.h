// SPDX-License-Identifier: Apache-2.0
// The prompt: DPDK's line editor and parser, with completion by the tabulator and help by "?".
#pragma once

#include <termios.h>

#include <string>

#include "app.h"

struct cmdline;
struct rdline;

namespace rove::testpmd {

class Prompt {
  public:
    explicit Prompt(App& app);
    ~Prompt();
    Prompt(const Prompt&) = delete;
    Prompt& operator=(const Prompt&) = delete;

    // The commands of a file, a line each; what is behind # is left out.
    void execute_file(const std::string& file);
    void execute(const std::string& line);
    // Takes the terminal, or whatever stdin is, and shows itself.
    void open();
    // What has come on stdin, if anything.
    void poll();
    bool quit() const { return quit_; }
    void set_quit() { quit_ = true; }
    App& app() { return app_; }

  private:
    App& app_;
    cmdline* parser_;
    rdline* editor_ = nullptr;
    termios before_{};
    bool is_terminal_ = false, quit_ = false;
};

}  // namespace rove::testpmd
