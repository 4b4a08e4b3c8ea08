// SPDX-License-Identifier: Apache-2.0
// The kinds of ports that are rove's own, and the facts about each that are known before a port exists.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "port/device_config.h"

struct rte_mempool;

// All kinds, in the order in which messages name them. A port whose name is of none of these kinds is DPDK's. A kind
// NAME defines NAME_kind and open_NAME_port() in its folder, in a file without and in one with DPDK.
#define ROVE_PORT_KINDS(KIND) KIND(mesh) KIND(interface) KIND(udp) KIND(memif)

namespace rove::datapath {

class Port;
struct PortEnvironment;

struct PortKind {
    std::string_view name;               // a port is called "NAME:ARGUMENT" or "NAME:ARGUMENT,KEY=VALUE,..."
    const char* forms;                   // its names as messages show them, such as "\"udp\", \"udp:ADDRESS\""
    bool needs_argument = true;          // false if there is also a port "NAME"
    bool argument_has_commas = false;    // true if the argument is a folder, and nothing follows it
    bool is_shared = false;              // true if any number of processes may open the port
    bool has_own_addresses = false;      // true if the configuration may leave out `addresses`
    bool is_kernel_interface = false;    // true if the argument is the name of an interface of the kernel
    bool has_segmentation = false;       // true if packets of a path should follow each other: `mp` then has few paths
    bool has_links = false;              // true if frames stay in rings of a LinkPort, and need no mbufs
    uint32_t queue_mbufs = 0;            // mbufs that the queues of a worker keep
    const char* without_keys = nullptr;  // the message for a key whose value the kernel decides; null: keys exist
    // Returns the addresses that the port's name means, or nothing if the name is wrong. Null for no address.
    std::optional<std::vector<std::string>> (*addresses)(std::string_view port) = nullptr;
    // Returns PortClaim::identity(). Null for the kind's name and the argument.
    std::string (*identity)(const DeviceConfig& config) = nullptr;
};

#define ROVE_DECLARE_PORT_KIND(kind) extern const PortKind kind##_kind;
ROVE_PORT_KINDS(ROVE_DECLARE_PORT_KIND)
#undef ROVE_DECLARE_PORT_KIND

// Returns the kind of a port, or null if DPDK drives it.
const PortKind* kind_of(std::string_view port);
// Returns the forms of all kinds, for messages.
std::string port_forms();

// Opens a port of a kind; open_port.h describes the parameters.
using OpenPort = std::unique_ptr<Port>(uint16_t id, DeviceConfig& config, const PortEnvironment& environment,
                                       const std::vector<rte_mempool*>& pools, std::string* error);

}  // namespace rove::datapath
