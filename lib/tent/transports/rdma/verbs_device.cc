// SPDX-License-Identifier: Apache-2.0
// See verbs_device.h.
#include "tent/transports/rdma/verbs_device.h"

#include <fcntl.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <fstream>

#include "tent/observability/log.h"

namespace rove::tent {

namespace {

// IBTA 14.2.5.6: lanes by the bits of LinkWidth, and Gb/s of a lane by the bits of LinkSpeed.
double link_bandwidth(const ibv_port_attr& port) {
    const double lanes = port.active_width == 1    ? 1
                         : port.active_width == 2  ? 4
                         : port.active_width == 4  ? 8
                         : port.active_width == 8  ? 12
                         : port.active_width == 16 ? 2
                                                   : 0;
    constexpr double kLaneGbps[] = {2.5, 5, 10, 10, 14, 25, 50, 100};
    const int speed = std::countr_zero<unsigned>(port.active_speed);
    return port.active_speed == 0 || speed > 7 ? 0 : lanes * kLaneGbps[speed] * 1e9 / 8;
}

// Returns the first IPv4 address, or else the first global IPv6 address, or else the link-local one.
int suitable_gid(ibv_context* context, int count) {
    int best = -1, best_rank = 3;
    for (int i = 0; i < count; ++i) {
        ibv_gid gid;
        if (ibv_query_gid(context, 1, i, &gid) != 0) continue;
        if (gid.global.subnet_prefix == 0 && gid.global.interface_id == 0) continue;
        const bool ipv4 = gid.global.subnet_prefix == 0 && gid.raw[10] == 0xFF && gid.raw[11] == 0xFF;
        const bool link_local = gid.raw[0] == 0xFE && gid.raw[1] == 0x80;
        const int rank = ipv4 ? 0 : link_local ? 2 : 1;
        if (rank < best_rank) {
            best = i;
            best_rank = rank;
        }
    }
    return best;
}

bool contains(const std::vector<std::string>& names, const std::string& name) {
    return std::find(names.begin(), names.end(), name) != names.end();
}

}  // namespace

Status VerbsDevice::open_all(const ::rove::tent::Config& config, std::vector<std::unique_ptr<VerbsDevice>>* out) {
    int count = 0;
    ibv_device** list = ibv_get_device_list(&count);
    std::vector<std::string> names;
    for (int i = 0; i < count; ++i) {
        const std::string name = ibv_get_device_name(list[i]);
        names.push_back(name);
        const bool wanted = config.rdma_whitelist.empty() ? !contains(config.rdma_blacklist, name)
                                                          : contains(config.rdma_whitelist, name);
        if (!wanted) continue;
        if (out->size() == DeviceSelector::kMaxDevices) {
            log(LogLevel::kWarning, "device '%s' is not used: at most %zu devices are used", name.c_str(), out->size());
            continue;
        }
        std::unique_ptr<VerbsDevice> device(new VerbsDevice);
        errno = 0;
        if (device->open(list[i], config))
            out->push_back(std::move(device));
        else
            log(LogLevel::kWarning, "device '%s' is not used: %s", name.c_str(),
                errno != 0 ? std::strerror(errno) : "no suitable GID");
    }
    if (list != nullptr) ibv_free_device_list(list);
    for (const std::string& name : config.rdma_whitelist) {
        if (contains(names, name)) continue;
        std::string there;
        for (const std::string& one : names) there += (there.empty() ? "" : ", ") + one;
        return {Code::kInvalidArgument, "key 'topology.rdma_whitelist': '" + name +
                                            "' is not a device (available: " + (there.empty() ? "none" : there) + ")"};
    }
    std::sort(out->begin(), out->end(), [](const auto& a, const auto& b) { return a->name() < b->name(); });
    return {};
}

bool VerbsDevice::open(ibv_device* device, const ::rove::tent::Config& config) {
    name_ = ibv_get_device_name(device);
    context_ = ibv_open_device(device);
    if (context_ == nullptr) return false;
    ibv_port_attr port{};
    if (ibv_query_port(context_, 1, &port) != 0) return false;
    mtu_ = 128u << port.active_mtu;
    bandwidth_bytes_per_s_ = link_bandwidth(port);
    const int gid_index = config.rdma.gid_index >= 0 ? config.rdma.gid_index : suitable_gid(context_, port.gid_tbl_len);
    if (gid_index < 0 || ibv_query_gid(context_, 1, gid_index, &gid_) != 0) return false;
    gid_index_ = static_cast<uint8_t>(gid_index);
    std::ifstream(std::string(device->ibdev_path) + "/device/numa_node") >> numa_node_;
    pd_ = ibv_alloc_pd(context_);
    if (pd_ == nullptr) return false;
    for (uint32_t i = 0; i < config.shards(); ++i) {
        ibv_cq* const cq = ibv_create_cq(context_, kCqEntries, nullptr, nullptr, 0);
        if (cq == nullptr) return false;
        cqs_.push_back(cq);
    }
    probe_region_ = ibv_reg_mr(pd_, probe_.data(), probe_.size(), IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ);
    // Non-blocking, so that its events can be polled.
    return probe_region_ != nullptr &&
           fcntl(context_->async_fd, F_SETFL, fcntl(context_->async_fd, F_GETFL) | O_NONBLOCK) == 0;
}

VerbsDevice::~VerbsDevice() {
    if (probe_region_ != nullptr) ibv_dereg_mr(probe_region_);
    for (ibv_cq* cq : cqs_) ibv_destroy_cq(cq);
    if (pd_ != nullptr) ibv_dealloc_pd(pd_);
    if (context_ != nullptr) ibv_close_device(context_);
}

Device VerbsDevice::describe() const {
    return {.name = name_, .bandwidth_bytes_per_s = bandwidth_bytes_per_s_, .numa_node = numa_node_};
}

bool VerbsDevice::take_link_event(bool* up) {
    bool changed = false;
    ibv_async_event event;
    while (ibv_get_async_event(context_, &event) == 0) {
        if (event.event_type == IBV_EVENT_PORT_ACTIVE || event.event_type == IBV_EVENT_PORT_ERR) {
            changed = true;
            *up = event.event_type == IBV_EVENT_PORT_ACTIVE;
        }
        ibv_ack_async_event(&event);
    }
    return changed;
}

}  // namespace rove::tent
