// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "histogram.h"
#include "runtime/report.h"

namespace rove::testpmd {

using datapath::Report;

// Returns percentiles in microseconds.
Report latency_us(const Histogram& latency);

}  // namespace rove::testpmd
