// SPDX-License-Identifier: Apache-2.0
// See memory.h.
#include "tent/memory.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <mutex>

namespace rove::tent {

namespace {

constexpr const char* kPrefix = "rove-tent-";

}  // namespace

std::shared_ptr<LocalBuffer> LocalMemory::find(uint64_t address, uint64_t length, uint64_t* change) const {
    const std::shared_lock lock(mutex_);
    if (change != nullptr) *change = change_.load(std::memory_order_relaxed);
    // As SegmentDesc::find(): the first that is looked at holds it, unless buffers overlap.
    for (auto at = buffers_.upper_bound(address); at != buffers_.begin();) {
        --at;
        if (at->second->holds(address, length)) return at->second;
    }
    return nullptr;
}

std::shared_ptr<LocalBuffer> LocalMemory::exact(uint64_t address, uint64_t length) const {
    const std::shared_lock lock(mutex_);
    // Those of one address stand in the order in which they came.
    for (auto [begin, at] = buffers_.equal_range(address); at != begin;) {
        --at;
        if (length == 0 || at->second->length == length) return at->second;
    }
    return nullptr;
}

void LocalMemory::add(std::shared_ptr<LocalBuffer> buffer) {
    const std::lock_guard lock(mutex_);
    const uint64_t address = buffer->address;
    buffers_.emplace(address, std::move(buffer));
    change_.fetch_add(1);
}

void LocalMemory::remove(const LocalBuffer& buffer) {
    const std::lock_guard lock(mutex_);
    for (auto [at, end] = buffers_.equal_range(buffer.address); at != end; ++at) {
        if (at->second.get() != &buffer) continue;
        buffers_.erase(at);
        change_.fetch_add(1);
        return;
    }
}

std::vector<std::shared_ptr<LocalBuffer>> LocalMemory::all() const {
    const std::shared_lock lock(mutex_);
    std::vector<std::shared_ptr<LocalBuffer>> list;
    for (const auto& [address, buffer] : buffers_) list.push_back(buffer);
    return list;
}

Status SharedMemory::create(uint64_t length, SharedMemory* out) {
    static std::atomic<uint32_t> made{0};
    out->length = length;
    int fd;
    do {  // a process that was killed left its memory behind, and we may have its number
        out->name = std::string("/") + kPrefix + std::to_string(getpid()) + "-" + std::to_string(made.fetch_add(1));
        fd = shm_open(out->name.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    } while (fd < 0 && errno == EEXIST);
    int error = fd < 0 ? errno : 0;
    // Allocated now: a full /dev/shm is an error here and no SIGBUS later.
    if (error == 0) error = posix_fallocate(fd, 0, static_cast<off_t>(length));
    if (error == 0) {
        out->address = mmap(nullptr, length, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        if (out->address == MAP_FAILED) error = errno;
    }
    // What is mapped keeps the file open, and a lock on it held, until this process has ended: it is not stale.
    if (error == 0) flock(fd, LOCK_SH);
    if (fd >= 0) close(fd);
    if (error == 0) return {};
    shm_unlink(out->name.c_str());
    return {Code::kInternalError,
            std::to_string(length) + " bytes of shared memory '" + out->name + "': " + std::strerror(error)};
}

void SharedMemory::destroy() {
    munmap(address, length);
    shm_unlink(name.c_str());
}

void remove_stale_memory() {
    std::error_code error;  // without a /dev/shm, or with names that vanish meanwhile, there is nothing to do
    for (const auto& file : std::filesystem::directory_iterator("/dev/shm", error)) {
        const std::string name = file.path().filename();
        if (!name.starts_with(kPrefix)) continue;
        // Of a process that begins, or of another container on this /dev/shm, which may have no such pid: both must be
        // so.
        const int owner = std::atoi(name.c_str() + std::strlen(kPrefix));
        if (owner <= 0 || kill(owner, 0) == 0 || errno != ESRCH) continue;
        const int fd = shm_open(("/" + name).c_str(), O_RDONLY | O_CLOEXEC, 0);
        if (fd < 0) continue;
        if (flock(fd, LOCK_EX | LOCK_NB) == 0) shm_unlink(("/" + name).c_str());
        close(fd);
    }
}

}  // namespace rove::tent
