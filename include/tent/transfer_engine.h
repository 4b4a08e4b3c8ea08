/* SPDX-License-Identifier: Apache-2.0 */
/* The header that TENT's documents name: the C functions, and for C++ the class, in namespace mooncake::tent. */
#ifndef TENT_TRANSFER_ENGINE_H
#define TENT_TRANSFER_ENGINE_H

#include "rove/tent.h"

#ifdef __cplusplus
#include "rove/tent.hpp"
#endif

#endif
