// SPDX-License-Identifier: Apache-2.0
// Finds the C library's definition of a function that rove hooks.
#pragma once

#include <dlfcn.h>

namespace rove {

// Keeps the result in a plain pointer without a lock: threads that call it for the first time at once find the same
// address. Constructors of other libraries may call hooks before the constructors of this library have run.
template <auto* Declaration>
struct NextSymbol {
    static inline constinit decltype(Declaration) function = nullptr;

    static decltype(Declaration) find(const char* name) {
        decltype(Declaration) found = __atomic_load_n(&function, __ATOMIC_RELAXED);
        if (__builtin_expect(found == nullptr, 0)) {
            found = reinterpret_cast<decltype(Declaration)>(dlsym(RTLD_NEXT, name));
            __atomic_store_n(&function, found, __ATOMIC_RELAXED);
        }
        return found;
    }
};

}  // namespace rove

#define ROVE_NEXT(name) rove::NextSymbol<&::name>::find(#name)
