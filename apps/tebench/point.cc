// SPDX-License-Identifier: Apache-2.0
// Implements point.h. A worker thread drives its streams in turn. No other thread touches them before it has ended.
#include "point.h"

#include <time.h>

#include <algorithm>
#include <atomic>
#include <thread>

#include "stream.h"

namespace rove::tebench {

namespace {

struct Phases {
    uint64_t measure_ns = 0;   // the time at which measuring begins
    uint64_t duration_ns = 0;  // the least duration; measuring lasts until each stream has completed a batch
};

// Drives some of the streams on one thread.
class Worker {
  public:
    Worker(const Phases& phases, std::atomic<bool>& stop, bool sampling)
        : phases_(phases), stop_(stop), sampling_(sampling) {}

    void add(size_t number, tent::TransferEngine& engine, const Work& work) {
        numbers_.push_back(number);
        streams_.emplace_back(engine, work);
    }
    void run();

    const std::string& error() const { return error_; }
    std::vector<Stream>& streams() { return streams_; }
    const std::vector<Timeline::Sample>& samples() const { return samples_; }
    // These values cover the time in which stream i was measured. The clock is read again, since the thread may lose
    // its core.
    uint64_t measured_bytes(size_t i) const { return last_[i] - first_[i]; }
    double seconds() const { return static_cast<double>(last_ns_ - first_ns_) / 1e9; }

  private:
    std::vector<uint64_t> arrived() const {
        std::vector<uint64_t> bytes;
        for (const Stream& stream : streams_) bytes.push_back(stream.arrived());
        return bytes;
    }
    bool all_have_times() {
        return std::all_of(streams_.begin(), streams_.end(),
                           [](Stream& one) { return !one.times_ns().empty() || one.missed() != 0; });
    }
    static constexpr uint64_t kSlackNs = 50'000;  // how much later than asked the kernel may wake a sleeping thread

    void sample(uint64_t now);
    void nap(uint64_t now);

    const Phases phases_;
    std::atomic<bool>& stop_;
    const bool sampling_;
    std::vector<size_t> numbers_;
    std::vector<Stream> streams_;
    std::vector<Timeline::Sample> samples_;
    uint64_t sampled_ns_ = 0;
    std::vector<uint64_t> first_, last_;
    uint64_t first_ns_ = 0, last_ns_ = 0;
    std::string error_;
};

void Worker::sample(uint64_t now) {
    if (!sampling_ || now < sampled_ns_ + Timeline::kStepNs) return;
    sampled_ns_ = now;
    for (size_t i = 0; i < streams_.size(); ++i)
        samples_.push_back({now, streams_[i].work().class_index, numbers_[i], streams_[i].arrived()});
}

// Sleeps while an open loop has nothing in flight, so that another process can use the core.
void Worker::nap(uint64_t now) {
    uint64_t due_ns = UINT64_MAX;
    for (const Stream& stream : streams_) due_ns = std::min(due_ns, stream.due_ns());
    if (sampling_) due_ns = std::min(due_ns, sampled_ns_ + Timeline::kStepNs);
    if (due_ns <= now + kSlackNs) return;
    const uint64_t until = due_ns - kSlackNs;
    const timespec time{static_cast<time_t>(until / 1'000'000'000), static_cast<long>(until % 1'000'000'000)};
    clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &time, nullptr);
}

void Worker::run() {
    enum class Phase : uint8_t { kWarmup, kMeasure, kDrain } phase = Phase::kWarmup;
    while (true) {
        const uint64_t now = now_ns();
        if (phase == Phase::kWarmup && now >= phases_.measure_ns) {
            phase = Phase::kMeasure;
            first_ = arrived();
            first_ns_ = now;
            for (Stream& stream : streams_) stream.record(true);
        }
        if (phase == Phase::kMeasure && now >= first_ns_ + phases_.duration_ns && all_have_times()) {
            phase = Phase::kDrain;
            last_ = arrived();
            last_ns_ = now;
        }
        bool idle = true;
        for (Stream& stream : streams_) {
            if (!stream.step(phase != Phase::kDrain)) {
                error_ = stream.error();
                stop_.store(true);
                return;
            }
            idle &= stream.idle();
        }
        sample(now);
        if (phase == Phase::kDrain && idle) return;  // this ends, because the engine fails requests that take too long
        if (stop_.load(std::memory_order_relaxed)) return;
        if (phase != Phase::kDrain) nap(now);
    }
}

// Gives each stream a part of the local memory and of its target's. Returns nothing if they are too small.
std::vector<Work> plan(const Options& options, Memory memory, const std::vector<Target>& targets, size_t block,
                       size_t batch, size_t threads) {
    std::vector<Work> works;
    std::vector<uint64_t> used(targets.size());
    size_t local = 0;
    const bool reads = options.operation == Operation::kReadVerify, writes = options.operation == Operation::kWriteSeed;
    for (size_t i = 0; i < options.classes.size(); ++i) {
        const Class& of = options.classes[i];
        const size_t streams = of.streams != 0 ? of.streams : threads;
        for (size_t j = 0; j < streams; ++j) {
            const size_t at = works.size() % targets.size();
            const bool tight = options.deadline_us > 0 && works.size() < options.tight_streams;
            Work work{.class_index = i,
                      .priority = of.priority,
                      .hint = tent::parseTransportType(options.hint),
                      .operation = reads    ? Operation::kRead
                                   : writes ? Operation::kWrite
                                            : options.operation,
                      .check = options.check,
                      .notify = options.notify,
                      .seeded = reads || writes,
                      .block = of.block_size != 0 ? of.block_size : block,
                      .batch = of.batch_size != 0 ? of.batch_size : batch,
                      .outstanding = options.outstanding,
                      .rate = of.rate / static_cast<double>(streams),
                      .interval_ns = static_cast<uint64_t>(options.interval_us * 1e3),
                      .deadline_ns = static_cast<uint64_t>((tight ? options.deadline_us : of.deadline_us) * 1e3),
                      .tight = tight,
                      .intent = of.intent,
                      .local = memory.address + local,
                      .target = targets[at].segment,
                      .remote = targets[at].address + used[at],
                      .seed = works.size() + 1};
            local += work.local_bytes();
            used[at] += work.bytes();
            if (local > memory.bytes || used[at] > targets[at].bytes) return {};
            works.push_back(work);
        }
    }
    return works;
}

}  // namespace

