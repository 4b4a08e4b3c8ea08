// SPDX-License-Identifier: Apache-2.0
#include "app.h"

#include <poll.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>

#include "spray.h"
#include "spray_target.h"
#include "traffic.h"
#include "verbs/objects.h"

namespace rove::testpmd {

namespace {

constexpr uint64_t kLookNs = 1'000'000;       // how often sockets, prompt and signals are checked during traffic
constexpr size_t kPathsShown = 8;             // paths of each port that are listed; the others are summed
constexpr int kSleepMs = 20;                  // the pause without traffic
constexpr uint64_t kDrainNs = 4'000'000'000;  // how long a stopped run may take for its requests in flight
constexpr int kGoneMs = 1000;                 // how long a failed request may precede the end of the connection

double share(uint64_t part, uint64_t whole) {
    return whole == 0 ? 0 : static_cast<double>(part) / static_cast<double>(whole);
}

uint64_t number(const Report& object, const char* name) {
    return object.contains(name) ? object[name].get<uint64_t>() : 0;
}

// Returns the sum over all workers.
uint64_t sum(const Report& workers, const char* name) {
    uint64_t all = 0;
    for (const Report& worker : workers) all += number(worker, name);
    return all;
}

}  // namespace

App::App(Options& options) : options_(options), rails_(open_rails(options.gid_index)) {
    runtime_ = static_cast<verbs::Device*>(rails_.front().context->device)->runtime;
    if (!options.pcap.empty())
        if (const std::string wrong = runtime_->capture(options.pcap); !wrong.empty())
            throw Failure("--pcap: " + wrong);
    if (!options.json.empty() && !std::ofstream(options.json)) throw Failure("--json: cannot write " + options.json);
    if (options.plan.mode == Mode::kTarget) listener_.emplace(options.tcp_port);
    at_start_ = at_last_stats_ = snapshot();
    stats_ns_ = runtime_->now_ns();
}

App::~App() = default;

Report App::snapshot() {
    Report all = {{"ports", datapath::report_ports(*runtime_)},
                  {"workers", datapath::report_workers(*runtime_)},
                  {"multipath", datapath::report_multipath(*runtime_)},
                  {"balance", datapath::report_balance(*runtime_)}};
    for (const auto& device : runtime_->interfaces())
        all["impaired"][device->name()] = datapath::report_impairments(*runtime_, *device);
    return all;
}

std::string App::start() {
    if (options_.plan.mode == Mode::kTarget) return "a target is always ready; its peers start";
    if (running()) return "it is running; stop ends it";
    try {
        Connection connection = Connection::to(options_.peer, options_.tcp_port);
        if (options_.plan.mode == Mode::kSpray)
            run_ = std::make_unique<Spray>(*runtime_, options_, std::move(connection));
        else
            run_ = std::make_unique<Initiator>(rails_, options_, std::move(connection));
    } catch (const Failure& failure) {
        failed_ = true;
        return failure.what();
    }
    clear();
    return {};
}

std::string App::stop() {
    if (run_ == nullptr) return "nothing is running";
    if (!run_->initiates()) return "the peer stops";
    run_->stop();
    for (const uint64_t until_ns = runtime_->now_ns() + kDrainNs; running() && runtime_->now_ns() < until_ns;) turn();
    if (running()) finish("requests in progress did not complete");
    return {};
}

void App::end() {
    if (running() && !run_->initiates())
        finish("told to end before the peer was done");
    else
        stop();
}

void App::clear() {
    at_start_ = at_last_stats_ = snapshot();
    started_ns_ = stats_ns_ = runtime_->now_ns();
    last_messages_ = 0;
    if (run_ != nullptr) run_->clear();
}

bool App::turn() {
    round();
    if (running() && runtime_->now_ns() - looked_ns_ < kLookNs) return false;
    if (!running()) wait();
    looked_ns_ = runtime_->now_ns();
    look_around(looked_ns_);
    return true;
}

// Waits for input or for a peer.
void App::wait() {
    pollfd fds[2] = {{options_.interactive ? STDIN_FILENO : -1, POLLIN, 0},
                     {listener_ ? listener_->fd() : -1, POLLIN, 0}};
    ::poll(fds, 2, kSleepMs);
    if ((fds[1].revents & POLLIN) != 0) serve();
}

void App::round() {
    if (run_ == nullptr) return;
    try {
        run_->poll(runtime_->now_ns());
        if (run_->done()) finish({});
    } catch (const Failure& failure) {
        // A peer that ends destroys its QPs first, so that requests fail before its connection ends.
        finish(run_->connection().readable(kGoneMs) ? "the peer has closed the connection" : failure.what());
    }
}

void App::look_around(uint64_t now_ns) {
    if (run_ != nullptr && run_->connection().readable())
        finish(run_->initiates() ? "the peer has closed the connection" : "");
    if (options_.stats_period_s != 0 && now_ns - stats_ns_ >= options_.stats_period_s * uint64_t{1'000'000'000})
        show_stats(now_ns);
}

void App::serve() {
    try {
        Connection connection = listener_->accept();
        const Introduction theirs = connection.receive_introduction();
        Connection again(dup(connection.fd()));  // to send the reason of a failure
        try {
            if (theirs.plan.mode == Mode::kSpray)
                run_ = std::make_unique<SprayTarget>(*runtime_, options_, std::move(connection), theirs.plan);
            else
                run_ = std::make_unique<Responder>(rails_, options_, std::move(connection), theirs);
        } catch (const Failure& failure) {
            again.send_refusal(failure.what());
            throw;
        }
        clear();
    } catch (const Failure& failure) {
        std::fprintf(stderr, "rove-testpmd: %s\n", failure.what());
    }
}

// Ends the run. `failure` holds the reason of a run that failed.
void App::finish(const std::string& failure) {
    std::string why = failure;
    try {
        if (why.empty()) run_->settle();
    } catch (const Failure& other) {
        why = other.what();
    }
    Report report = summary(snapshot());
    if (!why.empty()) report["failure"] = why;
    // A target keeps running after its peer's failure.
    failed_ |= run_->errors() != 0 || (!why.empty() && run_->initiates());
    run_.reset();
    std::printf("\n%s", to_text(report).c_str());
    if (!why.empty()) std::fprintf(stderr, "rove-testpmd: %s\n", why.c_str());
    std::fflush(stdout);
    if (!options_.json.empty()) std::ofstream(options_.json, std::ios::app) << report.dump() << "\n";
}

Report App::summary(const Report& now) const {
    const Plan& plan = run_->plan();
    const Report since = difference(now, at_start_);
    const Report &workers = since["workers"], &multipath = since["multipath"];
    const double seconds = static_cast<double>(runtime_->now_ns() - started_ns_) * 1e-9;
    const uint64_t messages = run_->messages();
    Report report = {
        {"mode", to_string(plan.mode)},
        {"end", run_->initiates() ? "initiator" : "target"},
        {"size", plan.size},
        {"depth", plan.depth},
        {"verified", plan.verify ? "every byte" : "no"},
        {"errors", run_->errors()},
        {"seconds", seconds},
        {"messages", messages},
        {"goodput_gbps", static_cast<double>(messages) * plan.size * 8e-9 / seconds},
        {"messages_per_s", static_cast<double>(messages) / seconds},
        {"packets_per_s", static_cast<double>(sum(workers, "tx_packets") + sum(workers, "rx_packets")) / seconds}};
    report.update(run_->report(seconds));
    const Report& balance = since["balance"];
    report["packets"] = {{"sent", number(balance, "sent") + number(at_start_["balance"], "in_flight")},
                         {"acknowledged", number(balance, "acknowledged")},
                         {"lost", number(balance, "lost")},
                         {"in_flight", number(now["balance"], "in_flight") + number(balance, "abandoned")}};
    Report& resent = report["retransmissions"] = {{"packets", sum(workers, "retransmitted_packets")},
                                                  {"timeouts", sum(workers, "timeouts")},
                                                  {"tail_probes", sum(workers, "tail_probes")}};
    for (const char* cause : {"nack", "rnr", "inferred", "early", "timeout"}) {
        const std::string name = std::string("resent_") + cause;
        resent[cause] = sum(workers, name.c_str()) + sum(multipath, name.c_str());
    }
    // Packets, by the lower bound of each class of degrees.
    Report& degrees = report["out_of_order_degree"] = Report::object();
    for (const Report& worker : multipath)
        for (const auto& [name, value] : worker.items())
            if (name.rfind("degree_", 0) == 0)
                degrees[name.substr(7)] = number(degrees, name.substr(7).c_str()) + value.get<uint64_t>();
    uint64_t bytes = 0;
    for (const Report& port : since["ports"]) bytes += number(port, "tx_bytes") + number(port, "rx_bytes");
    for (const auto& [name, port] : since["ports"].items())
        report["ports"][name] = {{"tx_frames", number(port, "tx_frames")},
                                 {"rx_frames", number(port, "rx_frames")},
                                 {"share", share(number(port, "tx_bytes") + number(port, "rx_bytes"), bytes)}};
    return report;
}

void App::show_stats(uint64_t now_ns) {
    const Report now = snapshot();
    const Report since = difference(now, at_last_stats_);
    const double seconds = static_cast<double>(now_ns - stats_ns_) * 1e-9;
    Report ports = Report::object();
    for (const auto& [name, port] : since["ports"].items())
        ports[name] = {{"tx_gbps", static_cast<double>(number(port, "tx_bytes")) * 8e-9 / seconds},
                       {"rx_gbps", static_cast<double>(number(port, "rx_bytes")) * 8e-9 / seconds},
                       {"tx_frames_per_s", static_cast<double>(number(port, "tx_frames")) / seconds},
                       {"rx_frames_per_s", static_cast<double>(number(port, "rx_frames")) / seconds}};
    if (isatty(STDOUT_FILENO) && !options_.interactive)
        std::fputs("\x1b[2J\x1b[H", stdout);  // clears the screen, like dpdk-testpmd
    std::printf("ports, the last %.1f s\n%s", seconds, to_text(ports).c_str());
    const auto print = [](const char* what, const Report& by_port) {
        for (const auto& [name, table] : by_port.items())
            if (!table.empty()) std::printf("%s %s\n%s", what, name.c_str(), to_text(table).c_str());
    };
    print("latest packets in mp mode by path, from", datapath::report_port_paths(*runtime_, kPathsShown));
    print("impaired paths to", since["impaired"]);
    if (run_ != nullptr && run_->initiates()) {
        const uint64_t messages = run_->messages();
        const double gbps = static_cast<double>(messages - last_messages_) * run_->plan().size * 8e-9 / seconds;
        const Report all = run_->report(static_cast<double>(now_ns - started_ns_) * 1e-9);
        std::printf("%.2f Gb/s of messages; since the start\n%s", gbps,
                    to_text(all[all.contains("priorities") ? "priorities" : "latency_us"]).c_str());
        last_messages_ = messages;
    }
    std::fflush(stdout);
    at_last_stats_ = now;
    stats_ns_ = now_ns;
}

}  // namespace rove::testpmd
