// SPDX-License-Identifier: Apache-2.0
// Memory that a command names by its address. It is the program's, and where there is none the kernel says EFAULT.
#pragma once

#include <cstddef>
#include <cstdint>

namespace rove::verbs::ucma {

// The bytes that could be read: fewer than `bytes` if the memory ends before.
size_t copy_some_in(void* to, uint64_t from, size_t bytes);
// 0 or EFAULT.
int copy_in(void* to, uint64_t from, size_t bytes);
int copy_out(uint64_t to, const void* from, size_t bytes);

}  // namespace rove::verbs::ucma
