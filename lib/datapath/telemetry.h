// SPDX-License-Identifier: Apache-2.0
// Counters and states through DPDK telemetry: `dpdk-telemetry.py -f rove-PID`, then /rove/...
#pragma once

namespace rove::datapath {

class Runtime;

void start_telemetry(Runtime& runtime);
void stop_telemetry();  // commands answer nothing from now on

}  // namespace rove::datapath
