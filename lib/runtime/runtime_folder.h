// SPDX-License-Identifier: Apache-2.0
// The folder in which EAL puts this process's telemetry socket, and those that killed processes have left.
#pragma once

namespace rove::datapath {

// After rte_eal_init(): marks the folder as that of a process that lives, and removes those of processes that do not.
// Processes of other PID namespaces may have theirs beside it.
void keep_runtime_folder();
// Removes what EAL left in the file system, unless another process has the same folder.
void remove_runtime_folder();
// A forked child gives up its share of the lock.
void leave_runtime_folder_in_child();

}  // namespace rove::datapath
