// SPDX-License-Identifier: Apache-2.0
#include "port/kernel_interface/packet_queue.h"

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
#include <sys/utsname.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstring>

#include "port/kernel_interface/udp_sockets.h"
#include "wire/byte_order.h"
#include "wire/headers.h"

#ifndef UDP_GRO
#define UDP_GRO 104
#endif

namespace rove::datapath {

namespace {

constexpr int kSendBufferBytes = 4 << 20, kReceiveBufferBytes = 16 << 20;
// The values VIRTIO_NET_HDR_F_NEEDS_CSUM and VIRTIO_NET_HDR_GSO_UDP_L4, for TrainHeader.
constexpr uint8_t kNeedsChecksum = 1, kUdpTrain = 5;

// The filter for RoCEv2, as in roce.bpf.c, but in classic BPF, which needs no privilege beyond the socket's. For a
// bridge it also accepts the other kinds. A VLAN tag is kept outside the frame. Until Linux 6.2 its number is still
// there when the frame has reached the VLAN's own interface, where it is no longer tagged.
constexpr uint16_t kLoadHalf = BPF_LD | BPF_H | BPF_ABS, kLoadByte = BPF_LD | BPF_B | BPF_ABS;
constexpr uint16_t kIfEqual = BPF_JMP | BPF_JEQ | BPF_K, kIfBits = BPF_JMP | BPF_JSET | BPF_K;
constexpr uint16_t kReturn = BPF_RET | BPF_K;
constexpr uint16_t kGo = BPF_JMP | BPF_JA;
constexpr uint32_t kIp = sizeof(ethhdr), kUdpOverIpv4 = kIp + sizeof(iphdr), kUdpOverIpv6 = kIp + sizeof(ipv6hdr);

constexpr std::array<sock_filter, 27> filter(PacketKinds kinds) {
    const uint32_t others = kinds == PacketKinds::kBridge ? UINT32_MAX : 0;
    return {{
        {kLoadHalf, 0, 0, static_cast<uint32_t>(SKF_AD_OFF + SKF_AD_VLAN_TAG_PRESENT)},
        {kIfEqual, 2, 0, 0},  // to 4
        {kLoadHalf, 0, 0, static_cast<uint32_t>(SKF_AD_OFF + SKF_AD_VLAN_TAG)},
        {kIfBits, 21, 0, 0x0FFF},  // tagged for a VLAN, so for another interface: to 25
        {kLoadHalf, 0, 0, offsetof(ethhdr, h_proto)},
        {kIfEqual, 0, 10, ETH_P_IP},  // else to 16
        {kLoadByte, 0, 0, kIp + offsetof(iphdr, protocol)},
        {kIfEqual, 2, 0, IPPROTO_UDP},  // to 10
        {kIfEqual, 17, 0, IPPROTO_ICMP},
        {kIfEqual, 16, 15, IPPROTO_IGMP},
        {kLoadByte, 0, 0, kIp},
        {kIfEqual, 0, 13, 0x45},  // without options
        {kLoadHalf, 0, 0, kIp + offsetof(iphdr, frag_off)},
        {kIfBits, 11, 0, 0x3FFF},  // a fragment
        {kLoadHalf, 0, 0, kUdpOverIpv4 + offsetof(udphdr, uh_dport)},
        {kGo, 0, 0, 6},                // to 22
        {kIfEqual, 0, 6, ETH_P_IPV6},  // else to 23
        {kLoadByte, 0, 0, kIp + offsetof(ipv6hdr, nexthdr)},
        {kIfEqual, 2, 0, IPPROTO_UDP},  // to 21
        {kIfEqual, 6, 0, IPPROTO_ICMPV6},
        {kIfEqual, 5, 4, IPPROTO_HOPOPTS},  // MLD's
        {kLoadHalf, 0, 0, kUdpOverIpv6 + offsetof(udphdr, uh_dport)},
        {kIfEqual, 1, 2, wire::kRoceUdpPort},
        {kIfEqual, 2, 1, ETH_P_ARP},
        {kReturn, 0, 0, UINT32_MAX},
        {kReturn, 0, 0, 0},
        {kReturn, 0, 0, others},
    }};
}
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

// Sets the size of a socket's buffer, beyond the system's bound if we may.
void set_buffer(int file, int option, int forced, int bytes) {
    for (const int one : {option, forced}) setsockopt(file, SOL_SOCKET, one, &bytes, sizeof bytes);
}

int bind_to(int file, unsigned interface, uint16_t protocol) {
    sockaddr_ll address{};
    address.sll_family = AF_PACKET;
    address.sll_protocol = htons(protocol);
    address.sll_ifindex = static_cast<int>(interface);
    return bind(file, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 ? 0 : errno;
}

// Opens a socket that keeps the kernel from answering that the port is unreachable, as it does if there is no listener.
// The socket is never read, and gets nothing. It has GRO: without that, the kernel would segment messages for it, and a
// NIC's driver makes no GRO messages without a listener that accepts them. (If another process is listening already,
// that is sufficient.)
FileDescriptor open_sink_socket(int family, const std::string& interface) {
    FileDescriptor file(socket(family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    if (!file.is_open() || attach_filter(file.get(), kNothing) != 0) return {};
    setsockopt(file.get(), SOL_SOCKET, SO_BINDTODEVICE, interface.data(), static_cast<socklen_t>(interface.size()));
    sockaddr_in ipv4{};
    ipv4.sin_family = AF_INET;
    ipv4.sin_port = htons(wire::kRoceUdpPort);
    sockaddr_in6 ipv6{};
    ipv6.sin6_family = AF_INET6;
    ipv6.sin6_port = htons(wire::kRoceUdpPort);
    const int yes = 1;
    if (family == AF_INET6) setsockopt(file.get(), IPPROTO_IPV6, IPV6_V6ONLY, &yes, sizeof yes);
    setsockopt(file.get(), IPPROTO_UDP, UDP_GRO, &yes, sizeof yes);
    ignore_path_mtu(file.get(), family == AF_INET);
    const int bound = family == AF_INET ? bind(file.get(), reinterpret_cast<const sockaddr*>(&ipv4), sizeof ipv4)
                                        : bind(file.get(), reinterpret_cast<const sockaddr*>(&ipv6), sizeof ipv6);
    return bound == 0 ? std::move(file) : FileDescriptor();
}

// Returns where a frame's datagram begins, or its packet if the frame has no datagram. `head` has kHeadBytes that can
// be read.
constexpr size_t kHeadBytes = kIp + offsetof(iphdr, protocol) + 1;
size_t lower_bytes(const uint8_t* head) {
    const uint16_t type = wire::load_be16(head + offsetof(ethhdr, h_proto));
    if (type == ETH_P_IP && head[kIp + offsetof(iphdr, protocol)] == IPPROTO_UDP) return kUdpOverIpv4 + sizeof(udphdr);
    if (type == ETH_P_IPV6 && head[kIp + offsetof(ipv6hdr, nexthdr)] == IPPROTO_UDP)
        return kUdpOverIpv6 + sizeof(udphdr);
    return kIp;
}

}  // namespace

std::unique_ptr<PacketQueue> PacketQueue::open(const std::string& interface, unsigned index, PacketKinds kinds,
                                               rte_mempool* pool, EventLoop& poller, int* error) {
    FileDescriptor file(socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, 0));  // nothing arrives before it is bound
    if (!file.is_open()) {
        *error = errno;
        return nullptr;
    }
    std::unique_ptr<PacketQueue> queue(new PacketQueue(std::move(file), index, poller, pool));
    *error = queue->prepare(interface, kinds);
    return *error == 0 ? std::move(queue) : nullptr;
}

PacketQueue::PacketQueue(FileDescriptor file, unsigned index, EventLoop& poller, rte_mempool* pool)
    : KernelQueue(std::move(file), poller, false), index_(index), trains_(pool, counts_) {}

// Returns 0 or an errno.
int PacketQueue::prepare(const std::string& interface, PacketKinds kinds) {
    for (const int family : {AF_INET, AF_INET6}) listeners_.push_back(open_sink_socket(family, interface));
    if (const int error = set(file(), PACKET_IGNORE_OUTGOING, int{1}); error != 0) return error;
    if (const int error = set(file(), PACKET_VNET_HDR, int{1}); error != 0) return error;
    if (const int error = attach_filter(file(), filter(kinds)); error != 0) return error;
    set_buffer(file(), SO_RCVBUF, SO_RCVBUFFORCE, kReceiveBufferBytes);
    return 0;
}

int PacketQueue::begin() {
    if (begun_.load(std::memory_order_relaxed)) return 0;
    if (const int error = bind_to(file(), index_, ETH_P_ALL); error != 0) return error;
    begun_.store(true, std::memory_order_relaxed);
    return 0;
}

uint16_t PacketQueue::burst(rte_mbuf** frames) {
    if (!begun_.load(std::memory_order_relaxed)) return 0;
    if (!trains_.has_frames()) {
        const size_t count = trains_.receive(file(), front_);
        for (size_t i = 0; i < count; ++i) take(i);
    }
    return trains_.give(frames);
}

void PacketQueue::take(size_t message) {
    TrainHeader told;
    const size_t bytes = trains_.bytes(message);
    if (bytes < sizeof told + kHeadBytes) return counts_.errors.add(1);
    const size_t lower = lower_bytes(trains_.head(message, sizeof told + kHeadBytes) + sizeof told);
    const size_t front = sizeof told + lower;
    if (bytes < front) return counts_.errors.add(1);
    std::array<uint8_t, wire::kMaxLowerBytes> headers;
    const uint8_t* const head = trains_.head(message, front);
    std::memcpy(&told, head, sizeof told);
    std::memcpy(headers.data(), head + sizeof told, lower);
    const bool has_datagrams = lower != kIp, train = told.gso_type == kUdpTrain && has_datagrams;
    if (has_datagrams) front_ = front;
    const std::span<rte_mbuf*> frames = trains_.take(
        message, {.bytes = bytes, .front = front, .segment = train ? size_t{told.segment_bytes} : bytes - front});
    for (rte_mbuf* const frame : frames) {
        const size_t datagram = frame->data_len;
        auto* const at = reinterpret_cast<uint8_t*>(rte_pktmbuf_prepend(frame, static_cast<uint16_t>(lower)));
        std::memcpy(at, headers.data(), lower);
        if (frames.size() > 1)
            wire::set_datagram_bytes(at + kIp, datagram);
        else if (has_datagrams && (told.flags & kNeedsChecksum) != 0)  // it was never on a wire
            wire::set_udp_checksum(at + kIp, 0);
    }
    if (frames.size() > 1 && lower == kUdpOverIpv4 + sizeof(udphdr)) trains_.identify(frames);
    trains_.add(frames);
}

// The kernel counts from the last query.
uint64_t PacketQueue::missed() {
    tpacket_stats told{};
    socklen_t bytes = sizeof told;
    if (getsockopt(file(), SOL_PACKET, PACKET_STATISTICS, &told, &bytes) != 0) return missed_;
    return missed_ += told.tp_drops;
}

std::unique_ptr<PacketSender> PacketSender::open(const std::string& interface, unsigned index, PacketKinds kinds,
                                                 int* error) {
    FileDescriptor file(socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, 0));
    *error = file.is_open() ? bind_to(file.get(), index, 0) : errno;
    if (*error == 0) *error = set(file.get(), PACKET_VNET_HDR, int{1});
    if (*error != 0) return nullptr;
    set_buffer(file.get(), SO_SNDBUF, SO_SNDBUFFORCE, kSendBufferBytes);
    return std::unique_ptr<PacketSender>(new PacketSender("interface:" + interface, std::move(file), kinds));
}

void PacketSender::send(std::span<Train> trains) {
    piece_count_ = 0;
    for (size_t i = 0; i < trains.size(); ++i) write(trains[i], i);
    for (size_t at = 0; at < trains.size();) {
        const int sent =
            sendmmsg(file_.get(), messages_.data() + at, static_cast<unsigned>(trains.size() - at), MSG_DONTWAIT);
        for (int i = 0; i < sent; ++i) trains[at++].result = Result::kSent;
        if (sent >= 0 || errno == EINTR) continue;
        if (errno == EAGAIN || errno == ENOBUFS) return;
        if (errno == EINVAL && trains[at].count > 1) return send_singly();
        trains[at++].result = refused(errno);
    }
}

void PacketSender::write(const Train& train, size_t message) {
    QueueFront& front = fronts_[message];
    const size_t lower = train.lower_bytes();
    front.told = {.header_bytes = static_cast<uint16_t>(lower)};
    std::memcpy(front.headers.data(), train.first.l3 - kIp, lower);
    if (train.count > 1) {
        uint8_t* const l3 = front.headers.data() + kIp;
        wire::set_datagram_bytes(l3, train.bytes);
        wire::set_udp_checksum(l3, wire::sum_pseudo_header(l3));
        front.told = {.flags = kNeedsChecksum,
                      .gso_type = kUdpTrain,
                      .header_bytes = static_cast<uint16_t>(lower),
                      .segment_bytes = static_cast<uint16_t>(train.segment),
                      .checksum_start = static_cast<uint16_t>(lower - sizeof(udphdr)),
                      .checksum_offset = offsetof(udphdr, uh_sum)};
    }
    msghdr& header = messages_[message].msg_hdr;
    header.msg_iov = &pieces_[piece_count_];
    header.msg_iovlen = train.count + size_t{1};
    pieces_[piece_count_++] = {&front, sizeof front.told + lower};
    for (size_t i = 0; i < train.count; ++i) {
        const std::span<const uint8_t> datagram = frame(train, i).datagram;
        pieces_[piece_count_++] = {const_cast<uint8_t*>(datagram.data()), datagram.size()};
    }
}

bool packets_come_in_trains() {
    utsname kernel{};
    unsigned major = 0, minor = 0;
    return uname(&kernel) == 0 && std::sscanf(kernel.release, "%u.%u", &major, &minor) == 2 &&
           (major > 6 || (major == 6 && minor >= 2));
}

}  // namespace rove::datapath
