// SPDX-License-Identifier: Apache-2.0
// Chooses the CRC code for this machine.
//
// rove has its own kernels because ISA-L 2.30 has 128-bit PCLMULQDQ and AVX-512 but nothing in between, and no copy
// with CRC. An ICRC would also need several calls of it. Measured on Zen 3 (AVX2 and VPCLMULQDQ; `wire_bench`, minimum
// of 25 runs, ns):
//                                   8 B    64 B    256 B    1024 B    4096 B
//   ISA-L                            18      17       23        83       331
//   kCrc32Sse                         9      11       23        82       322
//   kCrc32Avx2                        9      12       16        44       163  (25 GB/s)
// On Zen 5 with 512-bit vectors, a copy of 4096 bytes within L1 and L2 takes 65 and 70 ns with kCrc32Avx512, 39 and 53
// with kCrc32Gfni, and 31 and 43 with memcpy. One unit multiplies, in 2 cycles; two units map bytes, in 1 cycle. A CRC
// needs 2 products or 4 maps for 64 bytes.
#include <array>
#include <cstring>
#include <initializer_list>

#include "wire/crc32_dispatch.h"

namespace rove::wire {
namespace {

// Returns true if `kernel` agrees with ISA-L on an input that exercises its loops. A kernel that this machine's
// compiler, CPU or hypervisor breaks would make every packet look corrupt.
bool agrees(const Crc32Kernel& kernel) {
    std::array<uint8_t, 3000> input{}, copy{};
    for (size_t i = 0; i < input.size(); ++i) input[i] = static_cast<uint8_t>(i * i >> 3);
    const Crc32Kernel& good = kCrc32Portable;
    for (const size_t bytes : {size_t{7}, size_t{76}, size_t{300}, input.size()}) {
        const uint32_t crc = good.crc32(0, input.data(), bytes);
        if (kernel.crc32(0, input.data(), bytes) != crc) return false;
        if (kernel.crc32_copy(0, copy.data(), input.data(), bytes) != crc) return false;
        if (std::memcmp(copy.data(), input.data(), bytes) != 0) return false;
    }
    constexpr size_t kPacket = 2600;
    for (const uint8_t version : {0x45, 0x60}) {
        uint8_t* const l3 = input.data() + 14;
        *l3 = version;
        const uint32_t crc = good.icrc(l3, kPacket);
        if (kernel.icrc(l3, kPacket) != crc) return false;
        std::array<uint8_t, 4 * 128> headers;
        const uint8_t* four[4];
        uint32_t sums[4];
        for (size_t i = 0; i < 4; ++i) {
            uint8_t* const packet = &headers[128 * i];
            std::memcpy(packet, l3 - 14 + i, 128);
            packet[14] = version;
            four[i] = packet + 14;
        }
        kernel.icrc_four(four, 100, sums);
        for (size_t i = 0; i < 4; ++i)
            if (sums[i] != good.icrc(four[i], 100)) return false;
        if (kernel.icrc_copy(l3, 76, copy.data(), l3 + 76, kPacket - 76) != crc) return false;
        if (std::memcmp(copy.data(), l3 + 76, kPacket - 76) != 0) return false;
    }
    return true;
}

}  // namespace

bool supported(const Crc32Kernel& kernel) {
    __builtin_cpu_init();
    if (&kernel == &kCrc32Sse) return __builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("pclmul");
    if (&kernel == &kCrc32Avx2) return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("vpclmulqdq");
    const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
                        __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
                        __builtin_cpu_supports("vpclmulqdq");
    if (&kernel == &kCrc32Avx512) return avx512;
    if (&kernel == &kCrc32Gfni) return avx512 && __builtin_cpu_supports("gfni");
    return true;
}

const Crc32Kernel crc32_kernel = [] {
    __builtin_cpu_init();
    // Intel's CPUs need 1 cycle for a multiplication and 1 for a map, so maps gain nothing there.
    const bool maps_are_faster = __builtin_cpu_is("amd");
    for (const Crc32Kernel* kernel : {&kCrc32Gfni, &kCrc32Avx512, &kCrc32Avx2, &kCrc32Sse}) {
        if (kernel == &kCrc32Gfni && !maps_are_faster) continue;
        if (supported(*kernel) && agrees(*kernel)) return *kernel;
    }
    return kCrc32Portable;
}();

}  // namespace rove::wire
