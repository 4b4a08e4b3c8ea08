// SPDX-License-Identifier: Apache-2.0
// What rove-testpmd does at a time: nothing, a run as initiator, or one as target. One thread: traffic, prompt and
// tables take turns, since two processes that poll leave nothing over of two cores.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "run.h"
#include "runtime/runtime.h"
#include "session.h"

namespace rove::testpmd {

class App {
  public:
    explicit App(Options& options);
    ~App();

    datapath::Runtime& runtime() { return *runtime_; }
    Options& options() { return options_; }

    // Both return "" or why not.
    std::string start();
    std::string stop();
    // Of either end: the run that goes on, if one does, ends with the program.
    void end();
    bool running() const { return run_ != nullptr; }
    bool has_engine() const { return running() && run_->plan().mode == Mode::kSpray; }
    void clear();

    // A turn of traffic, and now and then of all else; sleeps, for a little, when there is no traffic. Input on stdin
    // is the caller's: returns whether now is a time to look.
    bool turn();
    bool failed() const { return failed_; }

  private:
    void round();
    void wait();
    void look_around(uint64_t now_ns);
    void finish(const std::string& failure);
    void serve();
    void show_stats(uint64_t now_ns);
    Report snapshot();
    Report summary(const Report& now) const;

    Options& options_;
    std::vector<Rail> rails_;
    datapath::Runtime* runtime_ = nullptr;
    std::optional<Listener> listener_;
    std::unique_ptr<Run> run_;
    Report at_start_, at_last_stats_;  // snapshot()
    uint64_t started_ns_ = 0, stats_ns_ = 0, looked_ns_ = 0;
    uint64_t last_messages_ = 0;  // as at_last_stats_
    bool failed_ = false;         // a run did not do what it should
};

}  // namespace rove::testpmd
