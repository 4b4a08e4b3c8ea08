// SPDX-License-Identifier: Apache-2.0
// The functions of the real libibverbs, for objects of hardware devices.
#pragma once

#include <dlfcn.h>

#include <atomic>

namespace rove::verbs {

// The libibverbs.so.1 that the dynamic loader would find if there were none of ours; null if there is none.
void* installed_libibverbs();

// The next definition of `name` after ours; of several versions, the default one. librove-verbs.so itself needs
// libibverbs, so there is one, unless the installed release is older than the call. Our libibverbs.so.1 (ibverbs/)
// stands in the place of the installed one, and opens it.
template <class Function>
Function real_function(const char* name) {
    void* found = dlsym(RTLD_NEXT, name);
    if (found == nullptr && installed_libibverbs() != nullptr) found = dlsym(installed_libibverbs(), name);
    return reinterpret_cast<Function>(found);
}

}  // namespace rove::verbs

// The real function that is exported as `name` and has the type of `declaration`; looked up once. By no lock, which a
// forked child would find held: threads that are first at the same time find the same.
#define ROVE_REAL_AS(name, declaration)                                       \
    ([] {                                                                     \
        static constinit std::atomic<decltype(&declaration)> real{nullptr};   \
        auto found = real.load(std::memory_order_relaxed);                    \
        if (found == nullptr) {                                               \
            found = rove::verbs::real_function<decltype(&declaration)>(name); \
            real.store(found, std::memory_order_relaxed);                     \
        }                                                                     \
        return found;                                                         \
    }())
#define ROVE_REAL(name) ROVE_REAL_AS(#name, name)
