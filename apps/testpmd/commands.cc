// SPDX-License-Identifier: Apache-2.0
// The commands, each a line of text: words, alternatives with #, and <what the user fills in>.
#include "commands.h"

#include <cmdline_parse_num.h>
#include <cmdline_parse_string.h>

#include <array>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <vector>

#include "prompt.h"
#include "table.h"
#include "tent_report.h"

namespace rove::testpmd {

namespace {

using datapath::Runtime;

constexpr size_t kMaxWords = 6, kSyntaxWidth = 46;
constexpr const char* kNumber = "<number>";
constexpr const char* kUnlisted = "the same";  // help of a command that is another one's second spelling

using Words = std::vector<std::string>;
// Returns "" or what is wrong.
using Action = std::function<std::string(Prompt&, const Words&)>;

struct Command {
    std::string syntax, help;
    Action action;
    std::vector<std::string> words;  // of syntax; what the tokens point to
    std::deque<cmdline_parse_token_string_t> tokens;
    std::deque<cmdline_parse_token_num_t> numbers;  // so that --json is none
    cmdline_parse_inst_t* parsed = nullptr;
};

// Where DPDK's parser puts the words of a line.
struct Result {
    std::array<cmdline_fixed_string_t, kMaxWords> words;
};

Prompt* prompt = nullptr;
std::deque<Command> commands;  // never moved, never destroyed before the program ends

void add(std::string syntax, std::string help, Action action) {
    commands.push_back({std::move(syntax), std::move(help), std::move(action), {}, {}, {}});
}

std::optional<uint32_t> number(const std::string& text) {
    uint32_t value = 0;
    const int base = text.rfind("0x", 0) == 0 ? 16 : 10;
    const char* first = text.data() + (base == 16 ? 2 : 0);
    const char* last = text.data() + text.size();
    const auto [end, bad] = std::from_chars(first, last, value, base);
    return bad == std::errc() && end == last ? std::optional(value) : std::nullopt;
}

std::string qps_text(Runtime& runtime) {
    const Report qps = datapath::report_qps(runtime, 0, 16);
    std::string text;
    for (const Report& qp : qps) text.append(" ").append(qp.dump());
    return text.empty() ? " none: nothing is running" : text;
}

std::string no_such_qp(Prompt& p, const Words& words) {
    return "no QP '" + words[2] + "', possible:" + qps_text(p.app().runtime());
}

// A `show` with a table and, by --json, a line of JSON. When `make` returns null there is no such thing, and `missing`
// says so.
using Make = std::function<Report(Prompt&, const Words&)>;
void show(const std::string& syntax, const std::string& help, const Make& make, const Action& missing = no_such_qp) {
    for (const bool json : {false, true}) {
        add(syntax + (json ? " --json" : ""), help + (json ? ", as JSON" : ""), [=](Prompt& p, const Words& words) {
            const Report report = make(p, words);
            if (report.is_null()) return missing(p, words);
            std::printf("%s", json ? (report.dump() + "\n").c_str() : to_text(report).c_str());
            return std::string();
        });
    }
}

// Of the QP that the third word names.
template <Report (*kReport)(Runtime&, uint32_t)>
Report of_qp(Prompt& p, const Words& words) {
    const std::optional<uint32_t> qpn = number(words[2]);
    return qpn ? kReport(p.app().runtime(), *qpn) : Report();
}

Report all_qps(Runtime& runtime) {
    Report table = Report::object();
    for (const Report& qpn : datapath::report_qps(runtime, 0, kMaxQps)) {
        const Report qp = datapath::report_qp(runtime, qpn.get<uint32_t>());
        if (qp.is_null()) continue;
        Report& one = table[qpn.dump()] = Report::object();
        for (const char* name : {"state", "mode", "remote_qpn", "mtu", "priority", "sq_posted", "sq_completed",
                                 "rq_posted", "rq_consumed"})
            one[name] = qp.value(name, Report());
    }
    return table;
}

Report all_impairments(Runtime& runtime) {
    Report all = Report::object();
    for (const auto& device : runtime.interfaces())
        all[device->name()] = datapath::report_impairments(runtime, *device);
    return all;
}

// Reports that count from the last `clear stats` on.
using Counters = Report (*)(Runtime&);
constexpr std::array<Counters, 6> kCounters = {datapath::report_ports,     datapath::report_xstats,
                                               datapath::report_workers,   datapath::report_drops,
                                               datapath::report_multipath, all_impairments};
std::map<Counters, Report> cleared;  // what they were then

template <Counters kReport>
Report counted(Prompt& p, const Words&) {
    return difference(kReport(p.app().runtime()), cleared[kReport]);
}

std::string clear_stats(Prompt& p, const Words&) {
    for (const Counters report : kCounters) cleared[report] = report(p.app().runtime());
    p.app().clear();
    return {};
}

std::string set_impair(Prompt& p, const Words& words) {
    Runtime& runtime = p.app().runtime();
    const datapath::Interface* device = datapath::find_interface(runtime, words[2]);
    if (device == nullptr) return "no port '" + words[2] + "', possible:" + datapath::device_names(runtime);
    const std::optional<uint32_t> path = number(words[3]);
    if (!path && words[3] != "all") return "no path '" + words[3] + "', possible: a number, or all";
    return runtime.impair(*device, path, words[4]);
}

std::string set_transport(Prompt& p, const Words& words) {
    Options& options = p.app().options();
    const std::string &key = words[2], &value = words[3];
    const std::optional<uint32_t> given = number(value);
    if (key == "mode") {
        using transport::Mode;
        if (value != "auto" && value != "rc" && value != "mp") return "got '" + value + "', possible: auto, rc, mp";
        p.app().runtime().set_mode(value == "auto" ? Mode::kAuto : value == "rc" ? Mode::kRc : Mode::kMp);
    } else if (key == "mtu") {
        Plan plan = options.plan;
        plan.mtu = given.value_or(0);
        if (plan.mode == rove::testpmd::Mode::kTarget) return "an initiator chooses the MTU";
        if (const char* wrong = invalid(plan)) return "got '" + value + "', possible is " + wrong;
        options.plan = plan;
        options.tent_keys.emplace_back("transports/rdma/endpoint/path_mtu", value);
    } else if (key == "timeout") {
        if (!given || *given > 31) return "got '" + value + "', possible: 0 to 31, for 4.096 us * 2^timeout; 0: never";
        options.timeout = static_cast<uint8_t>(*given);
        options.tent_keys.emplace_back("transports/rdma/endpoint/send_timeout", value);
    } else {
        if (!given || *given > 7) return "got '" + value + "', possible: 0 to 7";
        options.retries = static_cast<uint8_t>(*given);
        options.tent_keys.emplace_back("transports/rdma/endpoint/send_retry_count", value);
    }
    return {};
}

std::string switch_port(Prompt& p, const Words& words) {
    Runtime& runtime = p.app().runtime();
    const auto& devices = runtime.interfaces();
    const std::optional<uint32_t> index = number(words[2]);
    if (!index || *index >= devices.size())
        return "no port '" + words[2] + "', possible: 0 to " + std::to_string(devices.size() - 1);
    runtime.set_port(*devices[*index], words[1] == "start");
    return {};
}

bool is_listed(const Command& command) {
    return command.help != kUnlisted && !command.syntax.ends_with("--json");
}

std::string list_commands() {
    std::string text;
    for (const Command& command : commands) {
        if (!is_listed(command)) continue;
        std::string syntax = command.syntax;
        if (syntax.size() < kSyntaxWidth) syntax.resize(kSyntaxWidth, ' ');
        text += "  " + syntax + "  " + command.help + "\n";
    }
    return text + "  every show also with --json\n";
}

void fill_commands() {
    add("start", "begin a run", [](Prompt& p, const Words&) { return p.app().start(); });
    add("stop", "end it, and say what it did", [](Prompt& p, const Words&) { return p.app().stop(); });
    add("quit", "end the program", [](Prompt& p, const Words&) { return p.set_quit(), std::string(); });
    add("help", "this list",
        [](Prompt&, const Words&) { return std::fputs(list_commands().c_str(), stdout), std::string(); });
    const auto show_ports = [](const std::string& syntax, const char* help, const Make& make) {
        show(syntax, help, make);
        show(syntax + " all", kUnlisted, make);  // as dpdk-testpmd has it
    };
    show_ports("show port info", "addresses and link of each port",
               [](Prompt& p, const Words&) { return datapath::report_devices(p.app().runtime()); });
    show_ports("show port stats", "frames and bytes", counted<datapath::report_ports>);
    show_ports("show port xstats", "the driver's own counters that are not 0", counted<datapath::report_xstats>);
    show("show port impair", "what befalls received frames, by path", counted<all_impairments>);
    show("show qp", "all queue pairs", [](Prompt& p, const Words&) { return all_qps(p.app().runtime()); });
    show("show qp <number>", "one queue pair", of_qp<datapath::report_qp>);
    show("show paths <number>", "the latest packets of a QP by virtual path; in rc mode, its only path",
         of_qp<datapath::report_paths>);
    show("show reorder", "QPs in mp mode: retransmissions, order, memory", counted<datapath::report_multipath>);
    show("show worker", "the transport's counters that are not 0", counted<datapath::report_workers>);
    show("show drops", "frames dropped, by reason", counted<datapath::report_drops>);
    show("show neighbours", "who is known",
         [](Prompt& p, const Words&) { return datapath::report_neighbours(p.app().runtime()); });
    const auto show_tent = [](const char* what, const char* command, const char* help) {
        show(
            std::string("show tent ") + what, help,
            [=](Prompt& p, const Words&) { return p.app().has_engine() ? report_tent(command) : Report(); },
            [](Prompt&, const Words&) { return std::string("no engine; a run of --mode spray has one"); });
    };
    show_tent("devices", "devices", "ports as the engine sees them: learned bandwidth, bytes under way");
    show_tent("rails", "rails", "the ways to each peer: state, bytes, errors");
    show_tent("policy", "policies", "policies in their order, and the transports that they allow");
    show_tent("queues", "priorities", "requests and waiting slices by priority");
    show_tent("slots", "slots", "the time slots of this machine's processes: which is on, who may send");
    show_tent("transports", "transports", "bytes by transport");
    add("set impair <port> <path> <changes>", "e.g. set impair rove0 all loss=0.01,delay_us=50", set_impair);
    add("set transport mode#mtu#timeout#retries <value>", "of QPs that are made by the next start", set_transport);
    add("port stop#start <number>", "as if its cable were pulled", switch_port);
    add("clear stats", "all that is shown, and the present run, counts from here", clear_stats);
    add("dump <number>", "all of a QP: its state, and each packet under way", [](Prompt& p, const Words& words) {
        const std::optional<uint32_t> qpn = number(words[1]);
        const Report qp = qpn ? datapath::report_qp(p.app().runtime(), *qpn) : Report();
        if (qp.is_null()) return no_such_qp(p, {"", "", words[1]});
        std::printf("%s%s", to_text(qp).c_str(), to_text(datapath::report_packets(p.app().runtime(), *qpn)).c_str());
        return std::string();
    });
}

void run(void* result, cmdline*, void* data) {
    const auto& command = *static_cast<const Command*>(data);
    Words words;
    for (size_t i = 0; i < command.words.size(); ++i) {
        const char* word = static_cast<Result*>(result)->words[i];
        uint32_t value;
        std::memcpy(&value, word, sizeof value);
        words.push_back(command.words[i] == kNumber ? std::to_string(value) : word);
    }
    prompt->set_wrong(command.action(*prompt, words));
}

// Makes what DPDK's parser wants of the syntax.
void compile(Command& command) {
    std::istringstream syntax(command.syntax);
    for (std::string word; syntax >> word;) command.words.push_back(word);
    const size_t count = command.words.size();
    // An array of unknown size stands at its end.
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

}  // namespace

cmdline_parse_ctx_t* command_table(Prompt& owner) {
    static std::vector<cmdline_parse_inst_t*> table;
    prompt = &owner;
    fill_commands();
    for (Command& command : commands) {
        compile(command);
        table.push_back(command.parsed);
    }
    table.push_back(nullptr);
    return table.data();
}

std::string explain(const std::string& line) {
    std::istringstream words(line);
    std::string first, possible;
    words >> first;
    for (const Command& command : commands)
        if (command.words.front() == first && is_listed(command)) possible += "  " + command.syntax + "\n";
    std::string text = "not a command; possible:\n" + (possible.empty() ? list_commands() : possible);
    text.pop_back();  // what is said of a wrong command ends without a new line
    return text;
}

}  // namespace rove::testpmd
