// SPDX-License-Identifier: Apache-2.0
// The precompiled header, with the includes that nearly every test here needs.
#include <gtest/gtest.h>

#include <deque>

#include "fabric/topology.h"
#include "transfer.h"
