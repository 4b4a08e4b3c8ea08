// SPDX-License-Identifier: Apache-2.0
// See rdma_backend.h.
#include "tent/transports/rdma/rdma_backend.h"

#include <algorithm>
#include <utility>

namespace rove::tent {

namespace {

constexpr uint64_t kRailLookNs = 1'000'000;  // interval between two checks of rails and links
// The part of a pause between polls beyond this does not count as the peers' silence.
constexpr uint64_t kUnpolledNs = 2'000'000;

}  // namespace

RdmaBackend::RdmaBackend(Shard& shard, std::shared_ptr<RdmaPorts> ports)
    : Backend(Transport::RDMA, shard.config().queues),
      shard_(shard),
      ports_(std::move(ports)),
      credits_(devices().size(), CqCredits(VerbsDevice::kCqEntries)),
      recent_(devices().size()) {
    for (uint8_t i = 0; i < devices().size(); ++i) link_changes_[i] = ports_->link_changes(i);
}

RdmaBackend::~RdmaBackend() = default;

std::unique_ptr<Channel> RdmaBackend::open(Peer& peer, uint64_t now_ns) {
    if (peer.segment()->devices.empty()) return nullptr;
    auto channel = std::make_unique<RdmaChannel>(*this, shard_, peer, now_ns);
    add(*channel);
    return channel;
}

void RdmaBackend::add_rail(Rail& rail) {
    rail.id = static_cast<uint32_t>(rails_.size());
    for (uint32_t i = 0; i < rails_.size(); ++i)
        if (rails_[i] == nullptr) rail.id = i;
    if (rail.id == rails_.size()) rails_.push_back(nullptr);
    rails_[rail.id] = &rail;
    rail.credits = &credits_[rail.local];
    rail.recent = &recent_[rail.local];
}

void RdmaBackend::forget(Channel& channel) {
    remove(channel);
    for (const auto& rail : static_cast<RdmaChannel&>(channel).rails()) rails_[rail->id] = nullptr;
}

bool RdmaBackend::progress(uint64_t now_ns) {
    if (polled_ns_ != 0 && now_ns - polled_ns_ > kUnpolledNs) unpolled_ns_ += now_ns - polled_ns_ - kUnpolledNs;
    polled_ns_ = now_ns;
    if (completed_ == 0) poll();
    const bool moved = completed_ != 0;
    for (int i = 0; i < completed_; ++i) completed(completions_[i], now_ns);
    completed_ = 0;
    if (now_ns - looked_ns_ >= kRailLookNs) look_after(now_ns);
    return moved;
}

bool RdmaBackend::is_idle() {
    if (completed_ == 0) poll();
    return completed_ == 0 && nothing_waits();
}

// Polls the devices in turn, so that a busy one does not take all the room.
void RdmaBackend::poll() {
    if (channels().empty()) return;
    for (size_t i = 0; i < devices().size() && completed_ < kPolled; ++i) {
        if (++first_device_ >= devices().size()) first_device_ = 0;
        ibv_cq* const cq = devices()[first_device_]->cq(shard_.number());
        const int room = kPolled - completed_;
        const int found = std::max(0, ibv_poll_cq(cq, room, completions_ + completed_));
        if (found < room) credits_[first_device_].seen_empty();
        completed_ += found;
    }
}

void RdmaBackend::completed(const ibv_wc& wc, uint64_t now_ns) {
    if ((wc.wr_id & kProbe) != 0) {
        const auto id = static_cast<uint32_t>(wc.wr_id);
        Rail* rail = id < rails_.size() ? rails_[id] : nullptr;
        if (rail != nullptr && probe_wr(*rail) == wc.wr_id) rail->channel->probe_completed(*rail, wc.status, now_ns);
        return;
    }
    Slice& slice = shard_.pool().at(static_cast<uint32_t>(wc.wr_id));
    if (rdma(slice).rail == nullptr || slice_wr(slice) != wc.wr_id) return;  // completion of a closed connection
    if (wc.status == IBV_WC_SUCCESS) {
        rdma(slice).rail->channel->completed(slice, now_ns);
    } else {
        rdma(slice).rail->channel->failed(slice, wc.status, now_ns);
    }
}

void RdmaBackend::look_after(uint64_t now_ns) {
    looked_ns_ = now_ns;
    ports_->look_at_links(now_ns);
    const std::vector<DeviceLoad> loads = selector().load();
    for (uint8_t i = 0; i < devices().size(); ++i) {
        bandwidths_[i] = static_cast<uint64_t>(loads[i].ewma_bandwidth);
        const uint32_t changes = ports_->link_changes(i);
        if (std::exchange(link_changes_[i], changes) == changes) continue;
        const bool up = changes % 2 == 0;
        for (Channel* channel : channels()) static_cast<RdmaChannel*>(channel)->link_changed(i, up, now_ns);
    }
    for (Channel* channel : channels()) static_cast<RdmaChannel*>(channel)->look_after(now_ns, unpolled_ns_);
    unpolled_ns_ = 0;
}

uint64_t RdmaBackend::next_deadline(uint64_t now_ns) const {
    uint64_t deadline_ns = kNever;
    for (const Channel* channel : channels())
        deadline_ns = std::min(deadline_ns, static_cast<const RdmaChannel*>(channel)->next_deadline(now_ns));
    return deadline_ns;
}

}  // namespace rove::tent
