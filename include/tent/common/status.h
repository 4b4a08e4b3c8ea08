// SPDX-License-Identifier: Apache-2.0
// Mooncake's header name for Status, which <rove/tent.hpp> declares.
#pragma once

#include "rove/tent.hpp"
