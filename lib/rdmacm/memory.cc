// SPDX-License-Identifier: Apache-2.0
// See memory.h. The kernel copies, as between processes, because it checks each page first.
#include "rdmacm/memory.h"

#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/libc.h"

namespace rove::verbs::ucma {

namespace {

// Returns true if memcpy() has to do it, because a sandbox forbids the system call (EPERM, ENOSYS). Then memory that is
// only readable is treated as writable, and a write to it ends the program.
bool may_copy_ourselves(uint64_t at, size_t bytes) {
    return errno != EFAULT && libc::can_read(reinterpret_cast<const void*>(at), bytes);
}

}  // namespace

size_t copy_some_in(void* to, uint64_t from, size_t bytes) {
    const iovec own{to, bytes}, given{reinterpret_cast<void*>(from), bytes};
    const ssize_t copied = process_vm_readv(getpid(), &own, 1, &given, 1, 0);
    if (copied >= 0) return static_cast<size_t>(copied);
    if (!may_copy_ourselves(from, bytes)) return 0;
    std::memcpy(to, reinterpret_cast<const void*>(from), bytes);
    return bytes;
}

int copy_in(void* to, uint64_t from, size_t bytes) {
    return copy_some_in(to, from, bytes) == bytes ? 0 : EFAULT;
}

int copy_out(uint64_t to, const void* from, size_t bytes) {
    const iovec own{const_cast<void*>(from), bytes}, given{reinterpret_cast<void*>(to), bytes};
    const ssize_t copied = process_vm_writev(getpid(), &own, 1, &given, 1, 0);
    if (copied == static_cast<ssize_t>(bytes)) return 0;
    if (copied >= 0 || !may_copy_ourselves(to, bytes)) return EFAULT;
    std::memcpy(reinterpret_cast<void*>(to), from, bytes);
    return 0;
}

}  // namespace rove::verbs::ucma
