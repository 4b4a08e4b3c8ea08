// SPDX-License-Identifier: Apache-2.0
// Published flow sizes, as in ConWeave's public simulator: MP-RDMA's Fig. 13 uses web search (DCTCP), Eunomia
// AliStorage and Meta's Hadoop clusters.
#pragma once

#include "fabric/flow_sizes.h"

namespace rove::sim {

const fabric::FlowSizes& web_search();
const fabric::FlowSizes& ali_storage();
const fabric::FlowSizes& fb_hadoop();

}  // namespace rove::sim
