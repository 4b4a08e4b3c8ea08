// SPDX-License-Identifier: Apache-2.0
// Extends crc32_avx512.cc: long inputs use mostly GFNI's affine maps of bytes. Compiled with -mgfni as well.
#include "wire/crc32_vector512.h"

namespace rove::wire {
namespace {

struct MappedVector512 : Vector512 {
    ROVE_INLINE Type repeat(uint64_t value) { return _mm512_set1_epi64(static_cast<int64_t>(value)); }
    ROVE_INLINE Type map_bytes(Type x, Type map) { return _mm512_gf2p8affine_epi64_epi8(x, map, 0); }
};

}  // namespace

constinit const Crc32Kernel kCrc32Gfni = make_kernel<MappedVector512>();

}  // namespace rove::wire
