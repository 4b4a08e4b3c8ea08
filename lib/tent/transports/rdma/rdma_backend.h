// SPDX-License-Identifier: Apache-2.0
// The transport over verbs, of a shard: its completion queues, and the channels to its peers.
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

// Of a device.
struct AllotmentCounters {
    uint64_t allotted = 0;     // slices that were allotted to it as its share of a request
    uint64_t placed_anew = 0;  // ... and that another device took
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

    // Of lib/tent/transports/rdma.
    std::array<AllotmentCounters, DeviceSelector::kMaxDevices> allotments{};
    std::vector<uint64_t>& lengths() { return lengths_; }  // memory for one call
    std::vector<uint8_t>& chosen() { return chosen_; }
    void add_rail(Rail& rail);
    uint64_t bandwidth(uint8_t device) const { return bandwidths_[device]; }  // bytes/s, as learned
    // Work request numbers: a slice's current attempt, or a probe of a rail's current connection.
    static uint64_t slice_wr(const Slice& slice) { return uint64_t{rdma(slice).tag} << 32 | slice.index; }
    static uint64_t probe_wr(const Rail& rail) { return kProbe | (rail.number & 0x7FFFFFFF) << 32 | rail.id; }

  private:
    static constexpr uint64_t kProbe = uint64_t{1} << 63;
    static constexpr int kPolled = 64;  // completions taken at once

    void poll();
    void completed(const ibv_wc& wc, uint64_t now_ns);
    void look_after(uint64_t now_ns);

    Shard& shard_;
    const std::shared_ptr<RdmaPorts> ports_;
    std::array<uint32_t, DeviceSelector::kMaxDevices> link_changes_{};  // of `ports_`, that were seen
    std::vector<CqCredits> credits_;                                    // by device
    std::vector<RecentBytes> recent_;                                   // by device
    std::vector<uint64_t> lengths_;
    std::vector<uint8_t> chosen_;
    std::vector<Rail*> rails_;  // by id; null: free
    std::array<uint64_t, DeviceSelector::kMaxDevices> bandwidths_{};
    ibv_wc completions_[kPolled];  // taken and not yet looked at
    int completed_ = 0;
    size_t first_device_ = 0;  // whose turn it is
    uint64_t polled_ns_ = 0, looked_ns_ = 0, unpolled_ns_ = 0;
};

}  // namespace rove::tent
