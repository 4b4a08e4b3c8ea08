// SPDX-License-Identifier: Apache-2.0
// What there is to see of this process's TENT engine.
#pragma once

#include "runtime/report.h"

namespace rove::testpmd {

// The answer to /tent/`what` of our own DPDK telemetry, where the engine shows itself; null if there is none to ask.
datapath::Report report_tent(const char* what);

}  // namespace rove::testpmd
