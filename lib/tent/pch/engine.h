// SPDX-License-Identifier: Apache-2.0
// Precompiled: what nearly every file of the engine includes.
#include <nlohmann/json.hpp>

#include "tent/engine/engine.h"
