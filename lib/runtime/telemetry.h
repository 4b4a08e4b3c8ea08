// SPDX-License-Identifier: Apache-2.0
// Counters and states through DPDK telemetry: run `dpdk-telemetry.py -f rove-PID`, then use /rove/...
#pragma once

#include "runtime/report.h"

struct rte_tel_data;

namespace rove::datapath {

class Runtime;

void start_telemetry(Runtime& runtime);
void stop_telemetry();  // makes all commands fail from now on

// Writes a report to DPDK's answer. Arrays may contain numbers or strings.
void fill(rte_tel_data* to, const Report& from);

}  // namespace rove::datapath
