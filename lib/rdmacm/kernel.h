// SPDX-License-Identifier: Apache-2.0
// A channel of the kernel's rdma_cm, which has the hardware: /dev/infiniband/rdma_cm as librdmacm would open it.
#pragma once

#include <rdma/rdma_user_cm.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <span>

namespace rove::verbs::ucma {

class KernelCm {
  public:
    // Readable in the epoll `watcher` once, whenever an event comes after watch(). Where the kernel has no rdma_cm, or
    // not for us, there is none.
    explicit KernelCm(int watcher);
    ~KernelCm();
    KernelCm(const KernelCm&) = delete;
    KernelCm& operator=(const KernelCm&) = delete;

    bool is_there() const { return fd_ >= 0; }
    int fd() const { return fd_; }
    void watch() const;

    // The command `number` with `body` behind its header; `room` bytes are where the body says that the answer goes.
    // Does not wait. 0 or errno.
    int run(uint32_t number, std::span<const uint8_t> body, size_t room) const;
    template <class Body>
    int run(uint32_t number, const Body& body) const {
        return run(number, {reinterpret_cast<const uint8_t*>(&body), sizeof(body)}, 0);
    }
    template <class Body, class Answer>
    int run(uint32_t number, Body body, Answer& answer, size_t room = sizeof(Answer)) const {
        body.response = reinterpret_cast<uintptr_t>(&answer);
        return run(number, {reinterpret_cast<const uint8_t*>(&body), sizeof(body)}, room);
    }

  private:
    const int watcher_;
    const int fd_;
};

}  // namespace rove::verbs::ucma
