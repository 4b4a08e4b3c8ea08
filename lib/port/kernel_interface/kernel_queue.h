// SPDX-License-Identifier: Apache-2.0
// Frames that come to an interface, for interface.h: what AF_XDP and AF_PACKET have in common. A socket's file can be
// waited for.
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
    virtual uint64_t missed() = 0;  // had no place

  protected:
    KernelQueue(FileDescriptor file, EventLoop& poller, bool is_zero_copy)
        : RxQueue(is_zero_copy), file_(std::move(file)), event_loop_(poller) {}
    virtual bool has_frames() const = 0;

    const FileDescriptor file_;
    FrameCounts counts_;

  private:
    EventLoop& event_loop_;
    bool rings_ = false;  // it is among the poller's doorbells
};

}  // namespace rove::datapath
