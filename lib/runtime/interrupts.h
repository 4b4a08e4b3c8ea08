// SPDX-License-Identifier: Apache-2.0
// Drivers' control callbacks against workers.
//
// EAL calls a driver's callbacks on its interrupt thread. When a memif peer leaves, net_memif (DPDK 22.11) unmaps the
// rings in such a callback, whether or not a worker is inside rte_eth_rx_burst or tx_burst: the process then dies of
// SIGSEGV. And when a peer comes, its callback sets the queues up under the workers. So the linker
// gives rove's functions to all who call rte_intr_callback_register and its inverses (--wrap; dpdk_archives.py). Each
// callback is registered as a wrapper that pauses the workers while the driver's own runs.
#pragma once

#include <functional>

namespace rove::datapath {

// Runs what it is given, while nobody is inside of a driver.
using WhilePaused = std::function<void(const std::function<void()>&)>;
// Callbacks run by `while_paused` from now on. Before, they run as EAL calls them.
void guard_interrupts(WhilePaused while_paused);
// No callback runs from now on, and none does when this returns: what they work on may go away. EAL forgets them all:
// net_memif of 22.11 leaves its listener registered when its port is closed, and EAL's thread panics over a file that
// was.
void silence_interrupts();

}  // namespace rove::datapath
