// SPDX-License-Identifier: Apache-2.0
// ibv_query_port, the GID table and the P_Key table.
#include <arpa/inet.h>

#include <memory>

#include "verbs.h"

using namespace conformance;

CASE(port_gid, port_is_active) {
    const ibv_port_attr& port = device().port_attr;
    EXPECT(port.state == IBV_PORT_ACTIVE, "%s", ibv_port_state_str(port.state));
    EXPECT(port.active_mtu >= IBV_MTU_256 && port.active_mtu <= port.max_mtu && port.max_mtu <= IBV_MTU_4096);
    EXPECT(port.max_msg_sz > 0 && port.gid_tbl_len > 0 && port.pkey_tbl_len > 0);
    EXPECT(port.active_width != 0 && port.active_speed != 0);
}

// A RoCE port reports Ethernet as its link layer, so that programs use a GRH.
CASE(port_gid, link_layer_is_named) {
    const uint8_t layer = device().port_attr.link_layer;
    EXPECT(layer == IBV_LINK_LAYER_ETHERNET || layer == IBV_LINK_LAYER_INFINIBAND, "%d", layer);
    if (layer == IBV_LINK_LAYER_ETHERNET) EXPECT(device().port_attr.lid == 0, "a RoCE port has no LID");
}

CASE(port_gid, port_out_of_range_is_refused) {
    ibv_port_attr attr;
    EXPECT_ERROR(ibv_query_port(device().context, 0, &attr), EINVAL);
    EXPECT_ERROR(ibv_query_port(device().context, static_cast<uint8_t>(device().attr.phys_port_cnt + 1), &attr),
                 EINVAL);
}

// `man ibv_query_gid`: -1 on error.
CASE(port_gid, gid_out_of_range_is_refused) {
    ibv_gid gid;
    EXPECT(ibv_query_gid(device().context, device().port, device().port_attr.gid_tbl_len, &gid) == -1);
    EXPECT(ibv_query_gid(device().context, device().port, -1, &gid) == -1);
    EXPECT(ibv_query_gid(device().context, static_cast<uint8_t>(device().attr.phys_port_cnt + 1), 0, &gid) == -1);
}

CASE(port_gid, gid_ex_agrees_with_gid) {
    for (int i = 0; i < device().port_attr.gid_tbl_len; ++i) {
        ibv_gid gid;
        ibv_gid_entry entry;
        const int error = ibv_query_gid_ex(device().context, device().port, static_cast<uint32_t>(i), &entry, 0);
        if (error == ENODATA) continue;  // an empty entry
        EXPECT(error == 0, "%s", strerror(error));
        EXPECT(ibv_query_gid(device().context, device().port, i, &gid) == 0);
        EXPECT(std::memcmp(&gid, &entry.gid, sizeof(gid)) == 0);
        EXPECT(entry.gid_index == static_cast<uint32_t>(i) && entry.port_num == device().port);
        EXPECT(entry.gid_type <= IBV_GID_TYPE_ROCE_V2);
    }
}

// `man ibv_query_gid_ex`: flags must be 0.
CASE(port_gid, gid_ex_refuses_flags) {
    ibv_gid_entry entry;
    EXPECT_ERROR(ibv_query_gid_ex(device().context, device().port, device().gid_index, &entry, 1), EINVAL);
}

CASE(port_gid, gid_table_has_the_same_entries) {
    ibv_gid_entry table[512];
    const ssize_t count = ibv_query_gid_table(device().context, table, std::size(table), 0);
    EXPECT(count > 0, "%zd", count);
    for (ssize_t i = 0; i < count; ++i) {
        ibv_gid gid;
        EXPECT(ibv_query_gid(device().context, static_cast<uint8_t>(table[i].port_num),
                             static_cast<int>(table[i].gid_index), &gid) == 0);
        EXPECT(std::memcmp(&gid, &table[i].gid, sizeof(gid)) == 0);
    }
}

// `man ibv_query_gid_table`: a negative errno if the table is too small.
CASE(port_gid, gid_table_that_is_too_small_is_refused) {
    ibv_gid_entry table[512];
    const ssize_t count = ibv_query_gid_table(device().context, table, std::size(table), 0);
    if (count < 2) skip("one GID");
    EXPECT(ibv_query_gid_table(device().context, table, static_cast<size_t>(count - 1), 0) == -EINVAL);
}

CASE(port_gid, default_pkey_is_first) {
    __be16 pkey = 0;
    EXPECT(ibv_query_pkey(device().context, device().port, 0, &pkey) == 0);
    EXPECT(ntohs(pkey) == 0xffff, "%#x", ntohs(pkey));
    EXPECT(ibv_get_pkey_index(device().context, device().port, pkey) == 0);
}

CASE(port_gid, pkey_out_of_range_is_refused) {
    __be16 pkey;
    EXPECT(ibv_query_pkey(device().context, device().port, device().port_attr.pkey_tbl_len, &pkey) == -1);
    EXPECT(ibv_query_pkey(device().context, device().port, -1, &pkey) == -1);
    EXPECT(ibv_get_pkey_index(device().context, device().port, htons(0x1234)) == -1);
}
