// SPDX-License-Identifier: Apache-2.0
// The functions of rove's libibverbs.so.1 that the installed libibverbs provides (forwards.py).
#include <dlfcn.h>

#include <cerrno>
#include <cstdio>

#include "preload/real.h"

extern "C" {

// Tables from forwards.py, by the index of a function.
extern const char* const rove_forward_names[];
extern const char* const rove_forward_versions[];
extern void* rove_forward_slots[];

static void* not_there() {
    errno = ENOSYS;
    return nullptr;
}

__attribute__((visibility("hidden"))) void* rove_find_forward(int index) {
    void* const library = rove::verbs::installed_libibverbs();
    void* found =
        library != nullptr ? dlvsym(library, rove_forward_names[index], rove_forward_versions[index]) : nullptr;
    if (found == nullptr) {
        std::fprintf(stderr, "rove: no installed libibverbs.so.1 has %s\n", rove_forward_names[index]);
        found = reinterpret_cast<void*>(not_there);
    }
    __atomic_store_n(&rove_forward_slots[index], found, __ATOMIC_RELAXED);
    return found;
}

}  // extern "C"