std::optional<PointResult> run_point(tent::TransferEngine& engine, const Options& options, Memory memory,
                                     const std::vector<Target>& targets, size_t block, size_t batch, size_t threads,
                                     Timeline* timeline) {
    const std::vector<Work> works = plan(options, memory, targets, block, batch, threads);
    if (works.empty()) return std::nullopt;
    const uint64_t begun = now_ns();
    const uint64_t measure_ns = begun + static_cast<uint64_t>(options.warmup_s * 1e9);
    const Phases phases{measure_ns, static_cast<uint64_t>(options.duration_s * 1e9)};
    std::atomic<bool> stop{false};
    const size_t count = options.worker_threads != 0 ? std::min(options.worker_threads, works.size()) : works.size();
    std::vector<Worker> workers;
    for (size_t i = 0; i < count; ++i) workers.emplace_back(phases, stop, timeline != nullptr);
    for (size_t i = 0; i < works.size(); ++i) workers[i % count].add(i, engine, works[i]);
    std::vector<std::thread> others;
    for (size_t i = 1; i < count; ++i) others.emplace_back([&worker = workers[i]] { worker.run(); });
    workers[0].run();
    for (std::thread& thread : others) thread.join();

    PointResult result{.block = block, .batch = batch, .threads = works.size()};
    result.classes.resize(options.classes.size());
    std::vector<Timeline::Sample> samples;
    for (Worker& worker : workers) {
        if (timeline != nullptr) samples.insert(samples.end(), worker.samples().begin(), worker.samples().end());
        if (result.error.empty()) result.error = worker.error();
    }
    if (timeline != nullptr) {
        std::vector<std::string> names;
        for (const Class& one : options.classes) names.push_back(one.name);
        timeline->write(block, batch, names, samples);
    }
    if (!result.error.empty()) return result;
    for (Worker& worker : workers) {
        result.seconds = std::max(result.seconds, worker.seconds());
        for (size_t i = 0; i < worker.streams().size(); ++i) {
            Stream& stream = worker.streams()[i];
            ClassResult& of = result.classes[stream.work().class_index];
            ++of.streams;
            of.bytes += worker.measured_bytes(i);
            of.times_ns.insert(of.times_ns.end(), stream.times_ns().begin(), stream.times_ns().end());
            of.missed += stream.missed();
            DeadlineGroup& group = stream.work().tight ? result.tight : result.loose;
            ++group.streams;
            group.bytes += worker.measured_bytes(i);
            group.operations += stream.times_ns().size();
            group.missed += stream.missed();
        }
    }
    return result;
}

}  // namespace rove::tebench
