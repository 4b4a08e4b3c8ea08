// SPDX-License-Identifier: Apache-2.0
// What there is to see of a datapath, as JSON values: for telemetry, and for the prompt and tables of rove-testpmd.
// Each call holds a worker, or all, while it reads; none may be made on a worker or inside a Runtime::Pause.
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

// By device.
Report report_devices(Runtime& runtime);  // addresses, link
Report report_ports(Runtime& runtime);    // frames and bytes
Report report_xstats(Runtime& runtime);   // the driver's extended statistics, where they are not 0
Report report_neighbours(Runtime& runtime);
// Of one: frames and bytes; and who is known.
Report report_statistics(const PortStatistics& counted);
Report report_neighbours(const Neighbours& neighbours);
// By path of `interface`, then "device": what befalls frames that it receives; empty if nothing does.
Report report_impairments(Runtime& runtime, const RdmaInterface& interface);

// By worker.
Report report_workers(Runtime& runtime);    // the transport's counters
Report report_drops(Runtime& runtime);      // frames dropped, by reason
Report report_multipath(Runtime& runtime);  // what QPs in mp mode share

// Of all RC QPs together, packets that are to be acknowledged; of READs in rc mode those that they ask for. Of those
// that were "sent", some were "acknowledged", some "lost" and sent again, some "abandoned" when their QP ended, and the
// others are "in_flight". Each is counted by itself.
Report report_balance(Runtime& runtime);

// Numbers of QPs, at most `most`, from the index `first` of the table on.
Report report_qps(Runtime& runtime, uint32_t first, size_t most);
// Of one QP; null if there is none.
Report report_qp(Runtime& runtime, uint32_t qpn);
// By stream ("requests", "responses") and UDP source port. In mp mode: what became of the latest packets by virtual
// path, as transport::PathTally. In rc mode: of the requests, the state of their only path and how many packets are on
// their way.
Report report_paths(Runtime& runtime, uint32_t qpn);
// By device, of all its QPs in mp mode together: the `most` paths that lost most, then have most marks, then packets;
// and what the others sum up to, under "others" and how many they are.
Report report_port_paths(Runtime& runtime, size_t most);
// In mp mode, by stream: each packet on its way.
Report report_packets(Runtime& runtime, uint32_t qpn);

// The interface of the device called `name`, or null; and the names of all, with a blank before each.
const RdmaInterface* find_interface(Runtime& runtime, std::string_view name);
std::string device_names(Runtime& runtime);

}  // namespace rove::datapath
