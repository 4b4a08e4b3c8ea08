// SPDX-License-Identifier: Apache-2.0
#include "port/port_kind.h"

namespace rove::datapath {

const PortKind interface_kind{
    .name = "interface",
    .forms = "\"interface:NAME\"",
    .has_own_addresses = true,
    .is_kernel_interface = true,
    .has_segmentation = true,
    .without_keys = "none for an interface: it is the kernel's (ip address, ip route, ip link)",
};

}  // namespace rove::datapath
