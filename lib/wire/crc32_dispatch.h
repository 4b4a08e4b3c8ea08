// SPDX-License-Identifier: Apache-2.0
// The CRC code of one instruction set, and the selection among them. Internal to lib/wire.
#pragma once

#include <cstddef>
#include <cstdint>

namespace rove::wire {

// Implements the functions of crc32.h and icrc.h.
struct Crc32Kernel {
    uint32_t (*crc32)(uint32_t crc, const void* data, size_t bytes);
    uint32_t (*crc32_copy)(uint32_t crc, void* dst, const void* src, size_t bytes);
    uint32_t (*icrc)(const uint8_t* l3, size_t bytes);
    void (*icrc_four)(const uint8_t* const (&l3)[4], size_t bytes, uint32_t (&sums)[4]);
    uint32_t (*icrc_copy)(const uint8_t* l3, size_t header_bytes, void* dst, const void* src, size_t bytes);
};

extern const Crc32Kernel kCrc32Portable, kCrc32Sse, kCrc32Avx2, kCrc32Avx512, kCrc32Gfni;

// Returns true if this machine can run the kernel.
bool supported(const Crc32Kernel& kernel);

extern const Crc32Kernel crc32_kernel;  // the best kernel for this machine, chosen at load time

}  // namespace rove::wire
