// SPDX-License-Identifier: Apache-2.0
// See rdma_backend.h.
#include "tent/transports/rdma/rdma_backend.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace rove::tent {

namespace {

constexpr uint64_t kLookNs = 1'000'000;  // between two looks at rails and links
constexpr uint64_t kUnpolledNs = 2'000'000;  // what a pause between polls has more is no silence of the peers

std::vector<Device> describe_all(const std::vector<std::unique_ptr<VerbsDevice>>& devices) {
    std::vector<Device> list;
    for (const auto& device : devices) list.push_back(device->describe());
    return list;
}

}  // namespace

Status RdmaBackend::create(Core& core, std::vector<std::unique_ptr<VerbsDevice>> devices,
                           std::unique_ptr<RdmaBackend>* out) {
    std::vector<Device> described = describe_all(devices);
    Status status = override_devices(core.config().topology, described);
    Ranks ranks = numa_ranks(described);
    if (status.ok()) status = override_ranks(core.config().priority_matrix, described, &ranks);
    if (status.ok()) out->reset(new RdmaBackend(core, std::move(devices), std::move(described), std::move(ranks)));
    return status;
}

RdmaBackend::RdmaBackend(Core& core, std::vector<std::unique_ptr<VerbsDevice>> devices, std::vector<Device> described,
                         Ranks ranks)
    : Backend(Transport::kRdma, core.config().rdma.queues),
      core_(core),
      devices_(std::move(devices)),
      selector_(std::move(described), core.config().rdma.selector, std::move(ranks)),
      passive_(devices_, core.config().rdma.endpoint) {}

RdmaBackend::~RdmaBackend() = default;

Status RdmaBackend::add_memory(LocalBuffer& buffer) {
    int access = buffer.writable ? IBV_ACCESS_LOCAL_WRITE : 0;
    if (buffer.permission != Permission::kLocalReadWrite) access |= IBV_ACCESS_REMOTE_READ;
    if (buffer.permission == Permission::kGlobalReadWrite) access |= IBV_ACCESS_REMOTE_WRITE;
    for (const auto& device : devices_) {
        ibv_mr* region = ibv_reg_mr(device->pd(), reinterpret_cast<void*>(buffer.address), buffer.length, access);
        if (region == nullptr) {
            const int error = errno;
            remove_memory(buffer);
            return {Code::kRdmaError, "registering " + std::to_string(buffer.length) + " bytes with " + device->name() +
                                          ": " + std::strerror(error)};
        }
        buffer.registered.push_back({region, region->lkey, region->rkey});
    }
    return {};
}

void RdmaBackend::remove_memory(LocalBuffer& buffer) {
    for (const Registration& one : buffer.registered) ibv_dereg_mr(one.region);
}

void RdmaBackend::describe(const LocalBuffer& buffer, BufferDesc* out) const {
    for (const Registration& one : buffer.registered) out->rkeys.push_back(one.rkey);
    const uint8_t* ranks = selector_.ranks_of(buffer.numa_node);
    if (ranks != nullptr && std::any_of(ranks, ranks + devices_.size(), [](uint8_t rank) { return rank != 0; }))
        out->ranks.assign(ranks, ranks + devices_.size());
}

std::unique_ptr<Channel> RdmaBackend::open(Peer& peer, uint64_t now_ns) {
    if (peer.segment()->devices.empty()) return nullptr;
    auto channel = std::make_unique<RdmaChannel>(*this, core_, peer, now_ns);
    add(*channel);
    return channel;
}

void RdmaBackend::add_rail(Rail& rail) {
    rail.id = static_cast<uint32_t>(rails_.size());
    for (uint32_t i = 0; i < rails_.size(); ++i)
        if (rails_[i] == nullptr) rail.id = i;
    if (rail.id == rails_.size()) rails_.push_back(nullptr);
    rails_[rail.id] = &rail;
    rail.on_device = &posted_[rail.local];
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
    if (now_ns - looked_ns_ >= kLookNs) look_after(now_ns);
    return moved;
}

bool RdmaBackend::quiet() {
    if (completed_ == 0) poll();
    return completed_ == 0 && nothing_waits();
}

// Devices in turn: one that is busy has not all the room.
void RdmaBackend::poll() {
    if (channels().empty()) return;
    for (size_t i = 0; i < devices_.size() && completed_ < kPolled; ++i) {
        if (++first_device_ >= devices_.size()) first_device_ = 0;
        completed_ +=
            std::max(0, ibv_poll_cq(devices_[first_device_]->cq(), kPolled - completed_, completions_ + completed_));
    }
}

void RdmaBackend::completed(const ibv_wc& wc, uint64_t now_ns) {
    if ((wc.wr_id & kProbe) != 0) {
        const auto id = static_cast<uint32_t>(wc.wr_id);
        Rail* rail = id < rails_.size() ? rails_[id] : nullptr;
        if (rail != nullptr && probe_wr(*rail) == wc.wr_id) rail->channel->probe_completed(*rail, wc.status, now_ns);
        return;
    }
    Slice& slice = core_.pool().at(static_cast<uint32_t>(wc.wr_id));
    if (slice.rail == nullptr || slice_wr(slice) != wc.wr_id) return;  // of a connection that was closed
    if (wc.status == IBV_WC_SUCCESS) {
        slice.rail->channel->completed(slice, now_ns);
    } else {
        slice.rail->channel->failed(slice, wc.status, now_ns);
    }
}

void RdmaBackend::look_after(uint64_t now_ns) {
    looked_ns_ = now_ns;
    const std::vector<DeviceLoad> loads = selector_.load();
    for (uint8_t i = 0; i < devices_.size(); ++i) {
        bandwidths_[i] = static_cast<uint64_t>(loads[i].ewma_bandwidth);
        bool up = false;
        if (!devices_[i]->take_link_event(&up)) continue;
        selector_.set_up(i, up);
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
