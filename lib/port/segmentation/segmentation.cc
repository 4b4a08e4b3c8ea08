// SPDX-License-Identifier: Apache-2.0
#include "port/segmentation/segmentation.h"

#include <netinet/in.h>

#include <algorithm>
#include <bitset>
#include <cstdio>
#include <cstring>

namespace rove::datapath {

namespace {

constexpr size_t kEthernetBytes = 14, kMacsBytes = 12;
constexpr size_t kIpv4AndUdpBytes = 28;
constexpr size_t kMinPacketBytes = kIpv4AndUdpBytes + wire::kMinDatagramBytes - wire::kIcrcBytes;

uint8_t* place_of_datagram(rte_mbuf* mbuf) {
    return static_cast<uint8_t*>(mbuf->buf_addr) + RTE_PKTMBUF_HEADROOM + wire::kMaxLowerBytes;
}

uint8_t* l3_of(rte_mbuf& mbuf) {
    return rte_pktmbuf_mtod_offset(&mbuf, uint8_t*, kEthernetBytes);
}

bool same_flow(const wire::Outgoing& a, const wire::Outgoing& b) {
    return a.udp_src == b.udp_src && a.ipv4 == b.ipv4 && a.traffic_class == b.traffic_class &&
           a.hop_limit == b.hop_limit && std::ranges::equal(a.addresses(), b.addresses()) &&
           std::memcmp(a.l3 - kEthernetBytes, b.l3 - kEthernetBytes, kMacsBytes) == 0;
}

// Returns everything behind the Ethernet header as one datagram, for frames that are not RoCE.
wire::Outgoing in_one_piece(std::span<uint8_t> frame) {
    const auto rest = frame.subspan(std::min(frame.size(), kEthernetBytes));
    return {.l3 = rest.data(), .datagram = rest, .udp_src = 0, .traffic_class = 0, .hop_limit = 0, .ipv4 = false};
}

}  // namespace

uint16_t GsoSender::burst(rte_mbuf** frames, uint16_t count) {
    count = std::min<uint16_t>(count, kMaxFrames);
    singly_ -= singly_ != 0;
    group(frames, count);
    const std::span trains(sent_.data(), train_count_);
    send(trains);
    std::bitset<kMaxFrames> waits;
    for (const Train& train : trains) {
        if (train.result == Result::kSent) {
            counts_.frames.add(train.count);
            counts_.bytes.add(train.bytes + train.count * train.lower_bytes());
        } else if (train.result == Result::kDropped) {
            counts_.errors.add(train.count);
        } else if (train.result == Result::kOverMtu) {
            counts_.over_mtu.add(train.count);
            say_over_mtu(train);
        } else {
            for (size_t i = 0; i < train.count; ++i) waits.set(train.frames[i]);
        }
    }
    // The frames that were sent, or never will be, are put first.
    std::array<rte_mbuf*, kMaxFrames> left;
    uint16_t gone = 0, left_count = 0;
    for (uint16_t i = 0; i < count; ++i) (waits[i] ? left[left_count++] : frames[gone++]) = frames[i];
    rte_pktmbuf_free_bulk(frames, gone);
    std::copy_n(left.begin(), left_count, frames + gone);
    return gone;
}

void GsoSender::group(rte_mbuf** frames, uint16_t count) {
    train_count_ = 0;
    for (uint16_t i = 0; i < count; ++i) {
        const std::span bytes(rte_pktmbuf_mtod(frames[i], uint8_t*), frames[i]->data_len);
        const auto frame = wire::find_datagram(bytes);
        if (!frame && others_ == Others::kLeft) continue;
        outgoing_[i] = frame ? *frame : in_one_piece(bytes);
        const auto at = static_cast<uint8_t>(i);
        if (frame && append(*frame, at)) continue;
        Train& train = sent_[train_count_++];
        train.first = outgoing_[i];
        train.segment = train.bytes = train.first.datagram.size();
        train.ended = !frame;
        train.count = 1;
        train.result = Result::kFull;
        train.frames[0] = at;
    }
    for (Train& train : std::span(sent_.data(), train_count_)) identify(train);
}

// Adds the frame to the last message of its flow. Returns false if there is no such message, or it has no room.
bool GsoSender::append(const wire::Outgoing& frame, uint8_t at) {
    if (singly_ != 0) return false;
    const size_t bytes = frame.datagram.size();
    for (size_t i = train_count_; i-- != 0;) {
        Train& train = sent_[i];
        if (!same_flow(train.first, frame)) continue;
        if (train.ended || bytes > train.segment || train.bytes + bytes > kMaxBytes) return false;
        train.frames[train.count++] = at;
        train.bytes += bytes;
        train.ended = bytes < train.segment;
        return true;
    }
    return false;
}

void GsoSender::identify(Train& train) {
    if (!train.first.ipv4) return;
    for (uint16_t i = 0; i < train.count; ++i) {
        const wire::Outgoing& one = frame(train, i);
        identifications_.change(one.l3, kIpv4AndUdpBytes + one.datagram.size() - wire::kIcrcBytes, i);
    }
}

void GsoSender::say_over_mtu(const Train& train) {
    if (std::exchange(said_over_mtu_, true)) return;
    const size_t packet = train.lower_bytes() - kEthernetBytes + train.segment;
    std::fprintf(stderr,
                 "rove: %s: the interface's MTU is less than it was, so packets of %zu bytes are dropped (tx_over_mtu "
                 "counts them): ip link set NAME mtu %zu, or a smaller 'mtu' in the configuration\n",
                 port_.c_str(), packet, packet);
}

GroReceiver::GroReceiver(rte_mempool* pool, FrameCounts& counts)
    : pool_(pool),
      room_(static_cast<uint32_t>(rte_pktmbuf_data_room_size(pool) - RTE_PKTMBUF_HEADROOM - wire::kMaxLowerBytes)),
      spills_(std::make_unique_for_overwrite<Bytes[]>(kBurst)),
      in_one_piece_(std::make_unique_for_overwrite<Bytes>()),
      counts_(counts) {
    ready_.reserve(kBurst * kMaxSegments);  // avoids allocations for each packet
}

GroReceiver::~GroReceiver() {
    for (Slot& slot : slots_) rte_pktmbuf_free_bulk(slot.mbufs.data(), static_cast<unsigned>(slot.mbuf_count));
    rte_pktmbuf_free_bulk(ready_.data() + ready_next_, static_cast<unsigned>(ready_.size() - ready_next_));
}

uint16_t GroReceiver::give(rte_mbuf** frames) {
    const size_t count = std::min<size_t>(kBurst, ready_.size() - ready_next_);
    std::copy_n(ready_.begin() + static_cast<ptrdiff_t>(ready_next_), count, frames);
    ready_next_ += count;
    return static_cast<uint16_t>(count);
}

void GroReceiver::add(std::span<rte_mbuf*> frames) {
    uint64_t bytes = 0;
    for (const rte_mbuf* const frame : frames) bytes += frame->data_len;
    counts_.frames.add(frames.size());
    counts_.bytes.add(bytes);
    ready_.insert(ready_.end(), frames.begin(), frames.end());
}

size_t GroReceiver::receive(int file, size_t front) {
    if (!has_frames()) {
        ready_.clear();
        ready_next_ = 0;
    }
    const unsigned asked = prepare(front);
    if (asked == 0) return 0;  // messages wait in the kernel meanwhile
    const int count = recvmmsg(file, messages_.data(), asked, MSG_DONTWAIT, nullptr);
    if (count <= 0) return 0;
    trains_ = false;
    filled_ = static_cast<unsigned>(count);
    return filled_;
}

unsigned GroReceiver::prepare(size_t front) {
    const unsigned wanted = trains_ ? kTrains : kBurst;
    const bool in_place = trains_ && train_segment_ != 0;
    const uint32_t bytes = in_place ? train_segment_ : room_;
    const size_t buffers = in_place ? std::min(kMaxBuffers, (sizeof(Bytes) + bytes - 1) / bytes) : 1;
    if (const Layout layout{front, buffers, bytes}; layout != layout_) {
        layout_ = layout;
        prepared_ = 0;
    }
    const unsigned again = std::min(std::exchange(filled_, 0), prepared_);
    if (const unsigned done = prepare(0, again); done < again)
        prepared_ = done;
    else if (prepared_ < wanted)
        prepared_ = prepare(prepared_, wanted);
    return std::min(prepared_, wanted);
}

unsigned GroReceiver::prepare(unsigned from, unsigned until) {
    while (from < until && prepare_slot(from)) ++from;
    return from;
}

bool GroReceiver::prepare_slot(unsigned at) {
    const auto& [front, buffers, bytes] = layout_;
    Slot& slot = slots_[at];
    if (slot.mbuf_count < buffers) {
        const auto missing = static_cast<unsigned>(buffers - slot.mbuf_count);
        if (rte_pktmbuf_alloc_bulk(pool_, slot.mbufs.data() + slot.mbuf_count, missing) != 0) return false;
        slot.mbuf_count = buffers;
    }
    slot.buffers = buffers;
    slot.pieces[0] = {slot.front.data(), front};
    for (size_t i = 0; i < buffers; ++i) slot.pieces[i + 1] = {place_of_datagram(slot.mbufs[i]), bytes};
    slot.pieces[buffers + 1] = {spills_[at].data(), sizeof(Bytes)};
    messages_[at].msg_hdr = {.msg_name = slot.from.data(),
                             .msg_namelen = sizeof slot.from,
                             .msg_iov = slot.pieces.data(),
                             .msg_iovlen = buffers + 2,
                             .msg_control = slot.control.data(),
                             .msg_controllen = slot.control.size(),
                             .msg_flags = 0};
    return true;
}

const uint8_t* GroReceiver::head(size_t message, size_t bytes) {
    const Slot& slot = slots_[message];
    return slot.pieces[0].iov_len >= bytes ? slot.front.data() : gather(slot, bytes);
}

std::span<rte_mbuf*> GroReceiver::take(size_t message, const Message& parts) {
    if (parts.segment < wire::kMinDatagramBytes || parts.segment > room_) {
        counts_.errors.add(parts.segment == 0 ? 1 : parts.datagrams());
        return {};
    }
    Slot& slot = slots_[message];
    const size_t datagrams = parts.datagrams(), buffer = slot.pieces[1].iov_len;
    const bool in_place =
        parts.front == slot.pieces[0].iov_len &&
        (datagrams == 1 ? parts.segment <= buffer : parts.segment == buffer && datagrams <= slot.buffers);
    trains_ |= datagrams > 1;
    if (datagrams > 1 && parts.segment >= kMinInPlace) train_segment_ = static_cast<uint32_t>(parts.segment);
    return in_place ? take_in_place(slot, parts) : take_copies(slot, parts);
}

// Returns the mbufs of a message whose datagrams are in place already.
std::span<rte_mbuf*> GroReceiver::take_in_place(Slot& slot, const Message& parts) {
    const size_t count = parts.datagrams();
    std::copy_n(slot.mbufs.begin(), count, taken_.begin());
    std::copy(slot.mbufs.begin() + static_cast<ptrdiff_t>(count),
              slot.mbufs.begin() + static_cast<ptrdiff_t>(slot.mbuf_count), slot.mbufs.begin());
    slot.mbuf_count -= count;
    return set_datagrams(parts, count);
}

std::span<rte_mbuf*> GroReceiver::take_copies(Slot& slot, const Message& parts) {
    const uint8_t* const whole = gather(slot, parts.bytes) + parts.front;
    const size_t count = std::min(parts.datagrams(), taken_.size());
    counts_.errors.add(parts.datagrams() - count);
    if (rte_pktmbuf_alloc_bulk(pool_, taken_.data(), static_cast<unsigned>(count)) != 0) {
        counts_.no_mbuf.add(count);
        return {};
    }
    for (size_t i = 0; i < count; ++i)
        std::memcpy(place_of_datagram(taken_[i]), whole + i * parts.segment, parts.bytes_of(i));
    return set_datagrams(parts, count);
}

// Sets the mbufs in `taken_` to hold the datagrams alone, without headers.
std::span<rte_mbuf*> GroReceiver::set_datagrams(const Message& parts, size_t count) {
    for (size_t i = 0; i < count; ++i) {
        taken_[i]->data_off = RTE_PKTMBUF_HEADROOM + wire::kMaxLowerBytes;
        taken_[i]->pkt_len = taken_[i]->data_len = static_cast<uint16_t>(parts.bytes_of(i));
    }
    return {taken_.data(), count};
}

// Copies the first bytes of a message into contiguous memory.
uint8_t* GroReceiver::gather(const Slot& slot, size_t bytes) {
    uint8_t* const whole = in_one_piece_->data();
    size_t gathered = 0;
    for (size_t i = 0; gathered < bytes; ++i) {
        const size_t more = std::min(slot.pieces[i].iov_len, bytes - gathered);
        std::memcpy(whole + gathered, slot.pieces[i].iov_base, more);
        gathered += more;
    }
    return whole;
}

// If the first and the last packet are as far apart as consecutive identifications would be, the others are assumed to
// be consecutive too. If that is wrong, the engine detects it by their ICRCs. This saves reading most of the bytes.
void GroReceiver::identify(std::span<rte_mbuf*> frames) {
    const auto last = static_cast<uint16_t>(frames.size() - 1);
    const uint16_t first = identify(*frames.front(), wire::identification(l3_of(*frames.front())));
    if (last == 0) return;
    const auto expected = [&](uint16_t at) { return static_cast<uint16_t>(first + at); };
    const bool in_order = last > 1 && identify(*frames.back(), expected(last)) == expected(last);
    uint16_t next = expected(1);
    for (uint16_t i = 1; i < (in_order ? last : last + 1); ++i) {
        if (in_order)
            wire::set_identification(l3_of(*frames[i]), next);
        else
            next = identify(*frames[i], next);
        ++next;
    }
}

// Sets and returns the packet's identification. If no identification is right, it is `assumed`; the engine will then
// find the ICRC wrong and count it.
uint16_t GroReceiver::identify(rte_mbuf& mbuf, uint16_t assumed) {
    uint8_t* const l3 = l3_of(mbuf);
    const size_t packet = mbuf.data_len - kEthernetBytes - wire::kIcrcBytes;
    wire::set_identification(l3, assumed);
    if (packet < kMinPacketBytes || packet % 4 != 0) return assumed;
    const auto found = identifications_.find(l3, packet);
    if (!found || *found == assumed) return assumed;
    wire::set_identification(l3, *found);
    return *found;
}

}  // namespace rove::datapath
