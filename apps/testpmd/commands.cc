// SPDX-License-Identifier: Apache-2.0
#include "commands.h"

#include <array>
#include <charconv>
#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "tent_report.h"

namespace rove::testpmd {

namespace {

using datapath::Runtime;
using prompt::Commands;
using prompt::Words;

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

std::string no_such_qp(App& app, const Words& words) {
    return "no QP '" + words[2] + "', possible:" + qps_text(app.runtime());
}

// Reports on the QP that the third word names.
template <Report (*kReport)(Runtime&, uint32_t)>
Report of_qp(App& app, const Words& words) {
    const std::optional<uint32_t> qpn = number(words[2]);
    return qpn ? kReport(app.runtime(), *qpn) : Report();
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

// Reports whose counters restart at the last `clear stats`.
using Counters = Report (*)(Runtime&);
constexpr std::array<Counters, 6> kCounters = {datapath::report_ports,     datapath::report_xstats,
                                               datapath::report_workers,   datapath::report_drops,
                                               datapath::report_multipath, all_impairments};
std::map<Counters, Report> cleared;  // their values at that time

template <Counters kReport>
Report counted(App& app, const Words&) {
    return difference(kReport(app.runtime()), cleared[kReport]);
}

std::string clear_stats(App& app, const Words&) {
    for (const Counters report : kCounters) cleared[report] = report(app.runtime());
    app.clear();
    return {};
}

std::string set_impair(App& app, const Words& words) {
    Runtime& runtime = app.runtime();
    const datapath::RdmaInterface* device = datapath::find_interface(runtime, words[2]);
    if (device == nullptr) return "no port '" + words[2] + "', possible:" + datapath::device_names(runtime);
    const std::optional<uint32_t> path = number(words[3]);
    if (!path && words[3] != "all") return "no path '" + words[3] + "', possible: a number, or all";
    return runtime.impair(*device, path, words[4]);
}

std::string set_transport(App& app, const Words& words) {
    Options& options = app.options();
    const std::string &key = words[2], &value = words[3];
    const std::optional<uint32_t> given = number(value);
    if (key == "mode") {
        using transport::Mode;
        if (value != "auto" && value != "rc" && value != "mp") return "got '" + value + "', possible: auto, rc, mp";
        app.runtime().set_mode(value == "auto" ? Mode::kAuto : value == "rc" ? Mode::kRc : Mode::kMp);
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

std::string switch_port(App& app, const Words& words) {
    Runtime& runtime = app.runtime();
    const auto& devices = runtime.interfaces();
    const std::optional<uint32_t> index = number(words[2]);
    if (!index || *index >= devices.size())
        return "no port '" + words[2] + "', possible: 0 to " + std::to_string(devices.size() - 1);
    runtime.set_port(*devices[*index], words[1] == "start");
    return {};
}

}  // namespace

void add_commands(Commands& commands, App& app) {
    // Turns a function of the app into an action.
    const auto of_app = [&app](auto function) {
        return [&app, function](const Words& words) { return function(app, words); };
    };
    const auto add = [&](const char* syntax, const char* help, auto function) {
        commands.add(syntax, help, of_app(function));
    };
    const auto show = [&](const std::string& syntax, const char* help, auto function, auto missing) {
        commands.show(syntax, help, of_app(function), of_app(missing));
    };
    add("start", "begin a run", [](App& of, const Words&) { return of.start(); });
    add("stop", "end the run and print its results", [](App& of, const Words&) { return of.stop(); });
    commands.show_all("show port info", "addresses and link of each port",
                      [&app](const Words&) { return datapath::report_devices(app.runtime()); });
    commands.show_all("show port stats", "frames and bytes", of_app(counted<datapath::report_ports>));
    commands.show_all("show port xstats", "the driver's own counters that are not 0",
                      of_app(counted<datapath::report_xstats>));
    commands.show("show port impair", "counters of fault injection by path", of_app(counted<all_impairments>));
    commands.show("show qp", "all queue pairs", [&app](const Words&) { return all_qps(app.runtime()); });
    show("show qp <number>", "one queue pair", of_qp<datapath::report_qp>, no_such_qp);
    show("show paths <number>", "the latest packets of a QP by virtual path; in rc mode, its only path",
         of_qp<datapath::report_paths>, no_such_qp);
    commands.show("show reorder", "QPs in mp mode: retransmissions, order, memory",
                  of_app(counted<datapath::report_multipath>));
    commands.show("show worker", "the transport's counters that are not 0", of_app(counted<datapath::report_workers>));
    commands.show("show drops", "frames dropped, by reason", of_app(counted<datapath::report_drops>));
    commands.show("show neighbours", "known neighbours",
                  [&app](const Words&) { return datapath::report_neighbours(app.runtime()); });
    const auto show_tent = [&](const char* what, const char* command, const char* help) {
        show(
            std::string("show tent ") + what, help,
            [=](App& of, const Words&) { return of.has_engine() ? report_tent(command) : Report(); },
            [](App&, const Words&) { return std::string("no engine; a run of --mode spray has one"); });
    };
    show_tent("devices", "devices", "ports as the engine sees them: learned bandwidth, bytes in flight");
    show_tent("rails", "rails", "the ways to each peer: state, bytes, errors");
    show_tent("policy", "policies", "policies in their order, and the transports that they allow");
    show_tent("queues", "priorities", "requests and waiting slices by priority");
    show_tent("slots", "slots", "time slots of the processes of this machine: the current slot, and who may send");
    show_tent("transports", "transports", "bytes by transport");
    add("set impair <port> <path> <changes>",
        "change fault injection, for example set impair rove0 all loss=0.01,delay_us=50", set_impair);
    add("set transport mode#mtu#timeout#retries <value>", "change an attribute of the QPs that the next start creates",
        set_transport);
    add("port stop#start <number>", "stop a port, as if its cable were unplugged, or start it", switch_port);
    add("clear stats", "restart all counters and the results of the current run", clear_stats);
    add("dump <number>", "the state of a QP and each packet in flight", [](App& of, const Words& words) {
        const std::optional<uint32_t> qpn = number(words[1]);
        const Report qp = qpn ? datapath::report_qp(of.runtime(), *qpn) : Report();
        if (qp.is_null()) return no_such_qp(of, {"", "", words[1]});
        std::printf("%s%s", to_text(qp).c_str(), to_text(datapath::report_packets(of.runtime(), *qpn)).c_str());
        return std::string();
    });
}

}  // namespace rove::testpmd
