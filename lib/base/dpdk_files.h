// SPDX-License-Identifier: Apache-2.0
// Keeps the files that DPDK opens inside of this process. DPDK asks for close-on-exec nowhere, and among its files is
// the memory of all packets. The functions that stand in the place of the C library's (libc.cc) ask for it instead.
// They record the file here, and a forked child that goes on without exec() closes it.
//
// rove's own calls ask for close-on-exec themselves. A call that does not is therefore DPDK's.
#pragma once

namespace rove::libc {

// Records a descriptor that a forked child is to close, DPDK's or a port's, and returns it. -1 is not recorded.
int record_file(int file);
// Before a file is closed, whichever it is.
void forget_file(int file);

}  // namespace rove::libc
