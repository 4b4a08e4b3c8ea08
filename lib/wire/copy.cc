// SPDX-License-Identifier: Apache-2.0
#include "wire/copy.h"

#include <algorithm>
#include <cstring>

namespace rove::wire {

// In pieces that glibc copies with vector loads: above 2112 bytes (with FSRM) it takes `rep movsb`, which on Zen 3 is
// 15 times slower when destination and source lie 1 to 63 bytes apart modulo 4096 (measured: 1.4-2.7 us for 4096 bytes
// against 0.09 us). Where a payload lies in its frame is not ours to choose, so some frames always met that. Nor does
// the compiler know the length, for which it would take `rep movsq`.
void copy_pieces(void* to, const void* from, size_t bytes) {
    constexpr size_t kPiece = 2048;
    auto* target = static_cast<uint8_t*>(to);
    auto* source = static_cast<const uint8_t*>(from);
    while (bytes != 0) {
        const size_t piece = std::min(bytes, kPiece);
        std::memcpy(target, source, piece);
        target += piece;
        source += piece;
        bytes -= piece;
    }
}

}  // namespace rove::wire
