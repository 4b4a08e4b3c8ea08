// SPDX-License-Identifier: Apache-2.0
// A segment that was opened: who owns it, what it publishes, and the channels to it.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

#include "tent/backend.h"
#include "tent/control/client.h"
#include "tent/segment.h"
#include "tent/types.h"

namespace rove::tent {

class Peer {
  public:
    Peer(std::string name, std::string address) : name_(std::move(name)), control_(std::move(address)) {}

    const std::string& name() const { return name_; }
    ControlClient& control() { return control_; }

    // Any thread. Not null once the peer was opened.
    std::shared_ptr<const SegmentDesc> segment() const {
        const std::lock_guard lock(mutex_);
        return segment_;
    }
    void set_segment(std::shared_ptr<const SegmentDesc> segment) {
        const std::lock_guard lock(mutex_);
        segment_ = std::move(segment);
    }

    // Null if the transport does not reach it. Set while the peer is opened.
    Channel* channel(Transport transport) const { return channels_[static_cast<size_t>(transport)].get(); }
    std::unique_ptr<Channel>& slot(size_t transport) { return channels_[transport]; }

    // Its process has ended, as far as we know: requests fail until it is opened anew.
    std::atomic<bool> gone{false};
    std::atomic<uint32_t> tasks{0};    // under way
    std::atomic<uint32_t> handles{0};  // given to the program and not closed

  private:
    const std::string name_;
    ControlClient control_;
    mutable std::mutex mutex_;
    std::shared_ptr<const SegmentDesc> segment_;
    std::array<std::unique_ptr<Channel>, kTransports> channels_;
};

}  // namespace rove::tent
