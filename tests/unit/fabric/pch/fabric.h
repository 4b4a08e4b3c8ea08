// SPDX-License-Identifier: Apache-2.0
// Precompiled: what nearly every test here includes.
#include <gtest/gtest.h>

#include <deque>

#include "fabric/topology.h"
#include "transfer.h"
