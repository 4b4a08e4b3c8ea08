// SPDX-License-Identifier: Apache-2.0
// The file of a Unix socket. Only a socket of this user that a killed process left behind is removed, and nothing else,
// because a configuration may name any file by mistake.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>

namespace rove {

class SocketFile {
  public:
    // Returns the file at `path` if it is a socket of this process's user. A symbolic link to a socket does not count.
    static std::optional<SocketFile> at(const std::string& path);
    // Removes the socket of type `type` (SOCK_STREAM, ...) at `path` if no process listens on it any more. Returns
    // false, and changes nothing, if `path` holds something other than a socket of this user.
    static bool clear(const std::string& path, int type);

    // Removes the file unless another file has replaced it.
    void remove() const;

  private:
    SocketFile(std::string path, dev_t device, ino_t inode) : path_(std::move(path)), device_(device), inode_(inode) {}

    std::string path_;
    dev_t device_;
    ino_t inode_;
};

}  // namespace rove
