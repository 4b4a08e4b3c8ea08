// SPDX-License-Identifier: Apache-2.0
// The precompiled header, with the includes that nearly every test of the engine needs.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tent/engine/engine.h"
#include "tent/engine/shard.h"
