// SPDX-License-Identifier: Apache-2.0
// The less frequent operations of the sink: bursts to TX targets, and the handling of full ones.
#include "runtime/packet_sink.h"

#include <algorithm>
#include <cstring>

#include "link/address.h"

namespace rove::datapath {

PacketSink::~PacketSink() {
    rte_pktmbuf_free_bulk(spare_.data(), spare_count_);
    for (const auto& outlet : outlets_)
        if (outlet->queue != nullptr) rte_pktmbuf_free_bulk(outlet->frames.data(), outlet->count);
    std::array<rte_mbuf*, kLoopback> left;
    rte_pktmbuf_free_bulk(left.data(), take_loopback(left.data(), kLoopback));
}

void PacketSink::add_port(const Port& port, std::unique_ptr<TxQueue> queue) {
    TxTarget& outlet = outlet_of(port.id());
    outlet.port = &port;
    if (queue != nullptr) {
        ++open_;
        outlet.burst = queue->wanted();
    }
    outlet.queue = std::move(queue);
}

void PacketSink::add_link(const Port& port, uint16_t outlet, const wire::MacAddress& peer, RingSender& ring) {
    TxTarget& added = outlet_of(outlet);
    added.port = &port;
    added.ring = &ring;
    added.peer = peer;
    ++open_;
}

PacketSink::TxTarget& PacketSink::outlet_of(uint16_t number) {
    while (outlets_.size() <= number) outlets_.push_back(std::make_unique<TxTarget>());
    waiting_.reserve(outlets_.size());  // so that no packet allocates memory
    return *outlets_[number];
}

void PacketSink::remove_link(uint16_t outlet) {
    TxTarget& gone = *outlets_[outlet];
    set_full(gone, false);
    gone.ring = nullptr;
    --open_;
    gone.count = gone.unsealed_count = 0;
    gone.bytes = 0;
}

bool PacketSink::make_room() {
    if (full_ != 0)
        for (const auto& outlet : outlets_)
            if (outlet->is_full) push(*outlet);
    if (spare_count_ == 0) {
        if (rte_pktmbuf_alloc_bulk(pool_, spare_.data(), kSpare) == 0)
            spare_count_ = kSpare;
        else
            ++counters_[PortCounter::kTxNoMbuf];
    }
    return (full_ == 0 || full_ < open_) && has_buffers();
}

void PacketSink::loop_back_copy(const transport::Path& path, rte_mbuf* mbuf) {
    if (groups_.find(path.port, path.flow.dst) == nullptr) return;
    if (rte_mbuf* const copy = rte_pktmbuf_copy(mbuf, pool_, 0, UINT32_MAX); copy != nullptr)
        loop_back(path, copy);
    else
        ++counters_[PortCounter::kLoopbackNoMbuf];
}

bool PacketSink::send_copy(TxTarget& outlet, const rte_mbuf& mbuf) {
    if (!outlet.ring->send_copy(rte_pktmbuf_mtod(&mbuf, const uint8_t*), mbuf.data_len)) return false;
    count(outlet, nullptr, {mbuf.data_len, 0});
    return true;
}

void PacketSink::send_copies(TxTarget& outlet, rte_mbuf* mbuf, wire::BuiltFrame built) {
    if (built.l3_offset != 0) wire::seal(rte_pktmbuf_mtod(mbuf, uint8_t*), built);
    bool has_link = outlet.ring != nullptr, sent = has_link && send_copy(outlet, *mbuf);
    if (!has_link && &outlet == outlets_[outlet.port->id()].get()) {
        wire::MacAddress to;
        std::memcpy(to.data(), rte_pktmbuf_mtod(mbuf, const uint8_t*), to.size());
        for (const auto& link : outlets_) {
            if (link->port != outlet.port || link->ring == nullptr || !(is_multicast(to) || to == link->peer)) continue;
            has_link = true;
            sent |= send_copy(*link, *mbuf);
        }
    }
    if (!sent) ++counters_[has_link ? PortCounter::kTxFull : PortCounter::kTxLinkDown];
    rte_pktmbuf_free(mbuf);
}

uint32_t PacketSink::push(TxTarget& outlet) {
    wire::seal({outlet.unsealed.data(), outlet.unsealed_count});
    outlet.unsealed_count = 0;
    if (capture_ != nullptr) [[unlikely]]
        capture(outlet);
    return outlet.queue != nullptr ? push_queue(outlet) : push_ring(outlet);
}

// Captures the frames that are about to be sent. Frames that a port does not accept remain first, in their order, and
// are not captured again.
void PacketSink::capture(TxTarget& outlet) {
    const auto sent = [&](std::span<const uint8_t> frame) { capture_->sent(outlet.port->id(), frame); };
    if (outlet.ring != nullptr) return outlet.ring->for_each_unpublished(sent);
    if (outlet.queue == nullptr) return;
    for (; outlet.captured < outlet.count; ++outlet.captured) {
        const rte_mbuf* const frame = outlet.frames[outlet.captured];
        sent({rte_pktmbuf_mtod(frame, const uint8_t*), frame->data_len});
    }
}

uint32_t PacketSink::push_ring(TxTarget& outlet) {
    const uint32_t taken = std::exchange(outlet.count, uint16_t{0});
    outlet.bytes = 0;
    outlet.taken += taken;
    if (outlet.ring == nullptr) return 0;
    outlet.ring->publish();
    set_full(outlet, outlet.ring->full());
    return taken;
}

uint32_t PacketSink::push_queue(TxTarget& outlet) {
    uint16_t sent = 0;
    if (outlet.port->ready()) [[likely]]
        sent = outlet.queue->burst(outlet.frames.data(), outlet.count);
    const uint32_t taken = sent;
    outlet.taken += sent;
    // Without a peer or carrier a frame is lost as on a cut cable, and the transport's timers recover it.
    if (!outlet.port->ready()) [[unlikely]] {
        counters_[PortCounter::kTxLinkDown] += outlet.count;
        rte_pktmbuf_free_bulk(outlet.frames.data(), outlet.count);
        sent = outlet.count;
    }
    outlet.count = static_cast<uint16_t>(outlet.count - sent);
    outlet.captured = static_cast<uint16_t>(outlet.captured - std::min(sent, outlet.captured));
    std::copy_n(outlet.frames.begin() + sent, outlet.count, outlet.frames.begin());
    outlet.bytes = 0;
    for (uint16_t i = 0; i < outlet.count; ++i) outlet.bytes += outlet.frames[i]->data_len;
    set_full(outlet, outlet.has_burst());
    return taken;
}

uint32_t PacketSink::flush() {
    uint32_t sent = 0;
    size_t left = 0;
    for (TxTarget* const outlet : waiting_) {
        if (outlet->count != 0) sent += push(*outlet);
        outlet->waits = outlet->count != 0;
        if (outlet->waits) waiting_[left++] = outlet;
    }
    waiting_.resize(left);
    deliver();
    return sent;
}

bool PacketSink::is_stalled() {
    bool waits = false, moves = false;
    for (const auto& outlet : outlets_) {
        if (outlet->port == nullptr || !outlet->port->ready()) continue;
        const uint64_t progress = outlet->ring != nullptr ? outlet->ring->emptied() : outlet->taken;
        moves |= progress != outlet->progress;
        waits |= outlet->count != 0 || (outlet->ring != nullptr && outlet->ring->has_unread());
        outlet->progress = progress;
    }
    return waits && !moves;
}

uint16_t PacketSink::take_loopback(rte_mbuf** out, uint16_t count) {
    count = std::min(count, loopback_count_);
    for (uint16_t i = 0; i < count; ++i) out[i] = loopback_[(loopback_head_ + i) % kLoopback];
    loopback_head_ = static_cast<uint16_t>((loopback_head_ + count) % kLoopback);
    loopback_count_ = static_cast<uint16_t>(loopback_count_ - count);
    return count;
}

}  // namespace rove::datapath
