// SPDX-License-Identifier: Apache-2.0
// The local ports of the engine, which all its shards use: the learned bandwidths, the registrations of memory, the
// passive ends of peers' connections, and the states of the links.
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
    // Creates the ports. `devices` is not empty. Returns kInvalidArgument if the topology or the matrix names a device
    // that does not exist.
    static Status create(const ::rove::tent::Config& config, std::vector<std::unique_ptr<VerbsDevice>> devices,
                         std::shared_ptr<RdmaPorts>* out);

    const std::vector<std::unique_ptr<VerbsDevice>>& devices() const { return devices_; }
    DeviceSelector& selector() { return selector_; }
    PassiveConnections& passive() { return passive_; }

    // Any thread may call these functions, but only one at a time.
    Status add_memory(LocalBuffer& buffer);
    void remove_memory(LocalBuffer& buffer);
    void describe(const LocalBuffer& buffer, BufferDesc* out) const;

    // Handles pending events of the ports, unless another thread does so or has just done so. Any thread may call it.
    void look_at_links(uint64_t now_ns);
    // Returns how often the link of a device went down or came up. An odd number means that it is down.
    uint32_t link_changes(uint8_t device) const { return link_changes_[device].load(std::memory_order_relaxed); }

  private:
    RdmaPorts(const ::rove::tent::Config& config, std::vector<std::unique_ptr<VerbsDevice>> devices,
              std::vector<Device> described, Ranks ranks);

    std::vector<std::unique_ptr<VerbsDevice>> devices_;
    DeviceSelector selector_;
    PassiveConnections passive_;
    std::mutex links_mutex_;
    uint64_t links_ns_ = 0;  // when the links were last checked
    std::array<std::atomic<uint32_t>, DeviceSelector::kMaxDevices> link_changes_{};
};

}  // namespace rove::tent
