// SPDX-License-Identifier: Apache-2.0
// conformance: tests the rules of verbs on a device. Prints one line per case: PASS, FAIL or SKIP, its name, and the
// reason.
//
// This process makes no verbs calls. It forks a process that runs the cases of a theme one after the other (and a
// second process for a PAIR). A failed case ends its process, so that it cannot affect the next one.
#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <regex>

#include "verbs.h"

namespace conformance {

namespace {

enum class Outcome : uint8_t { kPassed, kSkipped, kFailed };

struct Verdict {
    Outcome outcome;
    std::string detail;
};

// The message that the parent sends to a process that runs cases. The answer is the outcome, followed by the text of
// the detail.
struct Order {
    size_t index;  // index into cases()
};

Verdict run_body(const Case& which, Peer& peer) {
    leftovers().clear();
    try {
        which.body(peer);
    } catch (const Failure& failure) {
        return {Outcome::kFailed, failure.what()};
    } catch (const Skip& skip) {
        return {Outcome::kSkipped, skip.what()};
    } catch (const std::exception& error) {
        return {Outcome::kFailed, std::string("exception: ") + error.what()};
    }
    if (!leftovers().empty()) return {Outcome::kFailed, "objects could not be destroyed: " + leftovers()};
    return {Outcome::kPassed, {}};
}

// The loop of a process that runs cases. It ends when the parent closes `control`.
[[noreturn]] void serve(int control, int channel, bool first) {
    Peer peer(channel);
    peer.first = first;
    for (Order order; recv(control, &order, sizeof(order), 0) == sizeof(order);) {
        const Verdict verdict = run_body(cases()[order.index], peer);
        // Ends the other process's wait for data.
        if (verdict.outcome == Outcome::kFailed) shutdown(channel, SHUT_RDWR);
        std::string answer(1, static_cast<char>(verdict.outcome));
        answer += verdict.detail;
        if (send(control, answer.data(), answer.size(), MSG_NOSIGNAL) < 0) break;
    }
    std::exit(0);
}

class Process {
  public:
    // The child closes the descriptors in `not_ours`, because their readers wait until the last holder closes them.
    Process(int channel, std::initializer_list<int> not_ours, bool first, const std::vector<std::string>& environment) {
        int pair[2];
        if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0) std::abort();
        std::fflush(stdout);
        const pid_t parent = getpid();
        pid_ = fork();
        if (pid_ < 0) std::abort();
        if (pid_ == 0) {
            setpgid(0, 0);
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            if (getppid() != parent) _exit(1);
            close(pair[0]);
            for (int file : not_ours) close(file);
            for (const std::string& setting : environment) putenv(const_cast<char*>(setting.c_str()));
            serve(pair[1], channel, first);
        }
        setpgid(pid_, pid_);
        close(pair[1]);
        control_ = pair[0];
        ended_ = static_cast<int>(syscall(SYS_pidfd_open, pid_, 0));
    }
    ~Process() {
        close(control_);
        pollfd ended{ended_, POLLIN, 0};
        if (alive_ && poll(&ended, 1, 3000) == 1) alive_ = false;  // the process ends by itself
        kill(-pid_, SIGKILL);                                      // including its child processes
        waitpid(pid_, nullptr, 0);
        close(ended_);
    }
    Process(const Process&) = delete;
    Process& operator=(const Process&) = delete;

    int control() const { return control_; }
    void begin(size_t index) {
        const Order order{index};
        (void)!send(control_, &order, sizeof(order), MSG_NOSIGNAL);
    }
    // With `doomed`, SIGKILL is the expected end.
    Verdict finish(double deadline, bool doomed) {
        pollfd both[2] = {{control_, POLLIN, 0}, {ended_, POLLIN, 0}};
        while (true) {
            const int left = std::max(0, static_cast<int>((deadline - now()) * 1000));
            if (poll(both, 2, left) == 0) {
                alive_ = false;
                return {Outcome::kFailed, "it hangs"};
            }
            if ((both[0].revents & POLLIN) != 0) {
                char answer[2000];
                const ssize_t got = recv(control_, answer, sizeof(answer), 0);
                if (got > 0)
                    return {static_cast<Outcome>(answer[0]), std::string(answer + 1, static_cast<size_t>(got - 1))};
            }
            if (both[1].revents != 0 || both[0].revents != 0) {
                siginfo_t info{};
                waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOWAIT);
                alive_ = false;
                if (doomed && info.si_code == CLD_KILLED && info.si_status == SIGKILL) return {Outcome::kPassed, {}};
                const bool exited = info.si_code == CLD_EXITED;
                return {Outcome::kFailed, exited ? "its process ended with status " + std::to_string(info.si_status)
                                                 : std::string("its process died: ") + strsignal(info.si_status)};
            }
        }
    }

  private:
    pid_t pid_;
    int control_, ended_;
    bool alive_ = true;
};

