// SPDX-License-Identifier: Apache-2.0
// A channel of the kernel's rdma_cm, which serves hardware devices. It is /dev/infiniband/rdma_cm, opened as librdmacm
// would.
#pragma once

#include <rdma/rdma_user_cm.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <span>

namespace rove::verbs::ucma {

class KernelCm {
  public:
    // Opens a channel. It becomes readable once in the epoll set `watcher` when an event arrives after watch(). There
    // is no channel if the kernel has no rdma_cm, or does not permit its use.
    explicit KernelCm(int watcher);
    ~KernelCm();
    KernelCm(const KernelCm&) = delete;
    KernelCm& operator=(const KernelCm&) = delete;

    bool is_there() const { return fd_ >= 0; }
    int fd() const { return fd_; }
    void watch() const;

    // Sends the command `number` with `body` after its header. `room` is the size in bytes of the response buffer that
    // the body names. Does not wait. Returns 0 or an errno value.
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
