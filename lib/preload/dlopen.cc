// SPDX-License-Identifier: Apache-2.0
// Programs that open libibverbs at run time (NCCL, ctypes, plug-ins) get this library instead. It depends on the real
// libibverbs, so dlsym() finds rove's exports in the handle, and libibverbs' symbols for the rest.
#include <dlfcn.h>

#include <cstring>

#include "base/next_symbol.h"

namespace rove::verbs {

namespace {

bool is_libibverbs(const char* file) {
    if (file == nullptr) return false;
    const char* slash = std::strrchr(file, '/');
    const char* name = slash != nullptr ? slash + 1 : file;
    return std::strcmp(name, "libibverbs.so.1") == 0 || std::strcmp(name, "libibverbs.so") == 0;
}

// Returns the file name of this library.
const char* own_file() {
    static Dl_info info{};
    return dladdr(reinterpret_cast<void*>(&own_file), &info) != 0 ? info.dli_fname : nullptr;
}

__attribute__((noinline)) const char* instead_of(const char* file) {
    if (!is_libibverbs(file)) return file;
    const char* own = own_file();
    return own != nullptr ? own : file;
}

}  // namespace

}  // namespace rove::verbs

using namespace rove::verbs;

// The C library's dlopen() uses its return address to choose the RUNPATH and the namespace to search. So this function
// must end with a jump to it. g++ makes one of the last call of an optimized function, which doors/runpath tests. clang
// has no attribute for that, so under sanitizers a program's RUNPATH is ignored.
#ifdef __clang__
#define ROVE_JUMPS
#else
#define ROVE_JUMPS __attribute__((optimize("O2,optimize-sibling-calls,omit-frame-pointer")))
#endif

extern "C" __attribute__((visibility("default"), no_sanitize("address", "undefined"))) ROVE_JUMPS void* dlopen(
    const char* file, int mode) noexcept {
    const auto next = ROVE_NEXT(dlopen);
    return next(instead_of(file), mode);
}
