// SPDX-License-Identifier: Apache-2.0
// Files as segments: "file:///PATH". Offsets in the file are the addresses of the segment's only buffer.
#pragma once

#include <memory>
#include <string>

#include "rove/tent_status.h"
#include "tent/engine/segment.h"

namespace rove::tent {

// An open file, closed with the last descriptor of the segment.
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

// The segment of that name, with the file's length as it is now. A file that we may not write is read-only.
// kInvalidArgument: no absolute path, no such file, neither a regular file nor a block device, no access, or nothing in
// it.
Status describe_file(const std::string& name, SegmentDesc* out);

}  // namespace rove::tent
