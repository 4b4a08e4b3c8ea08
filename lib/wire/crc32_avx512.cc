// SPDX-License-Identifier: Apache-2.0
// CRC-32 and ICRC with 512-bit VPCLMULQDQ. Compiled with -mavx512f, vl, bw and dq, -mpclmul and -mvpclmulqdq.
#include "wire/crc32_vector512.h"

namespace rove::wire {

constinit const Crc32Kernel kCrc32Avx512 = make_kernel<Vector512>();

}  // namespace rove::wire
