// SPDX-License-Identifier: Apache-2.0
#include "wire/copy.h"

#include <algorithm>
#include <cstring>

namespace rove::wire {

// Copies in pieces for which glibc uses vector loads. Above 2112 bytes (with FSRM) glibc uses `rep movsb`. On Zen 3
// this is 15 times slower if destination and source are 1 to 63 bytes apart modulo 4096 (measured: 1.4-2.7 us for 4096
// bytes against 0.09 us). rove cannot choose the position of a payload in its frame, so some frames always hit this
// case. The compiler must not know the length either, or it would emit `rep movsq`.
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
