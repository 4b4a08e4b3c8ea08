// SPDX-License-Identifier: Apache-2.0
// The functions of the real libibverbs, for objects of hardware devices.
#pragma once

#include <dlfcn.h>

namespace rove::verbs {

// The next definition of `name` after ours; of several versions, the default one. librove-verbs.so itself needs
// libibverbs, so there is one, unless the installed release is older than the call.
template <class Function>
Function real_function(const char* name) {
    return reinterpret_cast<Function>(dlsym(RTLD_NEXT, name));
}

}  // namespace rove::verbs

// The real function that is exported as `name` and has the type of `declaration`; looked up once.
#define ROVE_REAL_AS(name, declaration)                                                    \
    ([] {                                                                                  \
        static const auto real = rove::verbs::real_function<decltype(&declaration)>(name); \
        return real;                                                                       \
    }())
#define ROVE_REAL(name) ROVE_REAL_AS(#name, name)
