// SPDX-License-Identifier: Apache-2.0
// Shows the engines of this process in DPDK's telemetry: the tables of figures.h, such as /tent/devices, and
// /tent/policies.
#pragma once

namespace rove::tent {

class Engine;

void show_in_telemetry(Engine& engine);
// Waits for a command that is being answered.
void hide_from_telemetry(Engine& engine);

}  // namespace rove::tent
