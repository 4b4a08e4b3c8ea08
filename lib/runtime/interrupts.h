// SPDX-License-Identifier: Apache-2.0
// Keeps the control callbacks of DPDK's drivers away from running workers.
//
// EAL calls a driver's callbacks on its interrupt thread. When a memif peer leaves, net_memif (DPDK 22.11) unmaps the
// rings in such a callback, even if a worker is inside rte_eth_rx_burst or tx_burst, and the process dies of SIGSEGV.
// When a peer connects, its callback sets up the queues while the workers use them. Therefore the linker redirects all
// callers of rte_intr_callback_register and its inverses to rove's functions (--wrap; dpdk_archives.py). These register
// each callback with a wrapper that pauses the workers while the driver's own callback runs.
#pragma once

#include <functional>

namespace rove::datapath {

// Runs the function that it is given while no thread is inside a driver.
using WhilePaused = std::function<void(const std::function<void()>&)>;
// Runs callbacks by `while_paused` from now on. Before this call they run as EAL calls them.
void guard_interrupts(WhilePaused while_paused);
// Stops all callbacks. When this returns, none is running and none will run, so the objects that they use may be
// removed. EAL forgets all of them, because net_memif of 22.11 leaves its listener registered when its port is closed,
// and EAL's thread panics if a registered file has been closed.
void silence_interrupts();

}  // namespace rove::datapath
