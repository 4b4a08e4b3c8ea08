// SPDX-License-Identifier: Apache-2.0
#include "base/socket_file.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>

#include "base/file_descriptor.h"

namespace rove {

namespace {

// Returns true if no process listens at `path`. Linux also returns ECONNREFUSED for a file that is not a socket.
bool is_refused(const std::string& path, int type) {
    sockaddr_un address{};
    if (path.size() >= sizeof(address.sun_path)) return false;
    address.sun_family = AF_UNIX;
    path.copy(address.sun_path, path.size());
    const FileDescriptor probe(socket(AF_UNIX, type | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    return probe.is_open() && connect(probe.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 &&
           errno == ECONNREFUSED;
}

// Opens the folder first, so that a symbolic link in the path cannot lead to another folder between a check and a
// removal.
FileDescriptor folder_of(const std::string& file) {
    const std::string folder = file.find('/') == file.npos ? "." : file.substr(0, file.rfind('/') + 1);
    return FileDescriptor(open(folder.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
}

std::string file_name_of(const std::string& file) {
    return file.substr(file.rfind('/') + 1);
}

bool is_own_socket(int folder, const std::string& name, struct stat* status) {
    return fstatat(folder, name.c_str(), status, AT_SYMLINK_NOFOLLOW) == 0 && S_ISSOCK(status->st_mode) &&
           status->st_uid == geteuid();
}

}  // namespace

std::optional<SocketFile> SocketFile::at(const std::string& path) {
    const FileDescriptor folder = folder_of(path);
    struct stat status;
    if (!is_own_socket(folder.get(), file_name_of(path), &status)) return std::nullopt;
    return SocketFile(path, status.st_dev, status.st_ino);
}

bool SocketFile::clear(const std::string& path, int type) {
    if (struct stat status; lstat(path.c_str(), &status) != 0) return errno == ENOENT;
    const auto socket = at(path);
    if (!socket) return false;
    if (is_refused(path, type)) socket->remove();
    return true;
}

void SocketFile::remove() const {
    const FileDescriptor folder = folder_of(path_);
    const std::string name = file_name_of(path_);
    struct stat status;
    if (is_own_socket(folder.get(), name, &status) && status.st_dev == device_ && status.st_ino == inode_)
        unlinkat(folder.get(), name.c_str(), 0);
}

}  // namespace rove
