// SPDX-License-Identifier: Apache-2.0
#include "fabric/huge_pages.h"

#include <malloc.h>
#include <sys/mman.h>

#include <cstdint>
#include <cstdlib>

namespace rove::fabric {

// glibc can use huge pages itself, but only if an environment variable asks for it before the program starts. This
// makes the heap large once and keeps it: pages are allocated when they are touched. Large allocations do not come from
// it: they are pools of which a host touches little (HeldPool).
void prefer_huge_pages() {
    constexpr size_t kHeapBytes = size_t{4} << 30, kPageBytes = 2 << 20;
    constexpr int kLarge = 1 << 20, kMaxLarge = 1 << 16;
    mallopt(M_TRIM_THRESHOLD, -1);  // the heap never shrinks
    mallopt(M_MMAP_MAX, 0);
    void* const heap = std::malloc(kHeapBytes);
    mallopt(M_MMAP_THRESHOLD, kLarge);
    mallopt(M_MMAP_MAX, kMaxLarge);
    if (heap == nullptr) return;
    const uintptr_t at = (reinterpret_cast<uintptr_t>(heap) + kPageBytes - 1) & ~uintptr_t{kPageBytes - 1};
    madvise(reinterpret_cast<void*>(at), kHeapBytes - kPageBytes, MADV_HUGEPAGE);
    std::free(heap);
}

}  // namespace rove::fabric
