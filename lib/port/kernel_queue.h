// SPDX-License-Identifier: Apache-2.0
// Frames that come to an interface, for interface.h: what AF_XDP and AF_PACKET have in common. A socket's file can be
// waited for.
#pragma once

#include <cstddef>
#include <cstdint>

#include "port/poller.h"
#include "base/file_descriptor.h"
#include "port/port.h"
#include "port/segmentation/trains.h"

namespace rove::datapath {

class KernelQueue : public RxQueue {
  public:
    ~KernelQueue() override {
        if (rings_) poller_.remove_doorbell(file());
    }
    bool arm() override {
        if (!rings_) {
            poller_.add_doorbell(file(), Poller::Doorbell::kSocket);
            rings_ = true;
        }
        return !has_frames();
    }

    int file() const { return file_.get(); }
    const FrameCounts& counts() const { return counts_; }
    virtual uint64_t missed() = 0;  // had no place

  protected:
    KernelQueue(FileDescriptor file, Poller& poller, bool lends)
        : RxQueue(lends), file_(std::move(file)), poller_(poller) {}
    virtual bool has_frames() const = 0;

    const FileDescriptor file_;
    FrameCounts counts_;

  private:
    Poller& poller_;
    bool rings_ = false;  // it is among the poller's doorbells
};

}  // namespace rove::datapath
