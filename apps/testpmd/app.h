// SPDX-License-Identifier: Apache-2.0
// Runs rove-testpmd: it idles, or is the initiator or the target of a run. Traffic, prompt and tables share one thread,
// because two processes that poll leave nothing of two cores.
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

    // Start and stop a run. Both return "" or an error message.
    std::string start();
    std::string stop();
    // Ends the current run, if any, and then the program. Both ends use it.
    void end();
    bool running() const { return run_ != nullptr; }
    bool has_engine() const { return running() && run_->plan().mode == Mode::kSpray; }
    void clear();

    // Drives the traffic, and from time to time everything else; without traffic it sleeps briefly. The caller reads
    // stdin: returns true if this is the time to do so.
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
    Report at_start_, at_last_stats_;  // from snapshot()
    uint64_t started_ns_ = 0, stats_ns_ = 0, looked_ns_ = 0;
    uint64_t last_messages_ = 0;  // messages() at the time of at_last_stats_
    bool failed_ = false;         // true if a run failed
};

}  // namespace rove::testpmd
