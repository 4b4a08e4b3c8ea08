// SPDX-License-Identifier: Apache-2.0
// For programs whose networks are large, at their start. What a packet touches on its way lies all over some hundred
// megabytes, so with pages of 4 KiB most accesses miss the TLB as well as the caches: with huge ones a hop among 1024
// hosts takes 0.7 of the time.
#pragma once

namespace rove::fabric {

// What is allocated from now on, up to some gigabytes, lies in huge pages, where the kernel has any.
void prefer_huge_pages();

}  // namespace rove::fabric
