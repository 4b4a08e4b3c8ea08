// SPDX-License-Identifier: Apache-2.0
// Topologies from files in the format of ns-3's RDMA models (HPCC, ConWeave). Words are separated by blanks and line
// ends: NODES SWITCHES LINKS, then the number of each switch (nodes count from 0, and all others are hosts), then FROM
// TO RATE DELAY LOSS for each link, as in `0 128 100Gbps 1000ns 0`. RATE is a number with bps, Kbps, Mbps, Gbps or
// Tbps, DELAY one with ps, ns, us, ms or s, and LOSS a probability.
#pragma once

#include <istream>
#include <string>

#include "fabric/network.h"

namespace rove::fabric {

struct ImportConfig {
    HostConfig host;  // a transport's DCQCN starts at the rate of its host's first link
    SwitchConfig a_switch;
};
struct Imported {
    std::vector<Host*> all_hosts;  // in the order of their numbers
    std::vector<Switch*> switches;
    std::vector<Cable> access;  // between a host and a switch; forward is from the file's FROM
    std::vector<Cable> trunks;  // between switches

    std::vector<Host*> hosts() const { return all_hosts; }
};

// Reads a topology from `file`, whose name for error messages is `name`. Throws std::invalid_argument with file, line
// and the allowed syntax.
Imported read_topology(Network& network, std::istream& file, const std::string& name, const ImportConfig& config);

}  // namespace rove::fabric
