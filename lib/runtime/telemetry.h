// SPDX-License-Identifier: Apache-2.0
// Counters and states through DPDK telemetry: `dpdk-telemetry.py -f rove-PID`, then /rove/...
#pragma once

#include "runtime/report.h"

struct rte_tel_data;

namespace rove::datapath {

class Runtime;

void start_telemetry(Runtime& runtime);
void stop_telemetry();  // commands answer nothing from now on

// As an answer. Arrays are of numbers or of strings.
void fill(rte_tel_data* to, const Report& from);

}  // namespace rove::datapath
