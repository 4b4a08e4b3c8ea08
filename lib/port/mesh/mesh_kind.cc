// SPDX-License-Identifier: Apache-2.0
#include "port/port_kind.h"

namespace rove::datapath {

const PortKind mesh_kind{
    .name = "mesh",
    .forms = "\"mesh\", \"mesh:FOLDER\"",
    .needs_argument = false,
    .argument_has_commas = true,
    .is_shared = true,
    .has_own_addresses = true,
    .has_links = true,
};

}  // namespace rove::datapath
