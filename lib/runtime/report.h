// SPDX-License-Identifier: Apache-2.0
// The state of a datapath as JSON values, for telemetry and for the prompt and tables of rove-testpmd. Each call holds
// one worker or all workers while it reads, so it must not be made on a worker or inside a Runtime::Pause.
#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace rove::datapath {

class RdmaInterface;
class Neighbours;
class Runtime;
struct PortStatistics;

using Report = nlohmann::ordered_json;

// Reports by device.
Report report_devices(Runtime& runtime);  // addresses, link
Report report_ports(Runtime& runtime);    // frames and bytes
Report report_xstats(Runtime& runtime);   // the driver's extended statistics that are not 0
Report report_neighbours(Runtime& runtime);
// Reports of one device: frames and bytes, and the neighbour table.
Report report_statistics(const PortStatistics& counted);
Report report_neighbours(const Neighbours& neighbours);
// Reports the fault injection of frames that `interface` receives, by path and then "device". The report is empty
// without fault injection.
Report report_impairments(Runtime& runtime, const RdmaInterface& interface);

// Reports by worker.
Report report_workers(Runtime& runtime);    // the transport's counters
Report report_drops(Runtime& runtime);      // frames dropped, by reason
Report report_multipath(Runtime& runtime);  // state shared by QPs in mp mode

// Reports the packets of all RC QPs together that must be acknowledged; for READs in rc mode, the packets that they ask
// for. Each packet that was "sent" has been "acknowledged", or "lost" and retransmitted, or "abandoned" when its QP
// ended, or is "in_flight". Each of these is counted independently.
Report report_balance(Runtime& runtime);

// Reports the numbers of at most `most` QPs, from index `first` of the table on.
Report report_qps(Runtime& runtime, uint32_t first, size_t most);
// Reports one QP, or null if it does not exist.
Report report_qp(Runtime& runtime, uint32_t qpn);
// Reports by stream ("requests", "responses") and UDP source port. In mp mode, reports the results of the latest
// packets by virtual path, as transport::PathTally. In rc mode, reports for the requests the state of their only path
// and the number of packets in flight.
Report report_paths(Runtime& runtime, uint32_t qpn);
// Reports by device, for all its QPs in mp mode together: the `most` paths with the most losses, then marks, then
// packets. The sums and the number of the other paths are under "others".
Report report_port_paths(Runtime& runtime, size_t most);
// Reports each packet in flight by stream, in mp mode.
Report report_packets(Runtime& runtime, uint32_t qpn);

// Returns the interface of the device called `name`, or null. The second function returns the names of all devices,
// each after a blank.
const RdmaInterface* find_interface(Runtime& runtime, std::string_view name);
std::string device_names(Runtime& runtime);

}  // namespace rove::datapath
