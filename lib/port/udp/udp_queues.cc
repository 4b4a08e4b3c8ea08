// SPDX-License-Identifier: Apache-2.0
#include "port/udp/udp_queues.h"

#include <netinet/in.h>
#include <netinet/udp.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "link/address.h"

#ifndef UDP_SEGMENT
#define UDP_SEGMENT 103
#endif
#ifndef UDP_GRO
#define UDP_GRO 104
#endif

namespace rove::datapath {

namespace {

// The values in a received message's ancillary data.
struct ControlMessage {
    uint8_t traffic_class = 0, hop_limit = 0;
    size_t segment = 0;  // 0 if it is one datagram
};
ControlMessage read_control(msghdr& message) {
    ControlMessage told;
    for (cmsghdr* one = CMSG_FIRSTHDR(&message); one != nullptr; one = CMSG_NXTHDR(&message, one)) {
        int value = 0;
        std::memcpy(&value, CMSG_DATA(one), std::min(sizeof value, one->cmsg_len - CMSG_LEN(0)));
        const bool ipv4 = one->cmsg_level == IPPROTO_IP, ipv6 = one->cmsg_level == IPPROTO_IPV6;
        if ((ipv4 && one->cmsg_type == IP_TOS) || (ipv6 && one->cmsg_type == IPV6_TCLASS))
            told.traffic_class = static_cast<uint8_t>(value);
        else if ((ipv4 && one->cmsg_type == IP_TTL) || (ipv6 && one->cmsg_type == IPV6_HOPLIMIT))
            told.hop_limit = static_cast<uint8_t>(value);
        else if (one->cmsg_level == IPPROTO_UDP && one->cmsg_type == UDP_GRO)
            told.segment = static_cast<size_t>(value);
    }
    return told;
}

// The ancillary data of a message to be sent.
class Control {
  public:
    template <class T>
    void add(int level, int type, T value) {
        auto* const one = reinterpret_cast<cmsghdr*>(bytes_ + used_);
        one->cmsg_level = level;
        one->cmsg_type = type;
        one->cmsg_len = CMSG_LEN(sizeof value);
        std::memcpy(CMSG_DATA(one), &value, sizeof value);
        used_ += CMSG_SPACE(sizeof value);
    }
    void attach(msghdr& message) {
        message.msg_control = bytes_;
        message.msg_controllen = used_;
    }

