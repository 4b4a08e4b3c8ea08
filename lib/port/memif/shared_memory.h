// SPDX-License-Identifier: Apache-2.0
// Memory that processes share: a memfd that cannot shrink or grow, because a load beyond a file's end raises a signal.
// Units: bytes.
#pragma once

#include <cstdint>

#include "base/file_descriptor.h"

namespace rove::datapath {

// Creates such memory, all zero. A page takes no memory until a process writes to it. On failure, the result is closed
// and errno is set; EFBIG means that `bytes` is more than most_shared_bytes().
FileDescriptor make_shared_memory(const char* name, uint64_t bytes);
// Returns the largest size that can be created at once. The kernel counts the memory as a file, so RLIMIT_FSIZE (ulimit
// -f) bounds it.
uint64_t most_shared_bytes();

// Returns why the first `bytes` of memory that another process has created must not be mapped, as a phrase for a log
// line. Returns null if they may be mapped.
const char* fault_of_shared_memory(const FileDescriptor& memory, uint64_t bytes);

// A mapping of shared memory, for reading and writing.
class SharedMapping {
  public:
    SharedMapping() = default;  // no mapping
    // Maps the first `bytes` of `memory`. On failure there is no mapping, and errno is set.
    SharedMapping(const FileDescriptor& memory, uint64_t bytes);
    SharedMapping(SharedMapping&& other) noexcept;
    SharedMapping& operator=(SharedMapping&& other) noexcept;
    ~SharedMapping();

    uint8_t* address() const { return address_; }  // null without a mapping
    uint64_t bytes() const { return bytes_; }

  private:
    uint8_t* address_ = nullptr;
    uint64_t bytes_ = 0;
};

}  // namespace rove::datapath
