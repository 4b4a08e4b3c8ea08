// SPDX-License-Identifier: Apache-2.0
// A local port over verbs: its context, protection domain, completion queues and GID.
#pragma once

#include <infiniband/verbs.h>

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tent/config/config.h"
#include "tent/placement/ranks.h"

namespace rove::tent {

class VerbsDevice {
  public:
    static constexpr int kCqEntries = 8192;  // entries of each completion queue

    // Opens all devices that the configuration allows, in the order of their names. Devices that cannot be opened are
    // left out. Returns kInvalidArgument if the whitelist names a device that does not exist.
    static Status open_all(const ::rove::tent::Config& config, std::vector<std::unique_ptr<VerbsDevice>>* out);
    ~VerbsDevice();
    VerbsDevice(const VerbsDevice&) = delete;
    VerbsDevice& operator=(const VerbsDevice&) = delete;

    const std::string& name() const { return name_; }
    ibv_context* context() const { return context_; }
    ibv_pd* pd() const { return pd_; }
    // Returns the completion queue of a shard of the engine. The passive ends use the first shard's.
    ibv_cq* cq(size_t shard = 0) const { return cqs_[shard]; }
    const ibv_gid& gid() const { return gid_; }
    uint8_t gid_index() const { return gid_index_; }
    uint32_t mtu() const { return mtu_; }  // bytes
    // Returns the selector's data about the device: name, link speed, NUMA node.
    Device describe() const;

    // The address of a word that peers READ to test whether the rail is alive. The results of our own probes go to the
    // second half.
    uint64_t probe_address() const { return reinterpret_cast<uint64_t>(probe_.data()); }
    ibv_mr* probe_region() const { return probe_region_; }

    // Consumes the pending events of the port. Returns true if the link went down or came up, and sets `*up`
    // accordingly.
    bool take_link_event(bool* up);

  private:
    VerbsDevice() = default;
    bool open(ibv_device* device, const ::rove::tent::Config& config);

    std::string name_;
    ibv_context* context_ = nullptr;
    ibv_pd* pd_ = nullptr;
    std::vector<ibv_cq*> cqs_;
    ibv_mr* probe_region_ = nullptr;
    ibv_gid gid_{};
    uint8_t gid_index_ = 0;
    uint32_t mtu_ = 1024;
    double bandwidth_bytes_per_s_ = 0;
    int numa_node_ = -1;
    // Peers read the first half. The results of our own probes are written to the second half.
    alignas(64) std::array<uint8_t, 128> probe_{};
};

}  // namespace rove::tent
