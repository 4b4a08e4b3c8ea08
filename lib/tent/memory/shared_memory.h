// SPDX-License-Identifier: Apache-2.0
// Memory that other processes of this machine can map. Units: bytes.
//
// It is a memfd: it has no name that another process could have too, and it disappears when the processes that map it
// have ended. A process that maps it receives its descriptor over a UNIX socket (transports/shm/shm_server.h). It
// cannot be shortened, so that no access of a peer ends in SIGBUS. Behind the memory is a page that both ends see: it
// has the id of the memory and shows whether it is still registered.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>

#include "rove/tent_status.h"

namespace rove::tent {

using ObjectId = std::array<uint8_t, 16>;  // random
ObjectId random_id();

// Shared memory at its owner.
class SharedMemory {
  public:
    // `writable` means by others. `huge` uses huge pages of the kernel's default size, which must be reserved
    // beforehand. Returns kInternalError if there is not enough memory.
    static Status create(uint64_t length, bool writable, bool huge, std::unique_ptr<SharedMemory>* out);
    ~SharedMemory();
    SharedMemory(const SharedMemory&) = delete;
    SharedMemory& operator=(const SharedMemory&) = delete;

    void* address() const { return address_; }
    uint64_t length() const { return length_; }
    const ObjectId& id() const { return id_; }
    int fd() const { return fd_; }
    bool writable() const { return writable_; }
    // Marks the memory as not registered: from now on no peer may access it, even if it is still mapped there.
    void withdraw();

  private:
    SharedMemory() = default;

    ObjectId id_{};
    int fd_ = -1;
    void* address_ = nullptr;
    uint64_t length_ = 0;
    uint64_t bytes_ = 0;  // bytes of the mapping; its last page is the one behind the memory
    bool writable_ = false;
};

// A peer's memory that is mapped here.
class PeerMemory {
  public:
    // Maps the memory of a descriptor, which the caller keeps. Returns null if it is not the memory `id`, does not
    // belong to our user, can be shortened, or cannot be mapped.
    static std::shared_ptr<PeerMemory> map(int fd, const ObjectId& id, bool writable);
    ~PeerMemory();
    PeerMemory(const PeerMemory&) = delete;
    PeerMemory& operator=(const PeerMemory&) = delete;

    uint8_t* address() const { return address_; }
    uint64_t length() const { return length_; }
    bool writable() const { return writable_; }
    bool is_registered() const;

  private:
    PeerMemory() = default;

    uint8_t* address_ = nullptr;
    uint64_t length_ = 0;  // length without the page behind it
    bool writable_ = false;
};

}  // namespace rove::tent
