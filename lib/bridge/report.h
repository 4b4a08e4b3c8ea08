// SPDX-License-Identifier: Apache-2.0
// What there is to see of a bridge, as JSON values: for telemetry, and for the prompt of rove-bridge. Any thread.
#pragma once

#include "runtime/report.h"

namespace rove::bridge {

using datapath::Report;

class Bridge;

Report report_ports(const Bridge& bridge);    // "uplink" and "mesh": frames and bytes
Report report_link(const Bridge& bridge);     // the same: MAC, MTU, whether they are up
Report report_members(const Bridge& bridge);  // by name: addresses, frames, bytes, drops
Report report_frames(const Bridge& bridge);   // those that went on, by where, and those dropped, by why
Report report_neighbours(const Bridge& bridge);

// "/rove/bridge", "/rove/ports", "/rove/members" and "/rove/neighbours" of DPDK's telemetry, until it is stopped.
void start_telemetry(const Bridge& bridge);
void stop_telemetry();

}  // namespace rove::bridge
