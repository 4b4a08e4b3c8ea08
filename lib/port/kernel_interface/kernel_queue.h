// SPDX-License-Identifier: Apache-2.0
// The frames that arrive at an interface, for interface.h. The class has the common part of AF_XDP and AF_PACKET. A
// thread can wait for the socket's file.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/file_descriptor.h"
#include "port/event_loop.h"
#include "port/port.h"
#include "port/segmentation/segmentation.h"

namespace rove::datapath {

class KernelQueue : public RxQueue {
  public:
    ~KernelQueue() override {
        if (rings_) event_loop_.remove_doorbell(file());
    }
    bool arm() override {
        if (!rings_) {
            event_loop_.add_doorbell(file(), EventLoop::Doorbell::kSocket);
            rings_ = true;
        }
        return !has_frames();
    }

    int file() const { return file_.get(); }
    const FrameCounts& counts() const { return counts_; }
    virtual uint64_t missed() = 0;  // frames dropped for lack of room

  protected:
    KernelQueue(FileDescriptor file, EventLoop& poller, bool is_zero_copy)
        : RxQueue(is_zero_copy), file_(std::move(file)), event_loop_(poller) {}
    virtual bool has_frames() const = 0;

    const FileDescriptor file_;
    FrameCounts counts_;

  private:
    EventLoop& event_loop_;
    bool rings_ = false;  // the file is one of the event loop's doorbells
};

}  // namespace rove::datapath
