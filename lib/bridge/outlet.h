// SPDX-License-Identifier: Apache-2.0
// Sends the bridge's frames at its uplink: to a port's TX queue as mbufs, or into the ring of a link. Units are frames
// and bytes.
#pragma once

#include <rte_mbuf.h>

#include <array>
#include <memory>

#include "bridge/forwarding.h"
#include "port/memif/ring.h"
#include "port/port.h"

namespace rove::bridge {

class Outlet {
  public:
    static constexpr uint16_t kBurst = datapath::RxQueue::kBurst;

    Outlet(datapath::Port& port, rte_mempool* pool, Counters& counters)
        : port_(port), pool_(pool), counters_(counters), queue_(port.make_tx_queue(0)) {}
    ~Outlet() { rte_pktmbuf_free_bulk(waiting_.data(), count_); }
    Outlet(const Outlet&) = delete;
    Outlet& operator=(const Outlet&) = delete;

    // Sets the ring of a port with links; null after the link was closed.
    void set_ring(datapath::RingSender* ring) { ring_ = ring; }

    // Returns true if a burst of frames has room. Otherwise the callers keep their frames, so that none is lost.
    bool has_room() { return count_ < kBurst && (ring_ == nullptr || !ring_->full()); }
    // Sends a frame of at most `most_bytes`. build(uint8_t*) writes it and returns its length.
    template <class Builder>
    void send(size_t most_bytes, Builder&& build) {
        if (ring_ != nullptr && count_ == 0) {
            if (uint8_t* const at = ring_->next(static_cast<uint32_t>(most_bytes)); at != nullptr) {
                ring_->took(static_cast<uint32_t>(build(at)));
                return;
            }
        }
        if (rte_mbuf* const mbuf = make(most_bytes, build); mbuf != nullptr) send(mbuf);
    }
    // Builds a frame that is sent later. Returns null if the pool is empty.
    template <class Builder>
    rte_mbuf* make(size_t most_bytes, Builder&& build) {
        rte_mbuf* const mbuf = rte_pktmbuf_alloc(pool_);
        if (mbuf == nullptr || rte_pktmbuf_tailroom(mbuf) < most_bytes) {
            ++counters_[Counter::kNoMbuf];
            rte_pktmbuf_free(mbuf);
            return nullptr;
        }
        const size_t bytes = build(rte_pktmbuf_mtod(mbuf, uint8_t*));
        mbuf->data_len = static_cast<uint16_t>(bytes);
        mbuf->pkt_len = static_cast<uint32_t>(bytes);
        return mbuf;
    }
    void send(rte_mbuf* mbuf);
    // Sends as many frames as the port accepts.
    void flush();
    // Returns true if frames wait for the port.
    bool holds_frames() const { return count_ != 0; }

  private:
    void push();
    uint16_t push_to_ring();
    void drop_all(Counter why);

    datapath::Port& port_;
    rte_mempool* const pool_;
    Counters& counters_;
    const std::unique_ptr<datapath::TxQueue> queue_;
    datapath::RingSender* ring_ = nullptr;
    uint16_t count_ = 0;
    std::array<rte_mbuf*, size_t{2} * kBurst>
        waiting_;  // room for a burst in flight and for one that arrives meanwhile
};

}  // namespace rove::bridge
