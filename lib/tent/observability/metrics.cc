// SPDX-License-Identifier: Apache-2.0
// See metrics.h.
#include "tent/observability/metrics.h"

#include <prometheus/collectable.h>
#include <prometheus/metric_family.h>

#include <bit>
#include <cmath>
#include <exception>
#include <limits>
#include <map>
#include <mutex>

#include "base/no_signals.h"
#include "tent/engine/engine.h"
#include "tent/engine/shard.h"
#include "tent/observability/figures.h"
#include "tent/transports/rdma/rdma_ports.h"

namespace rove::tent {

namespace {

// Collects the tables and histograms. It runs on a thread of the exposer.
class Figures : public prometheus::Collectable {
  public:
    explicit Figures(Engine& engine) : engine_(engine) {}

    std::vector<prometheus::MetricFamily> Collect() const override {
        std::vector<prometheus::MetricFamily> families;
        for (const FigureTable& table : figure_tables()) {
            std::vector<FigureRow> rows;
            {
                const std::lock_guard lock(mutex_);
                rows = steady_.read(table, engine_);
            }
            std::map<std::string, prometheus::MetricFamily> by_name;
            for (const FigureRow& row : rows)
                for (const Figure& figure : row.figures) add(table, row, figure, by_name);
            for (auto& [name, family] : by_name) families.push_back(std::move(family));
        }
        add_histograms(families);
        return families;
    }

  private:
    static void add(const FigureTable& table, const FigureRow& row, const Figure& figure,
                    std::map<std::string, prometheus::MetricFamily>& by_name) {
        const std::string name = std::string("tent_") + table.row + "_" + figure.name + (figure.counts ? "_total" : "");
        prometheus::MetricFamily& family = by_name[name];
        family.name = name;
        family.help = table.help;
        family.type = figure.counts ? prometheus::MetricType::Counter : prometheus::MetricType::Gauge;
        prometheus::ClientMetric& metric = family.metric.emplace_back();
        metric.label.push_back({table.row, row.of});
        (figure.counts ? metric.counter.value : metric.gauge.value) = static_cast<double>(figure.value);
    }

    void add_histograms(std::vector<prometheus::MetricFamily>& families) const {
        const std::vector<HistogramRow> rows = read_histograms(engine_);
        prometheus::MetricFamily latency{"tent_request_latency_seconds",
                                         "From submitTransfer() to the last byte",
                                         prometheus::MetricType::Histogram,
                                         {}};
        prometheus::MetricFamily bytes{
            "tent_request_bytes", "Bytes of completed requests", prometheus::MetricType::Histogram, {}};
        for (const HistogramRow& row : rows) {
            latency.metric.push_back(metric(row, row.seen.latency_ns, 1e-9, 10, 34));  // 1 us to 17 s
            bytes.metric.push_back(metric(row, row.seen.bytes, 1, 6, 34));             // 64 B to 16 GiB
        }
        families.push_back(std::move(latency));
        families.push_back(std::move(bytes));
    }

    // Makes buckets of 2^first, 2^(first + 2) ... 2^last, in `unit`.
    static prometheus::ClientMetric metric(const HistogramRow& row, const Histogram& seen, double unit, size_t first,
                                           size_t last) {
        prometheus::ClientMetric metric;
        metric.label = {{"priority", row.priority}, {"transport", row.transport}};
        metric.histogram.sample_count = seen.count();
        metric.histogram.sample_sum = static_cast<double>(seen.sum()) * unit;
        for (size_t bucket = first; bucket <= last; bucket += 2)
            metric.histogram.bucket.push_back({seen.count_up_to(bucket), std::ldexp(unit, static_cast<int>(bucket))});
        metric.histogram.bucket.push_back({seen.count(), std::numeric_limits<double>::infinity()});
        return metric;
    }

    Engine& engine_;
    mutable std::mutex mutex_;  // scrapes may overlap
    mutable SteadyFigures steady_;
};

// Reports whether the engine progresses: a request to it waits for the drive lock of each shard.
class Health : public prometheus::Collectable {
  public:
    explicit Health(Engine& engine) : engine_(engine) {}

    std::vector<prometheus::MetricFamily> Collect() const override {
        double up = 0;
        for (const auto& shard : engine_.core().shards()) shard->with_lock([] {});
        if (engine_.ports() != nullptr) up = std::popcount(engine_.ports()->selector().up_mask());
        return {gauge("tent_up", "The engine answers", 1), gauge("tent_devices_up", "Devices with a link", up)};
    }

  private:
    static prometheus::MetricFamily gauge(const char* name, const char* help, double value) {
        prometheus::MetricFamily family{name, help, prometheus::MetricType::Gauge, {}};
        family.metric.emplace_back().gauge.value = value;
        return family;
    }

    Engine& engine_;
};

}  // namespace

Status Metrics::start(const MetricsConfig& config, Engine& engine, std::unique_ptr<Metrics>* out) {
    auto metrics = std::make_unique<Metrics>();
    metrics->figures_ = std::make_shared<Figures>(engine);
    metrics->health_ = std::make_shared<Health>(engine);
    const std::string address = config.http_host + ":" + std::to_string(config.http_port);
    const NoSignals guard;  // its threads inherit the blocked signals
    Status status;
    try {
        metrics->exposer_ = std::make_unique<prometheus::Exposer>(address);
        metrics->exposer_->RegisterCollectable(metrics->figures_);
        metrics->exposer_->RegisterCollectable(metrics->health_, "/health");
    } catch (const std::exception&) {  // the exception does not give the reason
        status = {Code::kInvalidArgument,
                  "keys 'metrics.http_host' and 'metrics.http_port': cannot listen on " + address};
    }
    if (status.ok()) *out = std::move(metrics);
    return status;
}

}  // namespace rove::tent
