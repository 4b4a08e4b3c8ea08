// SPDX-License-Identifier: Apache-2.0
// Adds the commands of rove-testpmd's prompt.
#pragma once

#include "app.h"
#include "prompt/commands.h"

namespace rove::testpmd {

void add_commands(prompt::Commands& commands, App& app);

}  // namespace rove::testpmd
