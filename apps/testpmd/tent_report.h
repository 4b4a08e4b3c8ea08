// SPDX-License-Identifier: Apache-2.0
// Reads the statistics of this process's TENT engine.
#pragma once

#include "runtime/report.h"

namespace rove::testpmd {

// Returns the answer of our own DPDK telemetry to /tent/`what`, or null without telemetry.
datapath::Report report_tent(const char* what);

}  // namespace rove::testpmd
