// SPDX-License-Identifier: Apache-2.0
#include "latency.h"

#include <nlohmann/json.hpp>

namespace rove::testpmd {

Report latency_us(const Histogram& latency) {
    const auto us = [](auto ns) { return static_cast<double>(ns) * 1e-3; };
    return {{"least", us(latency.least())},     {"mean", us(latency.mean())},  {"p50", us(latency.at(0.5))},
            {"p90", us(latency.at(0.9))},       {"p99", us(latency.at(0.99))}, {"p99.9", us(latency.at(0.999))},
            {"p99.99", us(latency.at(0.9999))}, {"most", us(latency.most())}};
}

}  // namespace rove::testpmd
