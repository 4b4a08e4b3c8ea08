// SPDX-License-Identifier: Apache-2.0
// See file.h.
#include "tent/transports/io_uring/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace rove::tent {

OpenFile::~OpenFile() {
    close(fd_);
}

Status describe_file(const std::string& name, SegmentDesc* out) {
    const auto refused = [&](const std::string& why) {
        return Status{Code::kInvalidArgument, "segment '" + name + "': " + why};
    };
    const std::string path = name.substr(kFileScheme.size());
    if (!path.starts_with('/')) return refused("an absolute path, file:///PATH, is required");
    // Opening a FIFO would wait for its other end. O_NONBLOCK has no effect on files.
    constexpr int kFlags = O_CLOEXEC | O_NONBLOCK;
    int fd = open(path.c_str(), O_RDWR | kFlags);
    const bool writable = fd >= 0;
    if (fd < 0 && (errno == EACCES || errno == EROFS || errno == EPERM || errno == ETXTBSY))
        fd = open(path.c_str(), O_RDONLY | kFlags);
    if (fd < 0) return refused(std::strerror(errno));
    auto file = std::make_shared<const OpenFile>(fd);
    struct stat status {};
    if (fstat(fd, &status) != 0) return refused(std::strerror(errno));
    if (!S_ISREG(status.st_mode) && !S_ISBLK(status.st_mode))
        return refused("neither a regular file nor a block device");
    const off_t length = lseek(fd, 0, SEEK_END);  // st_size of a block device is 0
    if (length <= 0) return refused("the file is empty; it must already have the length that requests need");
    out->kind = SegmentKind::kFile;
    out->name = name;
    out->file = std::move(file);
    out->buffers.push_back(
        {.address = 0, .length = static_cast<uint64_t>(length), .location = "*", .writable = writable});
    return {};
}

}  // namespace rove::tent
