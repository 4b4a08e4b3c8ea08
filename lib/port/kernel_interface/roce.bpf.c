// SPDX-License-Identifier: Apache-2.0
// For XDP, by clang's target bpf: RoCEv2 that comes to an interface, and to one of its addresses, goes to the sockets
// of who has loaded this, one an RX queue (xdp_program.h). Everything else goes on to the kernel: what it forwards, and
// what we do not parse ourselves, IPv4 options and fragments, IPv6 extension headers, VLANs. What is tagged with a VID
// comes again to the kernel's interface of that VLAN, untagged. There is no UDP checksum any more: that of a frame from
// the same host nobody has completed, and says so to nobody here; the ICRC covers all that it does.
// The headers of libbpf need the types of the kernel's headers before them.
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

// By RX queue. The loader knows how many there are.
struct {
    __uint(type, BPF_MAP_TYPE_XSKMAP);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, __u32);
} sockets SEC(".maps");

// The addresses, and groups. IPv4's are mapped into IPv6.
struct address {
    __be32 words[4];
};
struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, 1024);
    __type(key, struct address);
    __type(value, __u8);
} addresses SEC(".maps");

// frags: a frame may be longer than a page. Its headers are in the first.
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
