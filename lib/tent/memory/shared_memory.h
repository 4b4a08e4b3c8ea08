// SPDX-License-Identifier: Apache-2.0
// Memory that other processes of this machine can map. Units: bytes.
//
// It is a memfd: it has no name that another process could have, too, and nothing of it is left when the processes that
// map it have ended. Whoever is to map it gets its descriptor over a UNIX socket (transports/shm/shm_server.h). It
// cannot be shortened, so that no access of a peer ends in SIGBUS. Behind the memory lies a page which both ends see:
// it says which memory this is, and whether it is still registered.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>

#include "rove/tent_status.h"

namespace rove::tent {

using ObjectId = std::array<uint8_t, 16>;  // random
ObjectId random_id();

// The owner's end.
class SharedMemory {
  public:
    // `writable`: by others. `huge`: of huge pages of the kernel's default size, which somebody has to have reserved.
    // kInternalError: there is no room.
    static Status create(uint64_t length, bool writable, bool huge, std::unique_ptr<SharedMemory>* out);
    ~SharedMemory();
    SharedMemory(const SharedMemory&) = delete;
    SharedMemory& operator=(const SharedMemory&) = delete;

    void* address() const { return address_; }
    uint64_t length() const { return length_; }
    const ObjectId& id() const { return id_; }
    int fd() const { return fd_; }
    bool writable() const { return writable_; }
    // Nobody is to access it from now on, whether it is mapped there or not.
    void withdraw();

  private:
    SharedMemory() = default;

    ObjectId id_{};
    int fd_ = -1;
    void* address_ = nullptr;
    uint64_t length_ = 0;
    uint64_t bytes_ = 0;  // of the mapping, with the page behind the memory, which is the last
    bool writable_ = false;
};

// A peer's memory, mapped here.
class PeerMemory {
  public:
    // Maps what the descriptor, which stays the caller's, is of. Null: it is not the memory `id`, is not our user's,
    // can be shortened, or cannot be mapped.
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
    uint64_t length_ = 0;  // without the page behind it
    bool writable_ = false;
};

}  // namespace rove::tent
