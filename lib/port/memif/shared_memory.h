// SPDX-License-Identifier: Apache-2.0
// Memory that processes share: a memfd that nobody can shrink or grow, since a load from beyond a file's end is a
// signal. Units: bytes.
#pragma once

#include <cstdint>

#include "base/file_descriptor.h"

namespace rove::datapath {

// Makes such memory, all zero. A page takes none until somebody writes to it. Closed, and errno, if it cannot be had:
// EFBIG if it is more than most_shared_bytes().
FileDescriptor make_shared_memory(const char* name, uint64_t bytes);
// Returns how much can be made at once. The kernel counts it as a file, so RLIMIT_FSIZE (ulimit -f) bounds it.
uint64_t most_shared_bytes();

// Returns why the first `bytes` of memory that another process has made must not be mapped, as a phrase for a log line;
// null if they may.
const char* fault_of_shared_memory(const FileDescriptor& memory, uint64_t bytes);

// A mapping of shared memory, for reading and writing.
class SharedMapping {
  public:
    SharedMapping() = default;  // none
    // Maps the first `bytes` of `memory`. If that fails there is none, and errno says why.
    SharedMapping(const FileDescriptor& memory, uint64_t bytes);
    SharedMapping(SharedMapping&& other) noexcept;
    SharedMapping& operator=(SharedMapping&& other) noexcept;
    ~SharedMapping();

    uint8_t* address() const { return address_; }  // null: none
    uint64_t bytes() const { return bytes_; }

  private:
    uint8_t* address_ = nullptr;
    uint64_t bytes_ = 0;
};

}  // namespace rove::datapath
