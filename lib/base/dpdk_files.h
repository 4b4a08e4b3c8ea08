// SPDX-License-Identifier: Apache-2.0
// Keeps DPDK's files from forked children. DPDK never asks for close-on-exec, and its files include the memory of all
// packets. rove's replacements of the C library's functions (libc.cc) set close-on-exec for it. They also record the
// descriptor here, so that a forked child that does not call exec() closes it.
//
// rove's own calls ask for close-on-exec themselves, so a call that does not ask for it comes from DPDK.
#pragma once

namespace rove::libc {

// Records a descriptor of DPDK or of a port, which a forked child will close, and returns it. -1 is not recorded.
int record_file(int file);
// Removes the record of a descriptor, if there is one. Must be called before any file is closed.
void forget_file(int file);

}  // namespace rove::libc
