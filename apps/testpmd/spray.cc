// SPDX-License-Identifier: Apache-2.0
#include "spray.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "latency.h"
#include "runtime/runtime.h"
#include "tent_report.h"

namespace rove::testpmd {

Spray::Spray(datapath::Runtime& runtime, const Options& options, Connection connection)
    : runtime_(runtime),
      plan_(options.plan),
      connection_(std::move(connection)),
      segment_(options, connection_, plan_.qps * SprayStream::local_bytes(plan_)) {
    Introduction mine;
    mine.plan = plan_;
    connection_.send(mine);
    const Introduction theirs = connection_.receive_introduction();
    tent::SegmentID target = 0;
    require(segment_.engine().openSegment(target, theirs.segment), "the peer's segment");
    for (uint32_t i = 0; i < plan_.qps; ++i) {
        Worker& worker = *workers_.emplace_back(std::make_unique<Worker>());
        worker.stream = std::make_unique<SprayStream>(options, segment_.engine(), target, i,
                                                      segment_.memory() + i * SprayStream::local_bytes(plan_),
                                                      theirs.address + i * SprayStream::remote_bytes(plan_));
    }
}

Spray::~Spray() {
    gone_ = true;
    for (const auto& worker : workers_)
        if (worker->thread.joinable()) worker->thread.join();
}

void Spray::poll(uint64_t now_ns) {
    for (size_t i = 1; i < workers_.size() && !workers_[i]->thread.joinable(); ++i) {
        workers_[i]->thread = std::thread([this, &worker = *workers_[i]] {
            while (!gone_ && step(worker, runtime_.now_ns())) std::this_thread::yield();
        });
    }
    step(*workers_.front(), now_ns);
    for (const auto& worker : workers_) {
        const std::lock_guard lock(worker->mutex);
        if (!worker->failure.empty()) throw Failure(worker->failure);
    }
}

// Returns true if the worker has anything left to do.
bool Spray::step(Worker& worker, uint64_t now_ns) {
    const std::lock_guard lock(worker.mutex);
    if (worker.ended) return false;
    try {
        const bool more = worker.stream->step(now_ns, !stopping_);
        worker.ended = (stopping_ || !more) && worker.stream->idle();
    } catch (const Failure& failure) {
        worker.failure = failure.what();
        worker.ended = true;
    }
    return !worker.ended;
}

bool Spray::done() const {
    return std::all_of(workers_.begin(), workers_.end(), [](const auto& worker) {
        const std::lock_guard lock(worker->mutex);
        return worker->ended;
    });
}

void Spray::settle() {
    const SprayStream::Counts all = counts();
    connection_.send(Account{all.completed, all.wrong});
    connection_.receive_account();
}

SprayStream::Counts Spray::counts() const {
    SprayStream::Counts all;
    for (const auto& worker : workers_) {
        const std::lock_guard lock(worker->mutex);
        all.add(worker->stream->counts());
    }
    return all;
}

void Spray::clear() {
    for (const auto& worker : workers_) {
        const std::lock_guard lock(worker->mutex);
        worker->stream->clear();
    }
}

uint64_t Spray::messages() const {
    uint64_t sum = 0;
    for (const SprayStream::Class& one : counts().classes) sum += one.reads + one.writes;
    return sum;
}

Report Spray::report(double seconds) const {
    static constexpr const char* kNames[] = {"high", "medium", "low"};
    const SprayStream::Counts all = counts();
    Report report = {{"threads", plan_.qps},
                     {"requests",
                      {{"submitted", all.submitted},
                       {"completed", all.completed},
                       {"failed", all.failed},
                       {"under_way", all.under_way}}}};
    Histogram latency;
    Report& priorities = report["priorities"] = Report::object();
    for (size_t i = 0; i < SprayStream::kPriorities; ++i) {
        const SprayStream::Class& one = all.classes[i];
        latency.add(one.latency);
        if (one.latency.count() == 0) continue;
        Report& row = priorities[kNames[i]] = {
            {"reads", one.reads},
            {"writes", one.writes},
            {"goodput_gbps", static_cast<double>(one.reads + one.writes) * plan_.size * 8e-9 / seconds}};
        const Report percentiles = latency_us(one.latency);
        for (const auto& [name, us] : percentiles.items()) row[name + "_us"] = us;
    }
    report["latency_us"] = latency_us(latency);
    report["transports"] = report_tent("transports");  // includes transports other than ports
    return report;
}

}  // namespace rove::testpmd
