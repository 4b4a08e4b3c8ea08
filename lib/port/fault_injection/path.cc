// SPDX-License-Identifier: Apache-2.0
// Moves frames through a path.
#include "port/fault_injection/path.h"

#include "wire/in_network.h"

namespace rove::datapath {

ImpairedPath::ImpairedPath(const PathSettings& settings, uint64_t seed, DelayedFramePool& delayed_frames,
                           rte_mempool* pool)
    : settings_(settings), generator_(seed), delayed_frames_(delayed_frames), pool_(pool) {
    generator_.set(settings);
}

void ImpairedPath::set(const PathSettings& settings, uint64_t now_ns) {
    advance(now_ns);
    settings_ = settings;
    generator_.set(settings);
    if (settings.down) cut();
}

void ImpairedPath::arrive(rte_mbuf* mbuf, uint64_t now_ns, std::vector<rte_mbuf*>& out) {
    ++counters_[ImpairCounter::kFrames];
    counters_[ImpairCounter::kBytes] += mbuf->pkt_len;
    if (settings_.down) return drop(mbuf, ImpairCounter::kDown);
    const FaultDecision fate = generator_.next(mbuf->data_len);
    if (fate.lose) return drop(mbuf, ImpairCounter::kLost);
    if (fate.mark) mark(mbuf);
    if (fate.flip_bit >= 0) {
        rte_pktmbuf_mtod(mbuf, uint8_t*)[fate.flip_bit / 8] ^= static_cast<uint8_t>(1u << (fate.flip_bit % 8));
        ++counters_[ImpairCounter::kCorrupted];
    }
    rte_mbuf* const twin = fate.duplicate ? rte_pktmbuf_copy(mbuf, pool_, 0, UINT32_MAX) : nullptr;
    if (fate.hold_frames == 0) forward(mbuf, now_ns, out);
    if (twin != nullptr) {
        ++counters_[ImpairCounter::kDuplicated];
        forward(twin, now_ns, out);
    }
    for (uint32_t h = 0; h < held_count_;) {
        if (--held_[h].frames_left != 0) {
            ++h;
            continue;
        }
        forward(held_[h].mbuf, now_ns, out);
        held_[h] = held_[--held_count_];
    }
    if (fate.hold_frames != 0) {
        ++counters_[ImpairCounter::kReordered];
        held_[held_count_++] = {mbuf, fate.hold_frames};
    }
}

void ImpairedPath::forward(rte_mbuf* mbuf, uint64_t now_ns, std::vector<rte_mbuf*>& out) {
    advance(now_ns);
    if (settings_.delay_us == 0 && settings_.rate_mbps == 0 && wire_.empty()) {
        out.push_back(mbuf);
        return;
    }
    const bool busy = !queue_.empty() || busy_until_ns_ > now_ns;
    if (busy && queue_.size() >= settings_.queue_packets) return drop(mbuf, ImpairCounter::kQueueFull);
    DelayedFramePool::Frame* const frame = delayed_frames_.take();
    if (frame == nullptr) return drop(mbuf, ImpairCounter::kShelfFull);
    frame->mbuf = mbuf;
    ++counters_[ImpairCounter::kDelayed];
    if (!busy) return depart(*frame, now_ns);
    if (settings_.ecn_threshold_packets != 0 && queue_.size() >= settings_.ecn_threshold_packets) mark(mbuf);
    queue_.push(*frame);
}

void ImpairedPath::depart(DelayedFramePool::Frame& frame, uint64_t start_ns) {
    busy_until_ns_ = start_ns;
    if (settings_.rate_mbps != 0) {  // 1 Mb/s is 1 millibit per nanosecond
        unsent_millibits_ += frame.mbuf->pkt_len * uint64_t{8000};
        busy_until_ns_ += unsent_millibits_ / settings_.rate_mbps;
        unsent_millibits_ %= settings_.rate_mbps;
    }
    frame.due_ns = busy_until_ns_ + settings_.delay_us * uint64_t{1000};
    wire_.push(frame);
}

// Moves the frames to the wire whose transmission has begun since the last call. A late call does not change their
// times.
void ImpairedPath::advance(uint64_t now_ns) {
    while (!queue_.empty() && busy_until_ns_ <= now_ns) depart(queue_.pop(), busy_until_ns_);
}

rte_mbuf* ImpairedPath::take(uint64_t now_ns) {
    DelayedFramePool::Frame& frame = wire_.pop();
    delayed_frames_.give_back(frame);
    advance(now_ns);
    return frame.mbuf;
}

void ImpairedPath::drop(rte_mbuf* mbuf, ImpairCounter reason) {
    ++counters_[reason];
    rte_pktmbuf_free(mbuf);
}

void ImpairedPath::mark(rte_mbuf* mbuf) {
    auto* const frame = rte_pktmbuf_mtod(mbuf, uint8_t*);
    const auto transit = wire::find_transit({frame, mbuf->data_len});
    if (!transit || wire::ecn(frame + transit->l3) == wire::kEcnNotEct) return;
    wire::mark_ce(frame + transit->l3);
    ++counters_[ImpairCounter::kMarked];
}

void ImpairedPath::cut() {
    for (DelayedFramePool::List* list : {&wire_, &queue_}) {
        while (!list->empty()) {
            DelayedFramePool::Frame& frame = list->pop();
            delayed_frames_.give_back(frame);
            drop(frame.mbuf, ImpairCounter::kDown);
        }
    }
    while (held_count_ != 0) drop(held_[--held_count_].mbuf, ImpairCounter::kDown);
    busy_until_ns_ = 0;
}

}  // namespace rove::datapath
