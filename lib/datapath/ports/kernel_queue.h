// SPDX-License-Identifier: Apache-2.0
// Frames that come to an interface, for interface.h: what AF_XDP and AF_PACKET have in common. A socket's file can be
// waited for.
#pragma once

#include <cstddef>
#include <cstdint>

#include "datapath/poller.h"
#include "datapath/ports/file_descriptor.h"
#include "datapath/ports/port.h"
#include "datapath/ports/trains.h"

namespace rove::datapath {

class KernelQueue : public RxQueue {
  public:
    // As long as the poller waits for the file, it would end every sleep until the frames are read. So it waits only
    // while the queue is armed.
    bool arm() override {
        if (has_frames()) return false;
        poller_.add(file(), [] {});
        armed_ = true;
        return true;
    }
    void disarm() override {
        if (armed_) poller_.remove(file());
        armed_ = false;
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
    bool armed_ = false;
};

}  // namespace rove::datapath
