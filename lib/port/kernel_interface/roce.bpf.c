// SPDX-License-Identifier: Apache-2.0
// The XDP program, compiled by clang for the target bpf. RoCEv2 that arrives at an interface, for one of its addresses,
// is passed to the sockets of the process that has loaded the program, one for each RX queue (xdp_program.h). All other
// frames continue to the kernel: those that it forwards, and those that we do not parse ourselves, with IPv4 options,
// fragments, IPv6 extension headers or VLANs. A frame that is tagged with a VID arrives once more, untagged, at the
// kernel's interface of that VLAN.
//
// The program clears the UDP checksum. If a frame is from the same host, its checksum was never completed, and XDP does
// not show that. The ICRC covers everything that the checksum does. The headers of libbpf need the types of the
// kernel's headers before them.
// clang-format off
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/udp.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>
// clang-format on

#define ROCE_PORT 4791             // IBTA annex A17.5.2
#define IPV4_WITHOUT_OPTIONS 0x45  // version and header length
#define IPV4_FRAGMENT 0x3FFF       // more fragments, and the offset
#define VLAN_ID 0x0FFF

struct vlan {
    __be16 tci;
    __be16 type;
};

// The sockets, by RX queue. The loader sets the number of queues.
struct {
    __uint(type, BPF_MAP_TYPE_XSKMAP);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, __u32);
} sockets SEC(".maps");

// The addresses and groups. IPv4 addresses are mapped into IPv6.
struct address {
    __be32 words[4];
};
struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, 1024);
    __type(key, struct address);
    __type(value, __u8);
} addresses SEC(".maps");

// A frame may be longer than a page, hence "frags". Its headers are in the first page.
SEC("xdp.frags")
int to_sockets(struct xdp_md* frame) {
    const void* const end = (void*)(long)frame->data_end;
    const struct ethhdr* const ethernet = (void*)(long)frame->data;
    if ((void*)(ethernet + 1) > end) return XDP_PASS;
    struct address to = {};
    const void* at = ethernet + 1;
    __be16 type = ethernet->h_proto;
    if (type == bpf_htons(ETH_P_8021Q)) {
        const struct vlan* const tag = at;
        if ((void*)(tag + 1) > end || (tag->tci & bpf_htons(VLAN_ID)) != 0) return XDP_PASS;
        type = tag->type;
        at = tag + 1;
    }
    if (type == bpf_htons(ETH_P_IP)) {
        const struct iphdr* const ip = at;
        if ((void*)(ip + 1) > end || *(const __u8*)at != IPV4_WITHOUT_OPTIONS || ip->protocol != IPPROTO_UDP ||
            (ip->frag_off & bpf_htons(IPV4_FRAGMENT)) != 0)
            return XDP_PASS;
        to.words[2] = bpf_htonl(0xFFFF);
        to.words[3] = ip->daddr;
        at = ip + 1;
    } else if (type == bpf_htons(ETH_P_IPV6)) {
        const struct ipv6hdr* const ip = at;
        if ((void*)(ip + 1) > end || ip->nexthdr != IPPROTO_UDP) return XDP_PASS;
        __builtin_memcpy(&to, &ip->daddr, sizeof to);
        at = ip + 1;
    } else {
        return XDP_PASS;
    }
    struct udphdr* const udp = (void*)at;
    if ((void*)(udp + 1) > end || udp->dest != bpf_htons(ROCE_PORT)) return XDP_PASS;
    if (bpf_map_lookup_elem(&addresses, &to) == 0) return XDP_PASS;
    udp->check = 0;
    return bpf_redirect_map(&sockets, frame->rx_queue_index, XDP_PASS);
}

char terms[] SEC("license") = "Apache-2.0";
