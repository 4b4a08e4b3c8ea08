// SPDX-License-Identifier: Apache-2.0
// See metrics.h.
#include "tent/metrics.h"

#include <prometheus/collectable.h>
#include <prometheus/metric_family.h>
#include <signal.h>

#include <exception>
#include <map>

#include "tent/engine.h"
#include "tent/figures.h"

namespace rove::tent {

namespace {

// On a thread of the exposer's.
class Figures : public prometheus::Collectable {
  public:
    explicit Figures(Engine& engine) : engine_(engine) {}

    std::vector<prometheus::MetricFamily> Collect() const override {
        std::vector<prometheus::MetricFamily> families;
        for (const FigureTable& table : figure_tables()) {
            std::vector<FigureRow> rows;
            engine_.core().with_lock([&] { rows = table.read(engine_); });
            std::map<std::string, prometheus::MetricFamily> by_name;
            for (const FigureRow& row : rows)
                for (const Figure& figure : row.figures) add(table, row, figure, by_name);
            for (auto& [name, family] : by_name) families.push_back(std::move(family));
        }
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

    Engine& engine_;
};

}  // namespace

Status Metrics::start(const MetricsConfig& config, Engine& engine, std::unique_ptr<Metrics>* out) {
    auto metrics = std::make_unique<Metrics>();
    metrics->figures_ = std::make_shared<Figures>(engine);
    const std::string address = config.http_host + ":" + std::to_string(config.http_port);
    // Its threads leave the program's signals alone.
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    Status status;
    try {
        metrics->exposer_ = std::make_unique<prometheus::Exposer>(address);
        metrics->exposer_->RegisterCollectable(metrics->figures_);
    } catch (const std::exception&) {  // which does not say why
        status = {Code::kInvalidArgument,
                  "keys 'metrics.http_host' and 'metrics.http_port': nobody can listen on " + address};
    }
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    if (status.ok()) *out = std::move(metrics);
    return status;
}

}  // namespace rove::tent
