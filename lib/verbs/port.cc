// SPDX-License-Identifier: Apache-2.0
// The one port of a device: its state, its GID table (RoCE v2 only) and its P_Key table (the default partition).
#include <endian.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "verbs/objects.h"
#include "verbs/rate.h"
#include "verbs/verbs.h"

namespace rove::verbs {

namespace {

constexpr uint8_t kPhysicalLinkUp = 5, kPhysicalDisabled = 3;      // IBTA 14.2.5.6, PortPhysicalState
constexpr int kSysfsRoceV2 = 1;                                    // enum ibv_gid_type_sysfs
constexpr uint32_t kCapCm = 1u << 16, kCapIpBasedGids = 1u << 26;  // IBTA 14.2.5.6, CapabilityMask

ibv_mtu mtu_code(uint32_t bytes) {
    return static_cast<ibv_mtu>(std::countr_zero(bytes) - 7);
}  // 256 is 1, 4096 is 5

}  // namespace

int query_port(ibv_context* context, uint8_t port, ibv_port_attr* attr, size_t size) {
    if (port != 1) return EINVAL;
    const datapath::RdmaInterface& device = *from(context).interface;
    const bool up = device.link_up();
    ibv_port_attr full{};
    full.state = up ? IBV_PORT_ACTIVE : IBV_PORT_DOWN;
    full.max_mtu = IBV_MTU_4096;
    full.active_mtu = mtu_code(device.active_mtu());
    full.gid_tbl_len = static_cast<int>(device.gids().size());
    full.port_cap_flags = kCapCm | kCapIpBasedGids;
    full.max_msg_sz = kMaxMessageBytes;
    full.pkey_tbl_len = 1;
    full.max_vl_num = 1;
    const Rate rate = rate_of(device.rate_mbps());
    full.active_width = rate.width;
    full.active_speed = rate.speed;
    full.phys_state = up ? kPhysicalLinkUp : kPhysicalDisabled;
    full.link_layer = IBV_LINK_LAYER_ETHERNET;
    full.flags = IBV_QPF_GRH_REQUIRED;
    std::memset(attr, 0, size);
    std::memcpy(attr, &full, std::min(size, sizeof(full)));
    return 0;
}

int query_gid(ibv_context* context, uint8_t port, int index, ibv_gid* gid) {
    ibv_gid_entry entry;
    int error = index < 0 ? EINVAL : query_gid_ex(context, port, static_cast<uint32_t>(index), &entry, sizeof(entry));
    if (error == ENODATA) {  // an entry without an address: zeros, as in libibverbs
        *gid = {};
        return 0;
    }
    if (error != 0) {
        errno = error;
        return -1;
    }
    *gid = entry.gid;
    return 0;
}

int query_gid_ex(ibv_context* context, uint32_t port, uint32_t index, ibv_gid_entry* entry, size_t size) {
    const auto& gids = from(context).interface->gids();
    if (port != 1 || index >= gids.size()) return EINVAL;
    if (gids[index] == wire::Gid{}) return ENODATA;
    ibv_gid_entry full{};
    std::memcpy(full.gid.raw, gids[index].data(), sizeof(full.gid.raw));
    full.gid_index = index;
    full.port_num = port;
    full.gid_type = IBV_GID_TYPE_ROCE_V2;
    std::memset(entry, 0, size);
    std::memcpy(entry, &full, std::min(size, sizeof(full)));
    return 0;
}

ssize_t query_gid_table(ibv_context* context, ibv_gid_entry* entries, size_t count, size_t size) {
    const size_t places = from(context).interface->gids().size();
    size_t found = 0;
    for (size_t i = 0; i < places; ++i) {
        ibv_gid_entry one;
        if (query_gid_ex(context, 1, static_cast<uint32_t>(i), &one, sizeof one) != 0) continue;
        if (found == count) return -EINVAL;
        auto* entry = reinterpret_cast<uint8_t*>(entries) + found++ * size;
        std::memset(entry, 0, size);
        std::memcpy(entry, &one, std::min(size, sizeof one));
    }
    return static_cast<ssize_t>(found);
}

int query_port_speed(ibv_context* context, uint32_t port, uint64_t* speed) {
    if (port != 1) return EINVAL;
    *speed = std::max(from(context).interface->rate_mbps() / 100, 1u);
    return 0;
}

int query_gid_type(ibv_context* context, uint8_t port, unsigned index, int* type) {
    ibv_gid gid;
    if (query_gid(context, port, static_cast<int>(index), &gid) != 0) return -1;
    *type = kSysfsRoceV2;
    return 0;
}

int query_pkey(ibv_context*, uint8_t port, int index, __be16* pkey) {
    if (port != 1 || index != 0) {
        errno = EINVAL;
        return -1;
    }
    *pkey = htobe16(wire::kDefaultPkey);
    return 0;
}

int get_pkey_index(ibv_context* context, uint8_t port, __be16 pkey) {
    __be16 ours;
    return query_pkey(context, port, 0, &ours) == 0 && ours == pkey ? 0 : -1;
}

}  // namespace rove::verbs
