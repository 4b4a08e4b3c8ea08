// SPDX-License-Identifier: Apache-2.0
// The name under which Mooncake has the Status of <rove/tent.hpp>.
#pragma once

#include "rove/tent.hpp"
