// SPDX-License-Identifier: Apache-2.0
// A local port, by verbs: its context, protection domain, completion queue and GID.
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
    static constexpr int kCqEntries = 8192;  // of each completion queue

    // All devices that the configuration lets through, in the order of their names. Those that cannot be opened are
    // left out. kInvalidArgument: the whitelist names a device that is not there.
    static Status open_all(const ::rove::tent::Config& config, std::vector<std::unique_ptr<VerbsDevice>>* out);
    ~VerbsDevice();
    VerbsDevice(const VerbsDevice&) = delete;
    VerbsDevice& operator=(const VerbsDevice&) = delete;

    const std::string& name() const { return name_; }
    ibv_context* context() const { return context_; }
    ibv_pd* pd() const { return pd_; }
    // Of a shard of the engine. What answers peers uses that of the first.
    ibv_cq* cq(size_t shard = 0) const { return cqs_[shard]; }
    const ibv_gid& gid() const { return gid_; }
    uint8_t gid_index() const { return gid_index_; }
    uint32_t mtu() const { return mtu_; }  // bytes
    // What the selector is told: name, link speed, NUMA node.
    Device describe() const;

    // A word that peers READ to see whether the rail is alive, and where their answers to us go.
    uint64_t probe_address() const { return reinterpret_cast<uint64_t>(probe_.data()); }
    ibv_mr* probe_region() const { return probe_region_; }

    // Takes the events of the port that have come. Returns true if the link went down or up; `*up` says which.
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
    // The first half is read by peers, the second written by their answers.
    alignas(64) std::array<uint8_t, 128> probe_{};
};

}  // namespace rove::tent