  private:
    alignas(cmsghdr) char bytes_[2 * CMSG_SPACE(sizeof(int)) + CMSG_SPACE(sizeof(uint16_t))];
    size_t used_ = 0;
};

bool is_mp(const wire::Outgoing& frame) {
    return wire::service_of(frame.datagram.front()) == wire::Service::kMp;
}

wire::Gid destination_of(const wire::Outgoing& frame) {
    wire::Gid gid{};
    if (frame.ipv4) gid[10] = gid[11] = 0xFF;
    std::ranges::copy(frame.dst(), gid.end() - static_cast<ptrdiff_t>(frame.dst().size()));
    return gid;
}

}  // namespace

UdpRxQueue::UdpRxQueue(const UdpPort::Receivers& receivers, rte_mempool* pool, FrameCounts& counts)
    : RxQueue(false), receivers_(receivers), trains_(pool, counts) {}

uint16_t UdpRxQueue::burst(rte_mbuf** frames) {
    const size_t size = trains_.has_frames() ? 0 : receivers_.size();
    for (size_t tried = 0; tried < size; ++tried) {
        next_receiver_ = (next_receiver_ + 1) % size;
        const UdpPort::Receiver& receiver = receivers_[next_receiver_];
        if (receive(receiver)) break;
    }
    return trains_.give(frames);
}

bool UdpRxQueue::receive(const UdpPort::Receiver& receiver) {
    const size_t count = trains_.receive(receiver.file.get(), 0);
    for (size_t i = 0; i < count; ++i) take(receiver, i);
    return count != 0;
}

void UdpRxQueue::take(const UdpPort::Receiver& receiver, size_t message) {
    const ControlMessage told = read_control(trains_.header(message));
    const size_t bytes = trains_.bytes(message);
    const bool train = told.segment != 0 && told.segment < bytes;
    const std::span<rte_mbuf*> frames =
        trains_.take(message, {.bytes = bytes, .front = 0, .segment = train ? told.segment : bytes});
    if (frames.empty()) return;
    const SocketAddress from(trains_.header(message));
    const wire::Gid peer = from.address();
    if (!wire::same(peer, peer_) || !wire::same(receiver.address, peers_destination_)) {
        peer_ = peer;
        peers_destination_ = receiver.address;
        lower_ = wire::make_template(
            {.dst_mac = receiver.mac, .src_mac = derived_mac(peer), .vlan = {}, .src = peer, .dst = receiver.address});
    }
    for (rte_mbuf* const frame : frames) {
        const uint16_t datagram = frame->data_len;
        auto* const at = reinterpret_cast<uint8_t*>(rte_pktmbuf_prepend(frame, static_cast<uint16_t>(lower_.size)));
        wire::write_lower_headers(
            at, lower_, {.udp_src = from.port(), .traffic_class = told.traffic_class, .hop_limit = told.hop_limit},
            datagram);
    }
    if (receiver.ipv4) trains_.identify(frames);
    trains_.add(frames);
}

void UdpTxQueue::send(std::span<Train> trains) {
    for (Train& train : trains)
        if ((train.result = send(train)) == Result::kFull) break;
}

UdpTxQueue::Result UdpTxQueue::send(Train& train) {
    const int file = socket_of(train);
    if (file < 0) return Result::kDropped;
    const wire::Outgoing& first = frame(train, 0);
    std::array<iovec, kMaxFrames> pieces;
    for (size_t i = 0; i < train.count; ++i) {
        const std::span<const uint8_t> datagram = frame(train, i).datagram;
        pieces[i] = {const_cast<uint8_t*>(datagram.data()), datagram.size()};
    }
    SocketAddress to(destination_of(first), wire::kRoceUdpPort);
    msghdr header{};
    header.msg_name = to.get();
    header.msg_namelen = to.bytes();
    header.msg_iov = pieces.data();
    header.msg_iovlen = train.count;
    Control control;
    control.add<int>(first.ipv4 ? IPPROTO_IP : IPPROTO_IPV6, first.ipv4 ? IP_TOS : IPV6_TCLASS, first.traffic_class);
    control.add<int>(first.ipv4 ? IPPROTO_IP : IPPROTO_IPV6, first.ipv4 ? IP_TTL : IPV6_HOPLIMIT, first.hop_limit);
    if (train.count > 1) control.add<uint16_t>(IPPROTO_UDP, UDP_SEGMENT, static_cast<uint16_t>(train.segment));
    control.attach(header);
    if (sendmsg(file, &header, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0) return Result::kSent;
    if (errno == EAGAIN || errno == EWOULDBLOCK || errno == ENOBUFS) return Result::kFull;
    if (train.count > 1 && (errno == EIO || errno == EINVAL || errno == EOPNOTSUPP)) {
        send_singly();
        return Result::kFull;
    }
    return refused(errno);
}

// Returns the socket with the frames' source port, or -1 if there is no such socket. If another process has that port,
// frames of RC and UD leave from the socket that receives RoCE. Frames of mp cannot, because the source port tells
// their paths apart.
int UdpTxQueue::socket_of(Train& train) {
    const auto from = std::ranges::find(locals_, train.first.ipv4, &UdpPort::Local::ipv4);
    if (from == locals_.end()) return -1;
    const int file = from->sources.socket(train.first.udp_src);
    if (file >= 0 || is_mp(train.first)) return file;
    for (size_t i = 0; i < train.count; ++i) wire::set_source_port(frame(train, i), wire::kRoceUdpPort);
    return from->receiver->file.get();
}

}  // namespace rove::datapath
