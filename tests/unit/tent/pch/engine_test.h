// SPDX-License-Identifier: Apache-2.0
// Precompiled: what nearly every test of the engine includes.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tent/engine.h"
#include "tent/shard.h"
