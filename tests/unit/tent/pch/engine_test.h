// SPDX-License-Identifier: Apache-2.0
// Precompiled: what nearly every test of the engine includes.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tent/engine/engine.h"
#include "tent/engine/shard.h"
