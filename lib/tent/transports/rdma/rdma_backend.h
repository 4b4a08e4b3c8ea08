// SPDX-License-Identifier: Apache-2.0
// The transport over verbs, one for each shard: its completion queues, and the channels to its peers.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "tent/engine/backend.h"
#include "tent/engine/shard.h"
#include "tent/transports/rdma/rdma_channel.h"
#include "tent/transports/rdma/rdma_ports.h"

namespace rove::tent {

// Counters of a device.
struct AllotmentCounters {
    uint64_t allotted = 0;     // slices allotted to it as its share of a request
    uint64_t placed_anew = 0;  // slices allotted to it that another device carried
};

class RdmaBackend : public Backend {
  public:
    RdmaBackend(Shard& shard, std::shared_ptr<RdmaPorts> ports);
    ~RdmaBackend() override;

    std::unique_ptr<Channel> open(Peer& peer, uint64_t now_ns) override;
    void forget(Channel& channel) override;
    bool progress(uint64_t now_ns) override;
    bool is_idle() override;
    uint64_t next_deadline(uint64_t now_ns) const override;

    const std::vector<std::unique_ptr<VerbsDevice>>& devices() const { return ports_->devices(); }
    DeviceSelector& selector() { return ports_->selector(); }

    // For the other classes of lib/tent/transports/rdma. The telemetry reads the allotments too.
    std::array<AllotmentCounters, DeviceSelector::kMaxDevices> allotments{};
    std::vector<uint64_t>& lengths() { return lengths_; }  // scratch memory for one call
    std::vector<uint8_t>& chosen() { return chosen_; }
    void add_rail(Rail& rail);
    uint64_t bandwidth(uint8_t device) const { return bandwidths_[device]; }  // learned, in bytes/s
    // Numbers of work requests: one for a slice's current attempt, one for a probe of a rail's current connection.
    static uint64_t slice_wr(const Slice& slice) { return uint64_t{rdma(slice).tag} << 32 | slice.index; }
    static uint64_t probe_wr(const Rail& rail) { return kProbe | (rail.number & 0x7FFFFFFF) << 32 | rail.id; }

  private:
    static constexpr uint64_t kProbe = uint64_t{1} << 63;
    static constexpr int kPolled = 64;  // completions polled at once

    void poll();
    void completed(const ibv_wc& wc, uint64_t now_ns);
    void look_after(uint64_t now_ns);

    Shard& shard_;
    const std::shared_ptr<RdmaPorts> ports_;
    std::array<uint32_t, DeviceSelector::kMaxDevices> link_changes_{};  // counts of link changes that were handled
    std::vector<CqCredits> credits_;                                    // indexed by device
    std::vector<RecentBytes> recent_;                                   // indexed by device
    std::vector<uint64_t> lengths_;
    std::vector<uint8_t> chosen_;
    std::vector<Rail*> rails_;  // indexed by id; null: free
    std::array<uint64_t, DeviceSelector::kMaxDevices> bandwidths_{};
    ibv_wc completions_[kPolled];  // polled and not yet handled
    int completed_ = 0;
    size_t first_device_ = 0;  // device polled last
    uint64_t polled_ns_ = 0, looked_ns_ = 0, unpolled_ns_ = 0;
};

}  // namespace rove::tent
