// SPDX-License-Identifier: Apache-2.0
// The definition of a function of the C library behind ours, for those of them that are hooked here.
#pragma once

#include <dlfcn.h>

namespace rove {

// Kept in a plain pointer, without a lock: threads that are first at the same time find the same. Hooks may be called
// before the constructors of this library, by those of others.
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