// The one or two processes in which cases run at present.
class Runners {
  public:
    Runners(std::vector<std::string> first_environment, std::vector<std::string> peer_environment)
        : environments_{std::move(first_environment), std::move(peer_environment)} {}
    ~Runners() { stop(); }

    Verdict run(size_t index, double limit) {
        const Case& which = cases()[index];
        const bool pair = which.kind == Kind::kPair || which.kind == Kind::kDoomed;
        if (which.kind == Kind::kAlone || which.kind == Kind::kDoomed) stop();
        start(0);
        if (pair) start(1);
        const double deadline = now() + limit;
        processes_[0]->begin(index);
        if (pair) processes_[1]->begin(index);
        Verdict verdict = processes_[0]->finish(deadline, false);
        if (pair) {
            const Verdict second = processes_[1]->finish(std::max(deadline, now() + 1), which.kind == Kind::kDoomed);
            // If a process has ended, this is the cause of the other process's failure.
            const bool cause = verdict.detail.ends_with("has gone") || second.detail.starts_with("its process");
            if (second.outcome > verdict.outcome || (second.outcome == Outcome::kFailed && cause))
                verdict = {second.outcome, "second process: " + second.detail};
        }
        if (verdict.outcome == Outcome::kFailed || which.kind == Kind::kAlone || which.kind == Kind::kDoomed) stop();
        return verdict;
    }
    void stop() {
        close_channel();
        for (auto& process : processes_) process.reset();
    }

  private:
    void start(int which) {
        if (processes_[which] != nullptr) return;
        if (channel_[0] < 0 && socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, channel_) != 0) std::abort();
        const int control = which == 1 ? processes_[0]->control() : -1;
        processes_[which] =
            std::make_unique<Process>(channel_[which], std::initializer_list<int>{channel_[1 - which], control},
                                      which == 0, environments_[which]);
        // Each process has its end. With our copies closed, a process detects when the other has ended.
        if (which == 1) close_channel();
    }
    void close_channel() {
        for (int& end : channel_) {
            if (end >= 0) close(end);
            end = -1;
        }
    }

    std::vector<std::string> environments_[2];
    std::unique_ptr<Process> processes_[2];
    int channel_[2] = {-1, -1};
};

int run_all(const std::vector<size_t>& chosen, Runners& runners, double limit) {
    int counts[3] = {};
    const double started = now();
    std::string theme;
    for (size_t index : chosen) {
        if (theme != cases()[index].theme) runners.stop();
        theme = cases()[index].theme;
        const double begun = now();
        const Verdict verdict = runners.run(index, limit);
        static constexpr const char* kWords[] = {"PASS", "SKIP", "FAIL"};
        ++counts[static_cast<int>(verdict.outcome)];
        std::printf("%s %s  %.2f s%s%s\n", kWords[static_cast<int>(verdict.outcome)], cases()[index].name().c_str(),
                    now() - begun, verdict.detail.empty() ? "" : "  ", verdict.detail.c_str());
        std::fflush(stdout);
    }
    std::printf("in %.0f s: %d passed, %d failed, %d skipped\n", now() - started, counts[0], counts[2], counts[1]);
    return counts[2] == 0 && counts[0] > 0 ? 0 : 1;
}

}  // namespace

}  // namespace conformance

int main(int argc, char** argv) {
    using namespace conformance;
    CLI::App app{"Tries the rules of verbs on a device. Exit status: 0 if every case passed or was skipped."};
    std::string filter;
    std::vector<std::string> peer_environment;
    bool list = false;
    double limit = 20;
    app.add_flag("--list", list, "print the names of the cases");
    app.add_option("--filter", filter, "only cases whose name matches this regular expression");
    app.add_option("--device", settings.device, "default: the first device");
    app.add_option("--port", settings.port, "default 1");
    app.add_option("--gid-index", settings.gid_index, "default: the first RoCE v2 GID of an IPv4 address");
    app.add_option("--peer-env", peer_environment, "NAME=VALUE: for the environment of the second process of a pair")
        ->expected(1);
    app.add_option("--limit", limit, "seconds that a case may take; default 20");
    CLI11_PARSE(app, argc, argv);

    const std::regex pattern(filter);
    std::vector<size_t> chosen;
    for (size_t i = 0; i < cases().size(); ++i) {
        if (std::regex_search(cases()[i].name(), pattern)) chosen.push_back(i);
    }
    // Sorted by theme. Within a theme, the order in the file, with the cases last that need their own processes.
    std::stable_sort(chosen.begin(), chosen.end(), [](size_t a, size_t b) {
        const int theme = std::strcmp(cases()[a].theme, cases()[b].theme);
        return theme != 0 ? theme < 0 : cases()[a].kind < cases()[b].kind;
    });
    if (list) {
        for (size_t i : chosen) std::printf("%s\n", cases()[i].name().c_str());
        return 0;
    }
    signal(SIGPIPE, SIG_IGN);
    Runners runners({}, peer_environment);
    return run_all(chosen, runners, limit);
}
