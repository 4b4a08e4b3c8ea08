// SPDX-License-Identifier: Apache-2.0
// The CRC-32 of ISA-L.
#include "wire/crc32.h"

#include <isa-l/crc.h>

#include <cstring>

namespace rove::wire {

uint32_t crc32(uint32_t crc, const void* data, size_t bytes) {
    return crc32_gzip_refl(crc, static_cast<const unsigned char*>(data), bytes);
}

uint32_t crc32_copy(uint32_t crc, void* dst, const void* src, size_t bytes) {
    std::memcpy(dst, src, bytes);
    return crc32(crc, dst, bytes);
}

}  // namespace rove::wire
