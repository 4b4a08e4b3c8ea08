// SPDX-License-Identifier: Apache-2.0
// Reports a bridge's statistics as JSON values, for DPDK's telemetry and for the prompt of rove-bridge. Any thread may
// call these functions.
#pragma once

#include "runtime/report.h"

namespace rove::bridge {

using datapath::Report;

class Bridge;

Report report_ports(const Bridge& bridge);    // "uplink" and "mesh": frames and bytes
Report report_link(const Bridge& bridge);     // "uplink" and "mesh": MAC, MTU, link state
Report report_members(const Bridge& bridge);  // for each name: addresses, frames, bytes, drops
Report report_frames(const Bridge& bridge);   // forwarded frames by destination, and dropped frames by reason
Report report_neighbours(const Bridge& bridge);

// Serves "/rove/bridge", "/rove/ports", "/rove/members" and "/rove/neighbours" in DPDK's telemetry until
// stop_telemetry().
void start_telemetry(const Bridge& bridge);
void stop_telemetry();

}  // namespace rove::bridge
