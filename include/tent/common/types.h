// SPDX-License-Identifier: Apache-2.0
// The name under which Mooncake has the types of <rove/tent.hpp>.
#pragma once

#include "rove/tent.hpp"
