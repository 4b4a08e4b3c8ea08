// SPDX-License-Identifier: Apache-2.0
// The functions of the real libibverbs, for objects of hardware devices.
#pragma once

#include <dlfcn.h>

#include <atomic>

namespace rove::verbs {

// Returns the libibverbs.so.1 that the dynamic loader would find without rove's, or null if there is no other.
void* installed_libibverbs();

// Returns the next definition of `name` after rove's, in its default version. librove-verbs.so needs libibverbs, so one
// exists unless the installed release is older than the call. rove's own libibverbs.so.1 (ibverbs/) replaces the
// installed one, and opens it for this.
template <class Function>
Function real_function(const char* name) {
    void* found = dlsym(RTLD_NEXT, name);
    if (found == nullptr && installed_libibverbs() != nullptr) found = dlsym(installed_libibverbs(), name);
    return reinterpret_cast<Function>(found);
}

}  // namespace rove::verbs

// The real function that is exported as `name` and has the type of `declaration`. It is looked up once. A lock could be
// held in a forked child, so there is no lock; threads that look it up at the same time find the same function.
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
