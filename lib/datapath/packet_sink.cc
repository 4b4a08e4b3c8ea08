// SPDX-License-Identifier: Apache-2.0
// The sink's rarer half: bursts to ports, and what happens when one takes nothing.
#include "datapath/packet_sink.h"

#include <algorithm>

namespace rove::datapath {

namespace {
// A port that took nothing for so long has a peer that is stuck. With several ports, the others shall not wait for it;
// with one there is nothing to win by dropping. Longer than a scheduler's time slice on a shared core.
constexpr uint64_t kStalledNs = 20'000'000;
}  // namespace

PacketSink::~PacketSink() {
    rte_pktmbuf_free_bulk(spare_.data(), spare_count_);
    for (Outgoing& tx : queues_) rte_pktmbuf_free_bulk(tx.frames.data(), tx.count);
    std::array<rte_mbuf*, kLoopback> left;
    rte_pktmbuf_free_bulk(left.data(), take_loopback(left.data(), kLoopback));
}

void PacketSink::add_port(const Port& port, uint16_t queue) {
    if (queues_.size() <= port.id()) queues_.resize(port.id() + 1u);
    queues_[port.id()].port = &port;
    queues_[port.id()].queue = {port.id(), queue};
}

bool PacketSink::make_room() {
    if (full_ != 0)
        for (Outgoing& tx : queues_)
            if (tx.full()) push(tx);
    if (spare_count_ == 0) {
        if (rte_pktmbuf_alloc_bulk(pool_, spare_.data(), kSpare) == 0)
            spare_count_ = kSpare;
        else
            ++counters_[PortCounter::kTxNoMbuf];
    }
    return full_ == 0 && spare_count_ != 0 && loopback_count_ < kLoopback;
}

void PacketSink::loop_back_copy(const transport::Path& path, rte_mbuf* mbuf) {
    if (groups_.find(path.port, path.flow.dst) == nullptr) return;
    if (rte_mbuf* const copy = rte_pktmbuf_copy(mbuf, pool_, 0, UINT32_MAX); copy != nullptr)
        loop_back(path, copy);
    else
        ++counters_[PortCounter::kLoopbackNoMbuf];
}

uint32_t PacketSink::push(Outgoing& tx) {
    const bool was_full = tx.full();
    wire::seal({tx.unsealed.data(), tx.unsealed_count});
    tx.unsealed_count = 0;
    uint16_t sent = 0;
    if (tx.port->ready()) [[likely]]
        sent = tx.queue.burst(tx.frames.data(), tx.count, tx.bytes);
    tx.room = 0;  // to be asked anew
    const uint32_t taken = sent;
    tx.taken += sent;
    // Not of many: the peer reads some while others are on their way, and this would only take time.
    if (tx.awaited && sent != 0 && sent <= kAnswers && tx.queue.ring().find()) tx.queue.ring().hand_over(sent);
    if (sent != 0) {
        tx.moved_ns = now_ns_;
    } else if (const bool down = !tx.port->ready();
               down || (queues_.size() > 1 && now_ns_ - tx.moved_ns > kStalledNs)) {
        // Without a peer or carrier a frame is lost as on a cut cable: the transport's timers see to it.
        counters_[down ? PortCounter::kTxLinkDown : PortCounter::kTxStalled] += tx.count;
        rte_pktmbuf_free_bulk(tx.frames.data(), tx.count);
        sent = tx.count;
    }
    tx.count = static_cast<uint16_t>(tx.count - sent);
    std::copy_n(tx.frames.begin() + sent, tx.count, tx.frames.begin());
    tx.bytes = 0;
    for (uint16_t i = 0; i < tx.count; ++i) tx.bytes += tx.frames[i]->data_len;
    if (was_full && !tx.full()) --full_;
    return taken;
}

uint32_t PacketSink::flush() {
    uint32_t sent = 0;
    for (Outgoing& tx : queues_) {
        if (tx.count != 0)
            sent += push(tx);
        else
            tx.moved_ns = now_ns_;
    }
    deliver();
    return sent;
}

bool PacketSink::is_stalled() {
    bool waits = false, moves = false;
    for (Outgoing& tx : queues_) {
        if (tx.port == nullptr || !tx.port->ready()) continue;
        const bool memif = tx.queue.ring().find();
        const uint64_t progress = memif ? tx.queue.ring().emptied() : tx.taken;
        moves |= progress != tx.progress;
        waits |= tx.count != 0 || (memif && tx.queue.ring().unread() != 0);
        tx.progress = progress;
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
