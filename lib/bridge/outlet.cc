// SPDX-License-Identifier: Apache-2.0
#include "bridge/outlet.h"

#include <algorithm>

namespace rove::bridge {

void Outlet::send(rte_mbuf* mbuf) {
    if (count_ == waiting_.size()) {
        ++counters_[Counter::kUplinkFull];
        rte_pktmbuf_free(mbuf);
        return;
    }
    waiting_[count_++] = mbuf;
    if (count_ == kBurst) push();
}

void Outlet::flush() {
    if (count_ != 0) push();
    if (ring_ != nullptr) ring_->publish();
}

void Outlet::push() {
    if (!port_.ready() || (queue_ == nullptr && ring_ == nullptr)) return drop_all(Counter::kUplinkDown);
    const uint16_t sent = queue_ != nullptr ? queue_->burst(waiting_.data(), count_) : push_to_ring();
    count_ = static_cast<uint16_t>(count_ - sent);
    std::copy_n(waiting_.begin() + sent, count_, waiting_.begin());
}

// Sends frames that waited, or that need larger buffers than the peer has.
uint16_t Outlet::push_to_ring() {
    uint16_t sent = 0;
    for (; sent < count_; ++sent) {
        rte_mbuf* const mbuf = waiting_[sent];
        if (!ring_->send_copy(rte_pktmbuf_mtod(mbuf, const uint8_t*), mbuf->data_len)) break;
        rte_pktmbuf_free(mbuf);
    }
    return sent;
}

void Outlet::drop_all(Counter why) {
    counters_[why] += count_;
    rte_pktmbuf_free_bulk(waiting_.data(), count_);
    count_ = 0;
}

}  // namespace rove::bridge
