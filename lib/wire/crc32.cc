// SPDX-License-Identifier: Apache-2.0
// Chooses the CRC code for this machine.
#include "wire/crc32_dispatch.h"

#include <initializer_list>

namespace rove::wire {

bool supported(const Crc32Kernel& kernel) {
    __builtin_cpu_init();
    if (&kernel == &kCrc32Sse) return __builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("pclmul");
    if (&kernel == &kCrc32Avx2) return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("vpclmulqdq");
    if (&kernel == &kCrc32Avx512) {
        return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
               __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
               __builtin_cpu_supports("vpclmulqdq");
    }
    return true;
}

const Crc32Kernel crc32_kernel = [] {
    for (const Crc32Kernel* kernel : {&kCrc32Avx512, &kCrc32Avx2, &kCrc32Sse}) {
        if (supported(*kernel)) return *kernel;
    }
    return kCrc32Portable;
}();

}  // namespace rove::wire
