// SPDX-License-Identifier: Apache-2.0
// The local ports of the engine, which all its shards use: what is learned of them, registrations of memory, the
// passive ends of peers' connections, and whether their links are up.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "tent/engine/segment.h"
#include "tent/memory/memory.h"
#include "tent/transports/rdma/passive.h"
#include "tent/transports/rdma/verbs_device.h"

namespace rove::tent {

class RdmaPorts {
  public:
    // `devices` is not empty. kInvalidArgument: the topology or the matrix names what is not there.
    static Status create(const ::rove::tent::Config& config, std::vector<std::unique_ptr<VerbsDevice>> devices,
                         std::shared_ptr<RdmaPorts>* out);

    const std::vector<std::unique_ptr<VerbsDevice>>& devices() const { return devices_; }
    DeviceSelector& selector() { return selector_; }
    PassiveConnections& passive() { return passive_; }

    // Any thread, one at a time.
    Status add_memory(LocalBuffer& buffer);
    void remove_memory(LocalBuffer& buffer);
    void describe(const LocalBuffer& buffer, BufferDesc* out) const;

    // Any thread: takes events of the ports that have come, unless another thread is at it or has just been.
    void look_at_links(uint64_t now_ns);
    // How often the link of a device has gone or come; odd: it is down.
    uint32_t link_changes(uint8_t device) const { return link_changes_[device].load(std::memory_order_relaxed); }

  private:
    RdmaPorts(const ::rove::tent::Config& config, std::vector<std::unique_ptr<VerbsDevice>> devices,
              std::vector<Device> described, Ranks ranks);

    std::vector<std::unique_ptr<VerbsDevice>> devices_;
    DeviceSelector selector_;
    PassiveConnections passive_;
    std::mutex links_mutex_;
    uint64_t links_ns_ = 0;  // when they were looked at
    std::array<std::atomic<uint32_t>, DeviceSelector::kMaxDevices> link_changes_{};
};

}  // namespace rove::tent
