// SPDX-License-Identifier: Apache-2.0
// The program of roce.bpf.c in the kernel and on an interface. The attachment ends with the process, however that ends.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "wire/frame.h"

struct bpf_object;

namespace rove::datapath {

class XdpProgram {
  public:
    // Loads the program for an interface with this many RX queues. Returns null, with the reason in `*error`, if the
    // kernel refuses it.
    static std::unique_ptr<XdpProgram> load(uint32_t queues, std::string* error);
    ~XdpProgram();
    XdpProgram(const XdpProgram&) = delete;
    XdpProgram& operator=(const XdpProgram&) = delete;

    // Attaches the program in the driver. Returns false, with the reason in `*error`, if the driver does not support
    // it, another program is attached, or the kernel does not allow it.
    bool attach(unsigned interface, std::string* error);
    // Detaches the program. A forked child calls it too, because the file is the parent's and must not outlive it.
    void detach();
    // Directs RoCE for our addresses that arrives at `queue` to this AF_XDP socket.
    bool lead(uint32_t queue, int socket);
    // Adds an address or a group of ours, which leave() removes. Returns false if the map of addresses is full.
    bool take(const wire::Gid& address);
    void leave(const wire::Gid& address);

    int file() const;  // descriptor of the program

  private:
    explicit XdpProgram(bpf_object* object) : object_(object) {}
    int map(const char* name) const;

    bpf_object* const object_;
    int link_ = -1;
};

}  // namespace rove::datapath
