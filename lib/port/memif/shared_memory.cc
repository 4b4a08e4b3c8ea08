// SPDX-License-Identifier: Apache-2.0
#include "port/memif/shared_memory.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statfs.h>

#include <cerrno>
#include <utility>

namespace rove::datapath {

uint64_t most_shared_bytes() {
    rlimit limit{};
    return getrlimit(RLIMIT_FSIZE, &limit) == 0 ? limit.rlim_cur : RLIM_INFINITY;
}

FileDescriptor make_shared_memory(const char* name, uint64_t bytes) {
    // The kernel would send SIGXFSZ as well.
    if (bytes > most_shared_bytes()) {
        errno = EFBIG;
        return {};
    }
    FileDescriptor memory(memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING));
    if (memory.is_open() && ftruncate(memory.get(), static_cast<off_t>(bytes)) == 0 &&
        ::fcntl(memory.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0)
        return memory;
    const int error = errno;
    memory = {};
    errno = error;
    return {};
}

const char* fault_of_shared_memory(const FileDescriptor& memory, uint64_t bytes) {
    const int seals = ::fcntl(memory.get(), F_GET_SEALS);
    if (seals < 0 || (seals & F_SEAL_SHRINK) == 0)
        return "memory that can shrink; allowed is a memfd with F_SEAL_SHRINK (no zero-copy)";
    // A huge page that the peer frees may not be available when we touch it again.
    struct statfs files {};
    if (fstatfs(memory.get(), &files) != 0 || files.f_type == HUGETLBFS_MAGIC) return "memory of huge pages";
    struct stat file {};
    if (fstat(memory.get(), &file) != 0 || bytes == 0 || bytes > static_cast<uint64_t>(file.st_size))
        return "a region that is larger than its file, or empty";
    return nullptr;
}

SharedMapping::SharedMapping(const FileDescriptor& memory, uint64_t bytes) {
    void* const address = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, memory.get(), 0);
    if (address == MAP_FAILED) return;
    address_ = static_cast<uint8_t*>(address);
    bytes_ = bytes;
}

SharedMapping::SharedMapping(SharedMapping&& other) noexcept
    : address_(std::exchange(other.address_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}

SharedMapping& SharedMapping::operator=(SharedMapping&& other) noexcept {
    std::swap(address_, other.address_);
    std::swap(bytes_, other.bytes_);
    return *this;
}

SharedMapping::~SharedMapping() {
    if (address_ != nullptr) munmap(address_, bytes_);
}

}  // namespace rove::datapath
