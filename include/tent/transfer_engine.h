/* SPDX-License-Identifier: Apache-2.0 */
/* The header and the namespace that TENT's documents name. */
#ifndef TENT_TRANSFER_ENGINE_H
#define TENT_TRANSFER_ENGINE_H

#ifdef __cplusplus
#include "rove/tent.hpp"
namespace mooncake {
namespace tent = ::rove::tent;
}
#else
#include "rove/tent.h"
#endif

#endif
