// SPDX-License-Identifier: Apache-2.0
// Access to the program's memory by the addresses in commands. Bad addresses give EFAULT, as in the kernel.
#pragma once

#include <cstddef>
#include <cstdint>

namespace rove::verbs::ucma {

// Copies from the program. Returns the number of bytes copied, which is less than `bytes` if the memory ends earlier.
size_t copy_some_in(void* to, uint64_t from, size_t bytes);
// Copies all bytes. Returns 0 or EFAULT.
int copy_in(void* to, uint64_t from, size_t bytes);
int copy_out(uint64_t to, const void* from, size_t bytes);

}  // namespace rove::verbs::ucma
