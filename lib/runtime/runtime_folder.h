// SPDX-License-Identifier: Apache-2.0
// The folder in which EAL puts this process's telemetry socket, and the folders left by killed processes.
#pragma once

namespace rove::datapath {

// Marks the folder as that of a running process, and removes folders of processes that have ended. Called after
// rte_eal_init(). Processes of other PID namespaces may have folders next to it.
void keep_runtime_folder();
// Removes everything that EAL left in the file system, unless another process uses the same folder.
void remove_runtime_folder();
// Closes a forked child's copy of the lock.
void leave_runtime_folder_in_child();

}  // namespace rove::datapath
