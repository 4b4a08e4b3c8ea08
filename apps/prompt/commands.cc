// SPDX-License-Identifier: Apache-2.0
#include "prompt/commands.h"

#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <nlohmann/json.hpp>
#include <sstream>

#include "prompt/table.h"

namespace rove::prompt {

namespace {

constexpr size_t kMaxWords = 6, kSyntaxWidth = 46;
constexpr const char* kNumber = "<number>";

// The words of a line, where DPDK's parser stores them.
struct Result {
    std::array<cmdline_fixed_string_t, kMaxWords> words;
};

}  // namespace

void Commands::add(std::string syntax, std::string help, Action action) {
    commands_.push_back({this, std::move(syntax), std::move(help), std::move(action)});
}

void Commands::show(const std::string& syntax, const std::string& help, const Make& make, const Action& missing) {
    for (const bool json : {false, true}) {
        // Commands without a help text are not listed.
        const std::string said = help.empty() || !json ? help : help + ", as JSON";
        add(syntax + (json ? " --json" : ""), said, [=](const Words& words) {
            const Report report = make(words);
            if (report.is_null()) return missing(words);
            std::printf("%s", json ? (report.dump() + "\n").c_str() : to_text(report).c_str());
            return std::string();
        });
    }
}

void Commands::show_all(const std::string& syntax, const std::string& help, const Make& make) {
    show(syntax, help, make);
    show(syntax + " all", "", make);
}

std::string Commands::list() const {
    std::string text;
    for (const Command& command : commands_) {
        if (!command.is_listed()) continue;
        std::string syntax = command.syntax;
        if (syntax.size() < kSyntaxWidth) syntax.resize(kSyntaxWidth, ' ');
        text += "  " + syntax + "  " + command.help + "\n";
    }
    return text + "  every show also with --json\n";
}

std::string Commands::explain(const std::string& line) const {
    std::istringstream words(line);
    std::string first, possible;
    words >> first;
    for (const Command& command : commands_)
        if (command.is_listed() && command.syntax.substr(0, command.syntax.find(' ')) == first)
            possible += "  " + command.syntax + "\n";
    std::string text = "not a command; possible:\n" + (possible.empty() ? list() : possible);
    text.pop_back();  // the text after a wrong command ends without a newline
    return text;
}

void Commands::run(void* result, cmdline*, void* data) {
    const auto& command = *static_cast<const Command*>(data);
    Words words;
    for (size_t i = 0; i < command.words.size(); ++i) {
        const char* word = static_cast<Result*>(result)->words[i];
        uint32_t value;
        std::memcpy(&value, word, sizeof value);
        words.push_back(command.words[i] == kNumber ? std::to_string(value) : word);
    }
    command.owner->wrong_ = command.action(words);
}

// Translates the syntax into the structures of DPDK's parser.
void Commands::compile(Command& command) {
    std::istringstream syntax(command.syntax);
    for (std::string word; syntax >> word;) command.words.push_back(word);
    const size_t count = command.words.size();
    // The structure ends with an array of unknown size.
    command.parsed =
        static_cast<cmdline_parse_inst_t*>(std::calloc(1, sizeof(cmdline_parse_inst_t) + (count + 1) * sizeof(void*)));
    command.parsed->f = run;
    command.parsed->data = &command;
    command.parsed->help_str = command.help.c_str();
    for (size_t i = 0; i < count; ++i) {
        const std::string& word = command.words[i];
        const auto offset = static_cast<unsigned>(i * sizeof(cmdline_fixed_string_t));
        if (word == kNumber) {
            command.numbers.push_back({{&cmdline_token_num_ops, offset}, {RTE_UINT32}});
            command.parsed->tokens[i] = &command.numbers.back().hdr;
        } else {
            const char* text = word.front() == '<' ? nullptr : word.c_str();
            command.tokens.push_back({{&cmdline_token_string_ops, offset}, {text}});
            command.parsed->tokens[i] = &command.tokens.back().hdr;
        }
    }
}

cmdline_parse_ctx_t* Commands::compile() {
    for (Command& command : commands_) {
        compile(command);
        table_.push_back(command.parsed);
    }
    table_.push_back(nullptr);
    return table_.data();
}

}  // namespace rove::prompt
