// SPDX-License-Identifier: Apache-2.0
#define ALLOW_EXPERIMENTAL_API  // DPDK 22.11 marks rdline_new() and its relatives as experimental
#include "prompt/prompt.h"

#include <cmdline.h>
#include <cmdline_parse.h>
#include <cmdline_rdline.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <new>

namespace rove::prompt {

namespace {

constexpr const char* kPrompt = "rove> ";
constexpr char kCtrlC = 3;

int write_char(rdline*, char c) {
    return ::write(STDOUT_FILENO, &c, 1) == 1 ? 0 : -1;
}

void validate(rdline* editor, const char* line, unsigned) {
    const std::string wrong = static_cast<Prompt*>(rdline_get_opaque(editor))->execute(line);
    if (!wrong.empty()) std::printf("%s\n", wrong.c_str());
    std::fflush(stdout);
}

}  // namespace

Prompt::Prompt(Commands& commands) : commands_(commands) {
    commands.add("quit", "end the program", [this](const Words&) { return quit_ = true, std::string(); });
    commands.add("help", "this list",
                 [&](const Words&) { return std::fputs(commands.list().c_str(), stdout), std::string(); });
    parser_ = cmdline_new(commands.compile(), "", -1, STDOUT_FILENO);
    if (parser_ == nullptr) throw std::bad_alloc();
}

Prompt::~Prompt() {
    if (is_terminal_) tcsetattr(STDIN_FILENO, TCSANOW, &before_);
    if (editor_ != nullptr) rdline_free(editor_);
    cmdline_free(parser_);
}

std::string Prompt::execute_file(const std::string& file) {
    std::ifstream lines(file);
    size_t number = 1;
    for (std::string line; !quit_ && std::getline(lines, line); ++number) {
        line.erase(std::min(line.find('#'), line.size()));
        if (const std::string wrong = execute(line); !wrong.empty())
            return file + ":" + std::to_string(number) + ": '" + line + "': " + wrong;
    }
    return {};
}

std::string Prompt::execute(const std::string& line) {
    std::string text = line;
    while (!text.empty() && (text.back() == '\n' || text.back() == ' ' || text.back() == '\r')) text.pop_back();
    if (text.find_first_not_of(' ') == std::string::npos) return {};
    std::fflush(stdout);
    const bool is_command = cmdline_parse(parser_, (text + "\n").c_str()) >= 0;
    std::fflush(stdout);
    return is_command ? commands_.take_wrong() : commands_.explain(text);
}

void Prompt::open() {
    if (tcgetattr(STDIN_FILENO, &before_) == 0) {
        is_terminal_ = true;
        termios raw = before_;
        raw.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO | ISIG);
        tcsetattr(STDIN_FILENO, TCSANOW, &raw);
    }
    editor_ = rdline_new(
        write_char, validate,
        [](rdline* editor, const char* line, char* out, unsigned room, int* state) {
            auto* self = static_cast<Prompt*>(rdline_get_opaque(editor));
            return cmdline_complete(self->parser_, line, state, out, room);
        },
        this);
    if (editor_ == nullptr) throw std::bad_alloc();
    rdline_newline(editor_, kPrompt);
}

void Prompt::poll() {
    pollfd input{STDIN_FILENO, POLLIN, 0};
    if (editor_ == nullptr || ::poll(&input, 1, 0) <= 0) return;
    std::array<char, 256> typed;
    const ssize_t count = read(STDIN_FILENO, typed.data(), typed.size());
    if (count <= 0) quit_ = true;
    for (ssize_t i = 0; i < count && !quit_; ++i) {
        const char c = typed[static_cast<size_t>(i)];
        if (c == kCtrlC) {  // in raw mode the terminal sends no signal for Ctrl-C
            quit_ = true;
            break;
        }
        const int result = rdline_char_in(editor_, c);
        if (result == RDLINE_RES_VALIDATED && !quit_) rdline_newline(editor_, kPrompt);
        if (result == RDLINE_RES_EOF || result == RDLINE_RES_EXITED) quit_ = true;
    }
}

}  // namespace rove::prompt
