// SPDX-License-Identifier: Apache-2.0
#include "fabric/huge_pages.h"

#include <malloc.h>
#include <sys/mman.h>

#include <cstdint>
#include <cstdlib>

namespace rove::fabric {

// glibc can do this itself, but only if an environment variable says so before the program starts. Here its heap is
// made large once, and keeps what it has got: the pages themselves come when they are touched.
void prefer_huge_pages() {
    constexpr size_t kHeapBytes = size_t{4} << 30, kPageBytes = 2 << 20;  // 8192 hosts take 2.8 GB
    mallopt(M_MMAP_MAX, 0);        // large pieces come from the heap, too
    mallopt(M_TRIM_THRESHOLD, -1);  // ... which never shrinks
    void* const heap = std::malloc(kHeapBytes);
    if (heap == nullptr) return;
    const uintptr_t at = (reinterpret_cast<uintptr_t>(heap) + kPageBytes - 1) & ~uintptr_t{kPageBytes - 1};
    madvise(reinterpret_cast<void*>(at), kHeapBytes - kPageBytes, MADV_HUGEPAGE);
    std::free(heap);
}

}  // namespace rove::fabric
