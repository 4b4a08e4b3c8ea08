// SPDX-License-Identifier: Apache-2.0
// The program of roce.bpf.c in the kernel, and on an interface. What is attached goes with the process, however that
// ends.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "wire/frame.h"

struct bpf_object;

namespace rove::datapath {

class XdpProgram {
  public:
    // For an interface of so many RX queues. Null if the kernel takes no such program from us; `*error` says why.
    static std::unique_ptr<XdpProgram> load(uint32_t queues, std::string* error);
    ~XdpProgram();
    XdpProgram(const XdpProgram&) = delete;
    XdpProgram& operator=(const XdpProgram&) = delete;

    // In the driver. False, and says why in `*error`: the driver has no place for it, another program is there, or the
    // kernel does not allow us.
    bool attach(unsigned interface, std::string* error);
    // Also in a forked child: the file is the parent's, and must not outlive it.
    void detach();
    // RoCE to our addresses that comes to `queue` goes to this AF_XDP socket.
    bool lead(uint32_t queue, int socket);
    // An address or a group is ours, or no longer. take() returns false if the map of addresses is full.
    bool take(const wire::Gid& address);
    void leave(const wire::Gid& address);

    int file() const;  // of the program

  private:
    explicit XdpProgram(bpf_object* object) : object_(object) {}
    int map(const char* name) const;

    bpf_object* const object_;
    int link_ = -1;
};

}  // namespace rove::datapath
