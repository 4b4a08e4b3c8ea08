// SPDX-License-Identifier: Apache-2.0
// See rdma_ports.h.
#include "tent/transports/rdma/rdma_ports.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace rove::tent {

namespace {

constexpr uint64_t kLinksNs = 1'000'000;  // interval between two checks of the links

std::vector<Device> describe_all(const std::vector<std::unique_ptr<VerbsDevice>>& devices) {
    std::vector<Device> list;
    for (const auto& device : devices) list.push_back(device->describe());
    return list;
}

}  // namespace

Status RdmaPorts::create(const ::rove::tent::Config& config, std::vector<std::unique_ptr<VerbsDevice>> devices,
                         std::shared_ptr<RdmaPorts>* out) {
    std::vector<Device> described = describe_all(devices);
    Status status = override_devices(config.topology, described);
    Ranks ranks = numa_ranks(described);
    if (status.ok()) status = override_ranks(config.priority_matrix, described, &ranks);
    if (status.ok()) out->reset(new RdmaPorts(config, std::move(devices), std::move(described), std::move(ranks)));
    return status;
}

RdmaPorts::RdmaPorts(const ::rove::tent::Config& config, std::vector<std::unique_ptr<VerbsDevice>> devices,
                     std::vector<Device> described, Ranks ranks)
    : devices_(std::move(devices)),
      selector_(std::move(described), config.rdma.selector, std::move(ranks)),
      passive_(devices_, config.rdma.endpoint) {}

Status RdmaPorts::add_memory(LocalBuffer& buffer) {
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

void RdmaPorts::remove_memory(LocalBuffer& buffer) {
    for (const Registration& one : buffer.registered) ibv_dereg_mr(one.region);
}

void RdmaPorts::describe(const LocalBuffer& buffer, BufferDesc* out) const {
    for (const Registration& one : buffer.registered) out->rkeys.push_back(one.rkey);
    const uint8_t* ranks = selector_.ranks_of(buffer.numa_node);
    if (ranks != nullptr && std::any_of(ranks, ranks + devices_.size(), [](uint8_t rank) { return rank != 0; }))
        out->ranks.assign(ranks, ranks + devices_.size());
}

void RdmaPorts::look_at_links(uint64_t now_ns) {
    const std::unique_lock lock(links_mutex_, std::try_to_lock);
    if (!lock.owns_lock() || now_ns < links_ns_ + kLinksNs) return;
    links_ns_ = now_ns;
    for (uint8_t i = 0; i < devices_.size(); ++i) {
        bool up = false;
        if (!devices_[i]->take_link_event(&up)) continue;
        selector_.set_up(i, up);
        const uint32_t changes = link_changes(i);
        link_changes_[i].store(changes + (up == (changes % 2 == 0) ? 2 : 1), std::memory_order_relaxed);
    }
}

}  // namespace rove::tent
