// SPDX-License-Identifier: Apache-2.0
#include "datapath/ports/packet_queue.h"

#include <arpa/inet.h>
#include <linux/filter.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <linux/ipv6.h>
#include <netinet/in.h>
#include <netinet/ip.h>
#include <netinet/udp.h>
#include <rte_mbuf.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>

#include "datapath/ports/lent_frame.h"
#include "wire/headers.h"

namespace rove::datapath {

namespace {

constexpr int kSendBufferBytes = 4 << 20;

// RoCEv2 as roce.bpf.c has it, in the older language, which needs no privilege beyond the socket's. A VLAN's tag stands
// beside the frame.
constexpr uint16_t kLoadHalf = BPF_LD | BPF_H | BPF_ABS, kLoadByte = BPF_LD | BPF_B | BPF_ABS;
constexpr uint16_t kIfEqual = BPF_JMP | BPF_JEQ | BPF_K, kIfBits = BPF_JMP | BPF_JSET | BPF_K;
constexpr uint16_t kReturn = BPF_RET | BPF_K;
constexpr uint16_t kGo = BPF_JMP | BPF_JA;
constexpr uint32_t kIp = sizeof(ethhdr), kUdpOverIpv4 = kIp + sizeof(iphdr), kUdpOverIpv6 = kIp + sizeof(ipv6hdr);

constexpr std::array<sock_filter, 19> kRoce{{
    {kLoadHalf, 0, 0, static_cast<uint32_t>(SKF_AD_OFF + SKF_AD_VLAN_TAG)},
    {kIfBits, 16, 0, 0x0FFF},  // of a VLAN, so for another interface: to 18
    {kLoadHalf, 0, 0, offsetof(ethhdr, h_proto)},
    {kIfEqual, 0, 8, ETH_P_IP},  // else to 12
    {kLoadByte, 0, 0, kIp},
    {kIfEqual, 0, 12, 0x45},  // without options
    {kLoadHalf, 0, 0, kIp + offsetof(iphdr, frag_off)},
    {kIfBits, 10, 0, 0x3FFF},  // a fragment
    {kLoadByte, 0, 0, kIp + offsetof(iphdr, protocol)},
    {kIfEqual, 0, 8, IPPROTO_UDP},
    {kLoadHalf, 0, 0, kUdpOverIpv4 + offsetof(udphdr, uh_dport)},
    {kGo, 0, 0, 4},  // to 16
    {kIfEqual, 0, 5, ETH_P_IPV6},
    {kLoadByte, 0, 0, kIp + offsetof(ipv6hdr, nexthdr)},
    {kIfEqual, 0, 3, IPPROTO_UDP},
    {kLoadHalf, 0, 0, kUdpOverIpv6 + offsetof(udphdr, uh_dport)},
    {kIfEqual, 0, 1, wire::kRoceUdpPort},
    {kReturn, 0, 0, UINT32_MAX},
    {kReturn, 0, 0, 0},
}};
constexpr std::array<sock_filter, 1> kNothing{{{kReturn, 0, 0, 0}}};

template <size_t count>
int attach_filter(int file, const std::array<sock_filter, count>& code) {
    const sock_fprog program{count, const_cast<sock_filter*>(code.data())};
    return setsockopt(file, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof program) == 0 ? 0 : errno;
}

template <class Value>
int set(int file, int option, const Value& value) {
    return setsockopt(file, SOL_PACKET, option, &value, sizeof value) == 0 ? 0 : errno;
}

int bind_to(int file, unsigned interface, uint16_t protocol) {
    sockaddr_ll address{};
    address.sll_family = AF_PACKET;
    address.sll_protocol = htons(protocol);
    address.sll_ifindex = static_cast<int>(interface);
    return bind(file, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 ? 0 : errno;
}

// Who else would answer that nobody is there: the kernel, for want of a listener. This one is never read, and gets
// nothing. (If somebody listens already, he will do.)
FileDescriptor listen_to_nothing(int family, const std::string& interface) {
    FileDescriptor file(socket(family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    if (!file.is_open() || attach_filter(file.get(), kNothing) != 0) return {};
    setsockopt(file.get(), SOL_SOCKET, SO_BINDTODEVICE, interface.data(), static_cast<socklen_t>(interface.size()));
    sockaddr_in ipv4{};
    ipv4.sin_family = AF_INET;
    ipv4.sin_port = htons(wire::kRoceUdpPort);
    sockaddr_in6 ipv6{};
    ipv6.sin6_family = AF_INET6;
    ipv6.sin6_port = htons(wire::kRoceUdpPort);
    const int only = 1;
    if (family == AF_INET6) setsockopt(file.get(), IPPROTO_IPV6, IPV6_V6ONLY, &only, sizeof only);
    const int bound = family == AF_INET ? bind(file.get(), reinterpret_cast<const sockaddr*>(&ipv4), sizeof ipv4)
                                        : bind(file.get(), reinterpret_cast<const sockaddr*>(&ipv6), sizeof ipv6);
    return bound == 0 ? std::move(file) : FileDescriptor();
}

uint32_t slot_bytes(uint32_t frame_bytes) {
    return TPACKET_ALIGN(TPACKET_ALIGN(TPACKET2_HDRLEN) + ETH_HLEN + frame_bytes);
}

}  // namespace

std::unique_ptr<PacketQueue> PacketQueue::open(const std::string& interface, unsigned index, uint32_t frame_bytes,
                                               Poller& poller, int* error) {
    FileDescriptor file(socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, 0));  // nothing comes before it is bound
    if (!file.is_open()) {
        *error = errno;
        return nullptr;
    }
    std::unique_ptr<PacketQueue> queue(new PacketQueue(std::move(file), poller, frame_bytes));
    *error = queue->prepare(interface, index);
    return *error == 0 ? std::move(queue) : nullptr;
}

PacketQueue::PacketQueue(FileDescriptor file, Poller& poller, uint32_t frame_bytes)
    : KernelQueue(std::move(file), poller),
      slot_bytes_(slot_bytes(frame_bytes)),
      slots_per_block_(kBlockBytes / slot_bytes_) {}

// 0, or errno.
int PacketQueue::prepare(const std::string& interface, unsigned index) {
    for (const int family : {AF_INET, AF_INET6}) listeners_.push_back(listen_to_nothing(family, interface));
    if (const int error = set(file(), PACKET_VERSION, int{TPACKET_V2}); error != 0) return error;
    if (const int error = set(file(), PACKET_IGNORE_OUTGOING, int{1}); error != 0) return error;
    if (const int error = attach_filter(file(), kRoce); error != 0) return error;
    const tpacket_req ring{
        .tp_block_size = kBlockBytes, .tp_block_nr = kBlocks, .tp_frame_size = slot_bytes_, .tp_frame_nr = slots()};
    if (const int error = set(file(), PACKET_RX_RING, ring); error != 0) return error;
    ring_ = Mapping(size_t{kBlockBytes} * kBlocks, file(), 0);
    return ring_.is_mapped() ? bind_to(file(), index, ETH_P_ALL) : errno;
}

uint8_t* PacketQueue::slot(uint32_t index) const {
    const uint32_t at = index % slots();
    return ring_.at(size_t{at / slots_per_block_} * kBlockBytes + size_t{at % slots_per_block_} * slot_bytes_);
}

bool PacketQueue::has_frames() const {
    const auto& header = *reinterpret_cast<const tpacket2_hdr*>(slot(next_));
    return next_ - released_ < slots() && (__atomic_load_n(&header.tp_status, __ATOMIC_ACQUIRE) & TP_STATUS_USER) != 0;
}

uint16_t PacketQueue::burst(rte_mbuf** frames) {
    uint16_t count = 0;
    uint64_t bytes = 0;
    for (; count < kBurst && has_frames(); ++next_) {
        uint8_t* const at = slot(next_);
        const auto& header = *reinterpret_cast<const tpacket2_hdr*>(at);
        if (header.tp_snaplen < header.tp_len) {
            errors_.add(1);
            continue;
        }
        lend(views_[count], at + header.tp_mac, header.tp_snaplen);
        frames[count] = &views_[count];
        ++count;
        bytes += header.tp_snaplen;
    }
    if (count != 0) {
        frames_.add(count);
        bytes_.add(bytes);
    }
    return count;
}

void PacketQueue::release() {
    for (; released_ != next_; ++released_)
        __atomic_store_n(&reinterpret_cast<tpacket2_hdr*>(slot(released_))->tp_status, uint32_t{TP_STATUS_KERNEL},
                         __ATOMIC_RELEASE);
}

// The kernel counts from the last time that it was asked.
uint64_t PacketQueue::missed() {
    tpacket_stats told{};
    socklen_t bytes = sizeof told;
    if (getsockopt(file(), SOL_PACKET, PACKET_STATISTICS, &told, &bytes) != 0) return missed_;
    return missed_ += told.tp_drops;
}

std::unique_ptr<PacketSender> PacketSender::open(unsigned interface, int* error) {
    FileDescriptor file(socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, 0));
    *error = file.is_open() ? bind_to(file.get(), interface, 0) : errno;
    if (*error == 0) *error = set(file.get(), PACKET_QDISC_BYPASS, int{1});
    if (*error != 0) return nullptr;
    // Past the system's bound, if we may.
    for (const int option : {SO_SNDBUF, SO_SNDBUFFORCE})
        setsockopt(file.get(), SOL_SOCKET, option, &kSendBufferBytes, sizeof kSendBufferBytes);
    return std::unique_ptr<PacketSender>(new PacketSender(std::move(file)));
}

uint16_t PacketSender::burst(rte_mbuf** frames, uint16_t count) {
    std::array<iovec, RxQueue::kBurst> places;
    std::array<mmsghdr, RxQueue::kBurst> messages{};
    count = std::min<uint16_t>(count, RxQueue::kBurst);
    for (uint16_t i = 0; i < count; ++i) {
        places[i] = {rte_pktmbuf_mtod(frames[i], void*), frames[i]->data_len};
        messages[i].msg_hdr.msg_iov = &places[i];
        messages[i].msg_hdr.msg_iovlen = 1;
    }
    uint16_t taken = 0;
    while (taken < count) {
        const int sent = sendmmsg(file_.get(), messages.data() + taken, count - taken, MSG_DONTWAIT);
        if (sent > 0) {
            for (int i = 0; i < sent; ++i) bytes_.add(places[taken + static_cast<unsigned>(i)].iov_len);
            frames_.add(static_cast<uint64_t>(sent));
            taken = static_cast<uint16_t>(taken + sent);
        } else if (errno == EAGAIN || errno == ENOBUFS) {
            break;
        } else if (errno != EINTR) {  // as on a cut cable
            errors_.add(1);
            ++taken;
        }
    }
    rte_pktmbuf_free_bulk(frames, taken);
    return taken;
}

}  // namespace rove::datapath
