// SPDX-License-Identifier: Apache-2.0
// See shared_memory.h.
#include "tent/memory/shared_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>
#include <random>

namespace rove::tent {

namespace {

constexpr uint64_t kPage = 4096;

// The content of the page behind the memory.
struct Trailer {
    static constexpr uint64_t kMagic = 0x314D454D45564F52;  // "ROVEMEM1"

    uint64_t magic = kMagic;
    ObjectId id{};
    std::atomic<uint32_t> registered{1};
};
static_assert(sizeof(Trailer) <= kPage && std::atomic<uint32_t>::is_always_lock_free);

// Returns the last page of a mapping.
Trailer* trailer(void* address, uint64_t bytes) {
    return std::launder(reinterpret_cast<Trailer*>(static_cast<uint8_t*>(address) + bytes - kPage));
}

}  // namespace

ObjectId random_id() {
    std::random_device random;
    ObjectId id;
    std::generate(id.begin(), id.end(), [&] { return static_cast<uint8_t>(random()); });
    return id;
}

Status SharedMemory::create(uint64_t length, bool writable, bool huge, std::unique_ptr<SharedMemory>* out) {
    std::unique_ptr<SharedMemory> memory(new SharedMemory);
    const auto failed = [&] {
        return Status{Code::kInternalError, std::to_string(length) + " bytes of shared memory" +
                                                (huge ? " of huge pages: " : ": ") + std::strerror(errno)};
    };
    memory->fd_ = memfd_create("rove-tent", MFD_CLOEXEC | MFD_ALLOW_SEALING | (huge ? MFD_HUGETLB : 0));
    struct stat about {};
    if (memory->fd_ < 0 || fstat(memory->fd_, &about) != 0) return failed();
    const uint64_t page = huge ? static_cast<uint64_t>(about.st_blksize) : kPage;
    const uint64_t bytes = (length + kPage + page - 1) / page * page;
    // The memory is allocated now, so that a lack of it is an error here and not a SIGBUS later.
    if ((errno = posix_fallocate(memory->fd_, 0, static_cast<off_t>(bytes))) != 0) return failed();
    void* address = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, memory->fd_, 0);
    if (address == MAP_FAILED) return failed();
    memory->address_ = address;
    memory->length_ = length;
    memory->bytes_ = bytes;
    memory->writable_ = writable;
    memory->id_ = random_id();
    new (static_cast<uint8_t*>(address) + bytes - kPage) Trailer{.id = memory->id_};
    // F_SEAL_FUTURE_WRITE leaves our own mapping writable.
    const int seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL | (writable ? 0 : F_SEAL_FUTURE_WRITE);
    if (fcntl(memory->fd_, F_ADD_SEALS, seals) != 0) return failed();
    *out = std::move(memory);
    return {};
}

void SharedMemory::withdraw() {
    trailer(address_, bytes_)->registered.store(0);
}

SharedMemory::~SharedMemory() {
    if (address_ != nullptr) munmap(address_, bytes_);
    if (fd_ >= 0) close(fd_);
}

std::shared_ptr<PeerMemory> PeerMemory::map(int fd, const ObjectId& id, bool writable) {
    struct stat status {};
    const int seals = fcntl(fd, F_GET_SEALS);
    if (seals < 0 || (seals & F_SEAL_SHRINK) == 0 || fstat(fd, &status) != 0 || status.st_uid != geteuid() ||
        status.st_size <= static_cast<off_t>(kPage) || static_cast<uint64_t>(status.st_size) % kPage != 0) {
        return nullptr;
    }
    const auto bytes = static_cast<uint64_t>(status.st_size);
    void* address = mmap(nullptr, bytes, PROT_READ | (writable ? PROT_WRITE : 0), MAP_SHARED, fd, 0);
    if (address == MAP_FAILED) return nullptr;
    std::shared_ptr<PeerMemory> memory(new PeerMemory);
    memory->address_ = static_cast<uint8_t*>(address);
    memory->length_ = bytes - kPage;
    memory->writable_ = writable;
    const Trailer* behind = trailer(address, bytes);
    return behind->magic == Trailer::kMagic && behind->id == id ? memory : nullptr;
}

bool PeerMemory::is_registered() const {
    return trailer(address_, length_ + kPage)->registered.load(std::memory_order_relaxed) != 0;
}

PeerMemory::~PeerMemory() {
    munmap(address_, length_ + kPage);
}

}  // namespace rove::tent
