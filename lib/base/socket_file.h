// SPDX-License-Identifier: Apache-2.0
// The name of a Unix socket in the file system. A socket of ours that a killed process has left is removed, and nothing
// else ever is: a configuration may name any file by mistake.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>

namespace rove {

class SocketFile {
  public:
    // The file at `path` if it is a socket of this process's user, itself and not behind a symbolic link.
    static std::optional<SocketFile> at(const std::string& path);
    // Removes the socket of type `type` (SOCK_STREAM, ...) at `path` at which nobody listens any more. Returns false if
    // something else is in its place, which is left as it is.
    static bool clear(const std::string& path, int type);

    // Removes it, unless another file has taken its place.
    void remove() const;

  private:
    SocketFile(std::string path, dev_t device, ino_t inode) : path_(std::move(path)), device_(device), inode_(inode) {}

    std::string path_;
    dev_t device_;
    ino_t inode_;
};

}  // namespace rove
