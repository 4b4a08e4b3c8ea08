// SPDX-License-Identifier: Apache-2.0
#include "datapath/ports/udp_queues.h"

#include <netinet/in.h>
#include <netinet/udp.h>

#include <algorithm>
#include <bitset>
#include <cerrno>
#include <cstring>

#include "datapath/address.h"

#ifndef UDP_SEGMENT
#define UDP_SEGMENT 103
#endif
#ifndef UDP_GRO
#define UDP_GRO 104
#endif

namespace rove::datapath {

namespace {

constexpr size_t kIpv4AndUdpBytes = 28;
constexpr size_t kLeastPacketBytes = kIpv4AndUdpBytes + wire::kLeastDatagramBytes - wire::kIcrcBytes;

void add_to(std::atomic<uint64_t>& count, uint64_t more) {
    count.store(count.load(std::memory_order_relaxed) + more, std::memory_order_relaxed);  // one thread writes it
}

uint8_t* place_of_datagram(rte_mbuf* mbuf) {
    return static_cast<uint8_t*>(mbuf->buf_addr) + RTE_PKTMBUF_HEADROOM + wire::kMaxLowerBytes;
}

uint8_t* l3_of(rte_mbuf& mbuf) {
    constexpr size_t kEthernetBytes = 14;
    return rte_pktmbuf_mtod_offset(&mbuf, uint8_t*, kEthernetBytes);
}

// What the kernel tells of a message.
struct Told {
    uint8_t traffic_class = 0, hop_limit = 0;
    size_t segment = 0;  // 0: it is one datagram
};
Told read_control(msghdr& message) {
    Told told;
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

bool same_flow(const wire::Outgoing& a, const wire::Outgoing& b) {
    return a.udp_src == b.udp_src && a.ipv4 == b.ipv4 && a.traffic_class == b.traffic_class &&
           a.hop_limit == b.hop_limit && std::ranges::equal(a.dst(), b.dst());
}

wire::Gid destination_of(const wire::Outgoing& frame) {
    wire::Gid gid{};
    if (frame.ipv4) gid[10] = gid[11] = 0xFF;
    std::ranges::copy(frame.dst(), gid.end() - static_cast<ptrdiff_t>(frame.dst().size()));
    return gid;
}

}  // namespace

UdpRxQueue::UdpRxQueue(const UdpPort::Receivers& receivers, rte_mempool* pool, Poller& poller, UdpPort::Counts& counts)
    : RxQueue(false),
      receivers_(receivers),
      pool_(pool),
      poller_(poller),
      counts_(counts),
      room_(static_cast<uint32_t>(rte_pktmbuf_data_room_size(pool) - RTE_PKTMBUF_HEADROOM - wire::kMaxLowerBytes)),
      spills_(std::make_unique_for_overwrite<Bytes[]>(kBurst)),
      in_one_piece_(std::make_unique_for_overwrite<Bytes>()) {
    ready_.reserve(kBurst * kMostSegments);  // no packet shall allocate
}

UdpRxQueue::~UdpRxQueue() {
    for (Slot& slot : slots_) rte_pktmbuf_free_bulk(slot.mbufs.data(), static_cast<unsigned>(slot.mbuf_count));
    rte_pktmbuf_free_bulk(ready_.data() + ready_next_, static_cast<unsigned>(ready_.size() - ready_next_));
}

uint16_t UdpRxQueue::burst(rte_mbuf** frames) {
    if (ready_next_ == ready_.size()) {
        ready_.clear();
        ready_next_ = 0;
        const size_t size = receivers_.size();
        for (size_t tried = 0; tried < size; ++tried) {
            next_receiver_ = (next_receiver_ + 1) % size;
            const UdpPort::Receiver& receiver = receivers_[next_receiver_];
            if (receiver.used.load(std::memory_order_relaxed) && receive(receiver)) break;
        }
    }
    const size_t count = std::min<size_t>(kBurst, ready_.size() - ready_next_);
    std::copy_n(ready_.begin() + static_cast<ptrdiff_t>(ready_next_), count, frames);
    ready_next_ += count;
    return static_cast<uint16_t>(count);
}

bool UdpRxQueue::arm() {
    if (ready_next_ != ready_.size()) return false;
    for (size_t i = 0; i < receivers_.size(); ++i)
        if (receivers_[i].used.load(std::memory_order_relaxed)) poller_.add(receivers_[i].file.get(), [] {});
    return true;
}

void UdpRxQueue::disarm() {
    for (size_t i = 0; i < receivers_.size(); ++i) poller_.remove(receivers_[i].file.get());
}

unsigned UdpRxQueue::prepare() {
    const size_t wanted = trains_ ? kTrains : kBurst;
    const bool in_place = trains_ && train_segment_ != 0;
    const uint32_t bytes = in_place ? train_segment_ : room_;
    const size_t buffers = in_place ? std::min(kMostBuffers, (sizeof(Bytes) + bytes - 1) / bytes) : 1;
    unsigned ready = 0;
    while (ready < wanted && prepare(ready, buffers, bytes)) ++ready;
    return ready;
}

// False: the pool is empty.
bool UdpRxQueue::prepare(size_t at, size_t buffers, uint32_t bytes) {
    Slot& slot = slots_[at];
    if (slot.mbuf_count < buffers) {
        const auto missing = static_cast<unsigned>(buffers - slot.mbuf_count);
        if (rte_pktmbuf_alloc_bulk(pool_, slot.mbufs.data() + slot.mbuf_count, missing) != 0) return false;
        slot.mbuf_count = buffers;
    }
    slot.buffers = buffers;
    for (size_t i = 0; i < buffers; ++i) slot.pieces[i] = {place_of_datagram(slot.mbufs[i]), bytes};
    slot.pieces[buffers] = {spills_[at].data(), sizeof(Bytes)};
    messages_[at].msg_hdr = {.msg_name = slot.from.get(),
                             .msg_namelen = sizeof(sockaddr_in6),
                             .msg_iov = slot.pieces.data(),
                             .msg_iovlen = buffers + 1,
                             .msg_control = slot.control.data(),
                             .msg_controllen = slot.control.size(),
                             .msg_flags = 0};
    return true;
}

bool UdpRxQueue::receive(const UdpPort::Receiver& receiver) {
    const unsigned asked = prepare();
    if (asked == 0) return false;  // it waits in the kernel meanwhile
    const int count = recvmmsg(receiver.file.get(), messages_.data(), asked, MSG_DONTWAIT, nullptr);
    if (count <= 0) return false;
    bool trains = false;
    for (size_t i = 0; i < static_cast<size_t>(count); ++i) {
        const Told told = read_control(messages_[i].msg_hdr);
        const size_t bytes = messages_[i].msg_len;
        const bool train = told.segment != 0 && told.segment < bytes;
        trains |= train;
        take(slots_[i],
             {.receiver = receiver,
              .bytes = bytes,
              .segment = train ? told.segment : bytes,
              .packet = {
                  .udp_src = slots_[i].from.port(), .traffic_class = told.traffic_class, .hop_limit = told.hop_limit}});
    }
    trains_ = trains;
    return true;
}

void UdpRxQueue::take(Slot& slot, const Message& message) {
    if (message.segment < wire::kLeastDatagramBytes || message.segment > room_) {
        return add_to(counts_.rx_errors, message.segment == 0 ? 1 : message.datagrams());
    }
    const wire::Gid peer = slot.from.address();
    if (!wire::same(peer, peer_) || peers_receiver_ != &message.receiver) {
        peer_ = peer;
        peers_receiver_ = &message.receiver;
        lower_ = wire::make_template({.dst_mac = message.receiver.mac,
                                      .src_mac = derived_mac(peer),
                                      .vlan = {},
                                      .src = peer,
                                      .dst = message.receiver.address});
    }
    const size_t buffer = slot.pieces[0].iov_len, datagrams = message.datagrams();
    const bool in_place =
        datagrams == 1 ? message.bytes <= buffer : message.segment == buffer && datagrams <= slot.buffers;
    if (datagrams > 1 && message.segment >= kLeastInPlace) train_segment_ = static_cast<uint32_t>(message.segment);
    if (in_place)
        take_in_place(slot, message);
    else
        take_copies(slot, message);
}

// Its frames have their mbufs' datagrams in place.
void UdpRxQueue::take_in_place(Slot& slot, const Message& message) {
    const size_t taken = message.datagrams();
    add({slot.mbufs.data(), taken}, message);
    std::copy(slot.mbufs.begin() + static_cast<ptrdiff_t>(taken),
              slot.mbufs.begin() + static_cast<ptrdiff_t>(slot.mbuf_count), slot.mbufs.begin());
    slot.mbuf_count -= taken;
}

void UdpRxQueue::take_copies(Slot& slot, const Message& message) {
    uint8_t* const whole = in_one_piece_->data();
    size_t gathered = 0;
    for (size_t i = 0; gathered < message.bytes; ++i) {
        const size_t bytes = std::min(slot.pieces[i].iov_len, message.bytes - gathered);
        std::memcpy(whole + gathered, slot.pieces[i].iov_base, bytes);
        gathered += bytes;
    }
    std::array<rte_mbuf*, kMostSegments> mbufs;
    const size_t count = std::min(message.datagrams(), mbufs.size());
    if (rte_pktmbuf_alloc_bulk(pool_, mbufs.data(), static_cast<unsigned>(count)) != 0)
        return add_to(counts_.rx_no_mbuf, message.datagrams());
    for (size_t i = 0; i < count; ++i)
        std::memcpy(place_of_datagram(mbufs[i]), whole + i * message.segment, message.bytes_of(i));
    add({mbufs.data(), count}, message);
}

void UdpRxQueue::add(std::span<rte_mbuf*> mbufs, const Message& message) {
    for (size_t i = 0; i < mbufs.size(); ++i) {
        const size_t bytes = message.bytes_of(i);
        rte_mbuf& mbuf = *mbufs[i];
        uint8_t* const frame = place_of_datagram(&mbuf) - lower_.size;
        wire::write_lower_headers(frame, lower_, message.packet, bytes);
        mbuf.data_off = static_cast<uint16_t>(frame - static_cast<uint8_t*>(mbuf.buf_addr));
        mbuf.data_len = static_cast<uint16_t>(lower_.size + bytes);
        mbuf.pkt_len = mbuf.data_len;
        add_to(counts_.rx_bytes, mbuf.data_len);
    }
    add_to(counts_.rx_frames, mbufs.size());
    if (message.receiver.ipv4) identify(mbufs);
    ready_.insert(ready_.end(), mbufs.begin(), mbufs.end());
}

// Gives a train's packets the identifications with which they are intact. If the first and the last are as far apart as
// they would be if each had the one behind that before it, so are the others: whether they really are, the engine will
// find by their ICRCs. That saves a look at most of the bytes.
void UdpRxQueue::identify(std::span<rte_mbuf*> mbufs) {
    const auto last = static_cast<uint16_t>(mbufs.size() - 1);
    const uint16_t first = identify(*mbufs.front(), 0);
    if (last == 0) return;
    const auto expected = [&](uint16_t at) { return static_cast<uint16_t>(first + at); };
    const bool in_order = last > 1 && identify(*mbufs.back(), expected(last)) == expected(last);
    uint16_t next = expected(1);
    for (uint16_t i = 1; i < (in_order ? last : last + 1); ++i) {
        if (in_order)
            wire::set_identification(l3_of(*mbufs[i]), next);
        else
            next = identify(*mbufs[i], next);
        ++next;
    }
}

// Returns what it is; as it was assumed to be if there is none: then the engine will find the ICRC wrong, and count it.
uint16_t UdpRxQueue::identify(rte_mbuf& mbuf, uint16_t assumed) {
    uint8_t* const l3 = l3_of(mbuf);
    const size_t packet = mbuf.data_len - lower_.l3_offset - wire::kIcrcBytes;
    wire::set_identification(l3, assumed);
    if (packet < kLeastPacketBytes || packet % 4 != 0) return assumed;
    const auto found = identifications_.find(l3, packet);
    if (!found || *found == assumed) return assumed;
    wire::set_identification(l3, *found);
    return *found;
}

UdpTxQueue::UdpTxQueue(std::vector<UdpPort::Local>& locals, UdpPort::Counts& counts)
    : locals_(locals), counts_(counts) {}

uint16_t UdpTxQueue::burst(rte_mbuf** frames, uint16_t count) {
    count = std::min<uint16_t>(count, kMostFrames);
    group(frames, count);
    std::bitset<kMostFrames> waits;
    for (size_t i = 0; i < message_count_; ++i) {
        Message& message = messages_[i];
        const Result result = waits.any() ? Result::kFull : send(message);
        if (result == Result::kFull)
            for (size_t k = 0; k < message.count; ++k) waits.set(message.frames[k]);
        add_to(result == Result::kSent ? counts_.tx_frames : counts_.tx_errors,
               result == Result::kFull ? 0 : message.count);
        if (result == Result::kSent) add_to(counts_.tx_bytes, message.bytes);
    }
    // What has gone, and what never will, first.
    std::array<rte_mbuf*, kMostFrames> left;
    uint16_t gone = 0, left_count = 0;
    for (uint16_t i = 0; i < count; ++i) (waits[i] ? left[left_count++] : frames[gone++]) = frames[i];
    rte_pktmbuf_free_bulk(frames, gone);
    std::copy_n(left.begin(), left_count, frames + gone);
    return gone;
}

void UdpTxQueue::group(rte_mbuf** frames, uint16_t count) {
    message_count_ = 0;
    for (uint16_t i = 0; i < count; ++i) {
        const auto frame = wire::find_datagram({rte_pktmbuf_mtod(frames[i], uint8_t*), frames[i]->data_len});
        if (!frame) continue;  // ARP, ND, IGMP, MLD: the kernel has its own
        outgoing_[i] = *frame;
        const auto at = static_cast<uint8_t>(i);
        if (append(*frame, at)) continue;
        Message& message = messages_[message_count_++];
        message.first = *frame;
        message.segment = message.bytes = frame->datagram.size();
        message.ended = false;
        message.count = 1;
        message.frames[0] = at;
    }
}

// Behind the last message of its flow, if that takes it.
bool UdpTxQueue::append(const wire::Outgoing& frame, uint8_t at) {
    if (!segments_) return false;
    const size_t bytes = frame.datagram.size();
    for (size_t i = message_count_; i-- != 0;) {
        Message& message = messages_[i];
        if (!same_flow(message.first, frame)) continue;
        if (message.ended || bytes > message.segment || message.bytes + bytes > kMostBytes) return false;
        message.frames[message.count++] = at;
        message.bytes += bytes;
        message.ended = bytes < message.segment;
        return true;
    }
    return false;
}

UdpTxQueue::Result UdpTxQueue::send(Message& message) {
    const wire::Outgoing& first = message.first;
    const int file = socket_of(message);
    if (file < 0) return Result::kDropped;
    std::array<iovec, kMostFrames> pieces;
    for (uint16_t i = 0; i < message.count; ++i) {
        const wire::Outgoing& frame = outgoing_[message.frames[i]];
        const size_t bytes = frame.datagram.size();
        if (frame.ipv4) identifications_.change(frame.l3, kIpv4AndUdpBytes + bytes - wire::kIcrcBytes, i);
        pieces[i] = {const_cast<uint8_t*>(frame.datagram.data()), bytes};
    }
    SocketAddress to(destination_of(first), wire::kRoceUdpPort);
    msghdr header{};
    header.msg_name = to.get();
    header.msg_namelen = to.bytes();
    header.msg_iov = pieces.data();
    header.msg_iovlen = message.count;
    Control control;
    control.add<int>(first.ipv4 ? IPPROTO_IP : IPPROTO_IPV6, first.ipv4 ? IP_TOS : IPV6_TCLASS, first.traffic_class);
    control.add<int>(first.ipv4 ? IPPROTO_IP : IPPROTO_IPV6, first.ipv4 ? IP_TTL : IPV6_HOPLIMIT, first.hop_limit);
    if (message.count > 1) control.add<uint16_t>(IPPROTO_UDP, UDP_SEGMENT, static_cast<uint16_t>(message.segment));
    control.attach(header);
    if (sendmsg(file, &header, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0) return Result::kSent;
    if (errno == EAGAIN || errno == EWOULDBLOCK) return Result::kFull;
    // An interface that makes no checksums, or a tunnel, takes no trains: then one by one, from now on.
    if (message.count > 1 && (errno == EIO || errno == EINVAL || errno == EOPNOTSUPP)) {
        segments_ = false;
        return Result::kFull;
    }
    return Result::kDropped;
}

// The one with the frames' source port. Somebody else may have that: RC's and UD's frames go from ours to which RoCE
// comes, then, but mp's paths are told apart by it. -1: there is none.
int UdpTxQueue::socket_of(Message& message) {
    const auto from = std::ranges::find(locals_, message.first.ipv4, &UdpPort::Local::ipv4);
    if (from == locals_.end()) return -1;
    const int file = from->sources.socket(message.first.udp_src);
    if (file >= 0 || is_mp(message.first)) return file;
    for (uint8_t i = 0; i < message.count; ++i) wire::set_source_port(outgoing_[message.frames[i]], wire::kRoceUdpPort);
    return from->receiver->file.get();
}

}  // namespace rove::datapath
