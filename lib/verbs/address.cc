// SPDX-License-Identifier: Apache-2.0
// Address vectors and address handles.
#include "verbs/address.h"

#include <endian.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <new>
#include <utility>
#include <vector>

#include "verbs/objects.h"
#include "verbs/verbs.h"

namespace rove::verbs {

namespace {

constexpr uint8_t kDefaultHopLimit = 64;
constexpr uint32_t kFlowLabelMask = 0xFFFFF;  // 20 bits
constexpr uint16_t kNoVlan = 0xFFFF;          // rdma-core's value for an untagged path

// Reads source and destination from the first 40 bytes of a received packet: an IPv6 header, or 20 bytes followed by an
// IPv4 header. Returns false if it is neither.
bool read_network_header(const ibv_grh& grh, wire::Gid& src, wire::Gid& dst, ibv_global_route& route) {
    uint8_t bytes[sizeof(ibv_grh)];
    std::memcpy(bytes, &grh, sizeof(bytes));
    if (bytes[0] >> 4 == 6) {
        std::memcpy(src.data(), bytes + 8, src.size());
        std::memcpy(dst.data(), bytes + 24, dst.size());
        route.traffic_class = static_cast<uint8_t>(bytes[0] << 4 | bytes[1] >> 4);
        route.flow_label =
            static_cast<uint32_t>(bytes[1] & 0x0F) << 16 | static_cast<uint32_t>(bytes[2]) << 8 | bytes[3];
        return true;
    }
    const uint8_t* ipv4 = bytes + 20;
    if (ipv4[0] >> 4 != 4) return false;
    for (auto [gid, offset] : {std::pair{&src, 12}, std::pair{&dst, 16}}) {
        *gid = {};
        (*gid)[10] = (*gid)[11] = 0xFF;
        std::memcpy(gid->data() + 12, ipv4 + offset, 4);
    }
    route.traffic_class = ipv4[1];
    return true;
}

}  // namespace

int check_address(const Context& context, const ibv_ah_attr& attr) {
    const bool valid = attr.is_global != 0 && attr.port_num == 1 && attr.sl < datapath::kServiceLevels &&
                       attr.grh.sgid_index < context.interface->gids().size();
    return valid ? 0 : EINVAL;
}

int resolve_path(const Context& context, const ibv_ah_attr& attr, uint16_t udp_source_port, uint8_t ecn,
                 transport::Path& path) {
    datapath::RdmaInterface& port = *context.interface;
    wire::Flow flow;
    flow.src = port.gids()[attr.grh.sgid_index];
    std::memcpy(flow.dst.data(), attr.grh.dgid.raw, flow.dst.size());
    flow.traffic_class = static_cast<uint8_t>((attr.grh.traffic_class & ~3) | ecn);
    flow.hop_limit = attr.grh.hop_limit != 0 ? attr.grh.hop_limit : kDefaultHopLimit;
    flow.flow_label = attr.grh.flow_label & kFlowLabelMask;
    flow.udp_src = udp_source_port;
    flow.vlan = static_cast<uint16_t>(attr.sl << 13);  // the PCP, if the port has a VLAN
    return port.resolve(flow, path);
}

ibv_ah* create_ah(ibv_pd* pd, ibv_ah_attr* attr) {
    const Context& context = context_of(*pd);
    if (check_address(context, *attr) != 0) return fail<ibv_ah>(EINVAL);
    auto ah = std::unique_ptr<Ah>(new (std::nothrow) Ah{});
    if (ah == nullptr || !(ah->place = context.device->ahs.take())) return fail<ibv_ah>(ENOMEM);
    const uint16_t udp_source_port =
        datapath::RdmaInterface::udp_source_port(attr->grh.flow_label & kFlowLabelMask, 0, 0);
    const int error = resolve_path(context, *attr, udp_source_port, wire::kEcnNotEct, ah->path);
    if (error != 0) return fail<ibv_ah>(error);
    ah->context = pd->context;
    ah->pd = pd;
    retain(pd);
    return ah.release();
}

// A posted request refers to the path in its address handle until it is sent. A program may destroy the handle before
// that, because a NIC would have read the request. So handles are kept until no waiting request names them. Posting
// counts nothing; instead the queues are searched at intervals.
int destroy_ah(ibv_ah* handle) {
    std::unique_ptr<Ah> ah(&from(handle));
    Pd& pd = from(ah->pd);
    datapath::Runtime& runtime = *context_of(pd).device->runtime;
    ah->place = {};
    ibv_pd* const given = ah->pd;
    {
        const std::lock_guard lock(pd.ahs_mutex);
        pd.destroyed_ahs.push_back(std::move(ah));
        if (pd.destroyed_ahs.size() >= pd.most_destroyed_ahs) {
            std::vector<const transport::Path*> waiting;
            {
                const datapath::Runtime::Pause pause(runtime);
                runtime.queue_pairs().for_each(pause, [&](const transport::QueuePair& qp) {
                    if (qp.type != IBV_QPT_UD) return;
                    for (uint32_t i = qp.sq.consumed(); i != qp.sq.available_until(); ++i)
                        waiting.push_back(qp.sq.at(i).path);
                });
            }
            std::sort(waiting.begin(), waiting.end());
            std::erase_if(pd.destroyed_ahs, [&](const auto& one) {
                return !std::binary_search(waiting.begin(), waiting.end(), &one->path);
            });
            // The next search is due when as many more handles have been destroyed as this search had to check.
            pd.most_destroyed_ahs = 2 * pd.destroyed_ahs.size() + waiting.size() + Pd::kFewDestroyedAhs;
        }
    }
    release(given);
    return 0;
}

int init_ah_from_wc(ibv_context* context, uint8_t port, ibv_wc* wc, ibv_grh* grh, ibv_ah_attr* attr) {
    const auto& gids = from(context).interface->gids();
    *attr = {};
    attr->port_num = port;
    attr->is_global = 1;
    wire::Gid src{}, dst{};
    if (port != 1 || (wc->wc_flags & IBV_WC_GRH) == 0 || !read_network_header(*grh, src, dst, attr->grh)) {
        errno = EINVAL;
        return -1;
    }
    // A packet to a multicast group is answered from the first address of its family.
    auto own = std::find(gids.begin(), gids.end(), dst);
    if (own == gids.end()) {
        own = std::find_if(gids.begin(), gids.end(), [&](const wire::Gid& gid) {
            return wire::is_ipv4_mapped(gid) == wire::is_ipv4_mapped(src);
        });
    }
    if (own == gids.end()) {
        errno = EINVAL;
        return -1;
    }
    attr->grh.sgid_index = static_cast<uint8_t>(own - gids.begin());
    attr->grh.hop_limit = kDefaultHopLimit;
    std::memcpy(attr->grh.dgid.raw, src.data(), src.size());
    return 0;
}

ibv_ah* create_ah_from_wc(ibv_pd* pd, ibv_wc* wc, ibv_grh* grh, uint8_t port) {
    ibv_ah_attr attr;
    return init_ah_from_wc(pd->context, port, wc, grh, &attr) == 0 ? create_ah(pd, &attr) : nullptr;
}

int resolve_eth_l2_from_gid(ibv_context* handle, ibv_ah_attr* attr, uint8_t mac[6], uint16_t* vid) {
    const Context& context = from(handle);
    int error = check_address(context, *attr);
    transport::Path path;
    if (error == 0) error = resolve_path(context, *attr, 0, wire::kEcnNotEct, path);
    if (error != 0) return error;
    std::copy(path.flow.dst_mac.begin(), path.flow.dst_mac.end(), mac);
    if (vid != nullptr) *vid = path.flow.vlan ? *path.flow.vlan & 0xFFF : kNoVlan;
    return 0;
}

}  // namespace rove::verbs
