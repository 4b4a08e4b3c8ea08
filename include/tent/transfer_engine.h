/* SPDX-License-Identifier: Apache-2.0 */
/* The header that Mooncake's documents name. It declares the C functions and, in C++, mooncake::tent::TransferEngine.
 */
#ifndef TENT_TRANSFER_ENGINE_H
#define TENT_TRANSFER_ENGINE_H

#include "rove/tent.h"

#ifdef __cplusplus
#include "rove/tent.hpp"
#endif

#endif
