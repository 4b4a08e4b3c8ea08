// SPDX-License-Identifier: Apache-2.0
// Files as segments, "file:///PATH". Offsets in the file are the addresses of the segment's only buffer.
#pragma once

#include <memory>
#include <string>

#include "rove/tent_status.h"
#include "tent/engine/segment.h"

namespace rove::tent {

// An open file, which is closed with the last description of the segment.
class OpenFile {
  public:
    explicit OpenFile(int fd) : fd_(fd) {}
    ~OpenFile();
    OpenFile(const OpenFile&) = delete;
    OpenFile& operator=(const OpenFile&) = delete;
    int fd() const { return fd_; }

  private:
    const int fd_;
};

// Describes the segment of that name, with the file's present length. A file that this process may not write is
// read-only. Returns kInvalidArgument if the path is not absolute, the file does not exist, is neither a regular file
// nor a block device, cannot be accessed, or is empty.
Status describe_file(const std::string& name, SegmentDesc* out);

}  // namespace rove::tent
