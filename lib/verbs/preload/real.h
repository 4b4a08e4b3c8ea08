// SPDX-License-Identifier: Apache-2.0
// The functions of the real libibverbs, for objects of hardware devices.
#pragma once

#include <dlfcn.h>

namespace rove::verbs {

// The next definition of `name` after ours; of several versions, the default one. librove-verbs.so itself needs
// libibverbs, so there always is one.
template <class Function>
Function real_function(const char* name) {
    return reinterpret_cast<Function>(dlsym(RTLD_NEXT, name));
}

}  // namespace rove::verbs

// Calls the real function; looked up once.
#define ROVE_REAL(name, ...)                                                         \
    ([&] {                                                                           \
        static const auto real = rove::verbs::real_function<decltype(&name)>(#name); \
        return real(__VA_ARGS__);                                                    \
    }())
